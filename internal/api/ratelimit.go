package api

import (
	"net/http"
	"strconv"
	"time"
)

// RateLimit is the rate limit reported by a response. Different operations have
// different ones.
type RateLimit struct {
	Limit     int       // requests per period
	Remaining int       // requests left
	Reset     time.Time // when the next period begins; zero if not reported
}

// ReadRateLimit reads the headers of a response. It returns false if they do
// not report the remaining requests.
func ReadRateLimit(h http.Header) (RateLimit, bool) {
	text := h.Get("X-Ratelimit-Remaining")
	if text == "" {
		return RateLimit{}, false // before strconv allocates an error
	}
	remaining, err := strconv.Atoi(text)
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

// scarce is the divisor of a limit below which polling slows down.
const scarce = 10

// maxPollPause is the longest pause between polls.
const maxPollPause = 15 * time.Second

// PollPause returns the pause between polls with an operation: usual, or longer
// if its last response reported that less than a tenth of the limit is left.
// The rest is then spread over the time until the next period, because other
// requests count too.
func (c *Client) PollPause(op *Op, usual time.Duration) time.Duration {
	v, ok := c.limits.Load(op)
	if !ok {
		return usual
	}
	r := v.(RateLimit)
	left := r.Reset.Sub(c.Now())
	if r.Limit == 0 || r.Remaining*scarce >= r.Limit || left <= 0 {
		return usual
	}
	return max(usual, min(left/time.Duration(r.Remaining+1), maxPollPause))
}

// tellsLimit reports whether a response tells of a rate limit.
func tellsLimit(h http.Header) bool {
	_, ok := ReadRateLimit(h)
	return ok
}

// noteLimit stores the rate limit of the API's own response.
func (c *Client) noteLimit(op *Op, h http.Header) {
	if r, ok := ReadRateLimit(h); ok {
		c.limits.Store(op, r)
		c.vouches.Store(true)
	}
}

// Vouches reports whether responses have told of a rate limit. All of the API's do,
// and those of others do not, unless something in between drops that.
func (c *Client) Vouches() bool { return c.vouches.Load() }
