package api

import (
	"net/http"
	"strconv"
	"time"
)

// RateLimit is what an answer said of the budget that its request was counted
// against. Operations have different ones.
type RateLimit struct {
	Limit     int       // requests in a period
	Remaining int       // of those, what is left
	Reset     time.Time // when Remaining is Limit again; zero when not told
}

// ReadRateLimit reads the headers of an answer. It returns false when the
// answer does not tell what is left.
func ReadRateLimit(h http.Header) (RateLimit, bool) {
	remaining, err := strconv.Atoi(h.Get("X-Ratelimit-Remaining"))
	if err != nil || remaining < 0 {
		return RateLimit{}, false
	}
	r := RateLimit{Remaining: remaining}
	if limit, err := strconv.Atoi(h.Get("X-Ratelimit-Limit")); err == nil && limit > 0 {
		r.Limit = limit
	}
	if reset, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64); err == nil && reset > 0 {
		r.Reset = time.Unix(reset, 0)
	}
	return r, true
}

// scarce is the part of a budget below which polling slows down.
const scarce = 10

// maxPollPause is the longest pause that a small budget asks of a poll loop.
const maxPollPause = 15 * time.Second

// PollPause is the pause before an operation is sent again only to look whether
// something has changed: usual, or longer when the last answer to that
// operation said that less than a tenth of the budget is left. What is left is
// then spread over the time until the budget is whole again, because other
// requests are counted against it too.
func (c *Client) PollPause(op *Op, usual time.Duration) time.Duration {
	v, ok := c.limits.Load(op)
	if !ok {
		return usual
	}
	r := v.(RateLimit)
	left := time.Until(r.Reset)
	if r.Limit == 0 || r.Remaining*scarce >= r.Limit || left <= 0 {
		return usual
	}
	return max(usual, min(left/time.Duration(r.Remaining+1), maxPollPause))
}

// noteLimit remembers and reports the budget that an answer tells of.
func (c *Client) noteLimit(op *Op, h http.Header) {
	r, ok := ReadRateLimit(h)
	if !ok {
		return
	}
	c.limits.Store(op, r)
	if c.cfg.OnRateLimit != nil {
		c.cfg.OnRateLimit(op, r)
	}
}
