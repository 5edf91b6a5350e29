package api

import (
	"context"
	"fmt"
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

// quota is the kind of limit that an operation has: the service was seen to count
// creations, deletions and everything else.
func (op *Op) quota() quota {
	switch {
	case makesSandbox(op):
		return creations
	case op.Method == http.MethodDelete:
		return deletions
	}
	return everything
}

type quota int

const (
	everything quota = iota
	creations
	deletions
)

// gates returns one for each kind.
func newGates(longest time.Duration, told *clock) (gates [3]*gate) {
	for i, counted := range [...]time.Duration{everything: time.Second, creations: 5 * time.Second, deletions: time.Second} {
		gates[i] = &gate{longest: longest, counted: counted, clock: told, most: firstMost}
	}
	return gates
}

// LimitError reports a request that was not sent because of a rate limit.
type LimitError struct {
	Limit  RateLimit
	Waited time.Duration
	// Until is when the limit is reset, by this machine's clock; zero if others
	// have to go first.
	Until time.Time
	Err   error // context.DeadlineExceeded if the context would have ended first
}

func (e *LimitError) Error() string {
	s := "the rate limit"
	if e.Limit.Limit > 0 {
		s += fmt.Sprintf(" of %d requests", e.Limit.Limit)
	}
	s += " is reached"
	if !e.Until.IsZero() {
		s += fmt.Sprintf(" until %s", e.Until.UTC().Format("15:04:05 MST"))
	}
	if e.Err != nil {
		s += ", after the context's deadline"
	}
	if e.Waited > 0 {
		s += fmt.Sprintf(", waited %v", e.Waited.Round(time.Millisecond))
	}
	return s + "; the request was not sent"
}

// Unwrap returns Err.
func (e *LimitError) Unwrap() error { return e.Err }

// tooLong returns an error if the caller would give up before the limit is reset
// that is spent.
func (g *gate) tooLong(ctx context.Context, a *attempts) error {
	wait := time.Until(g.resets)
	if g.left > 0 || wait <= 0 {
		return nil
	}
	e := &LimitError{Limit: RateLimit{g.limit, g.left, g.told}, Waited: a.waited, Until: g.resets}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(g.resets) {
		e.Err = context.DeadlineExceeded
	} else if wait <= g.longest-a.waited {
		return nil
	}
	return e
}

// tells returns what a response tells of the limit, and when that is reset by this
// machine's clock, or nothing that makes no sense.
func (g *gate) tells(h http.Header, now time.Time) (r RateLimit, resets time.Time) {
	r, ok := ReadRateLimit(h)
	resets = g.clock.passed(r.Reset)
	if after, ok := retryAfter(h, now); ok && now.Add(after).After(resets) {
		resets = now.Add(after)
	}
	if !ok || r.Limit == 0 || r.Reset.IsZero() || resets.Sub(now) > farReset {
		return RateLimit{}, time.Time{}
	}
	return r, resets
}

// farReset is the furthest reset that is believed.
const farReset = time.Hour

// notSentError marks the error of an attempt that sent nothing.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

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
