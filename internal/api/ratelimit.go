package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// RateLimit is the rate limit that a response reports. Operations have different limits.
type RateLimit struct {
	Limit     int       // requests per period
	Remaining int       // remaining requests
	Reset     time.Time // when the next period begins; zero if not reported
}

// ReadRateLimit reads the headers of a response. It returns false if they do
// not report the remaining requests.
func ReadRateLimit(h http.Header) (RateLimit, bool) {
	text := h.Get("X-Ratelimit-Remaining")
	if text == "" {
		return RateLimit{}, false // avoids the allocation of an error
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

// quota returns the kind of the operation's limit. The service counts creations, deletions
// and other requests separately. Nobody has observed how it counts forks. They are not
// creations here, because a fork that reports the limit of other requests would then hide
// the earlier resets of creations.
func (op *Op) quota() quota {
	switch {
	case op.Name == CreateSandbox.Name:
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

// newGates returns a gate for each quota.
func newGates(maxWait time.Duration, clk *clock) (gates [3]*gate) {
	for i, inFlightFor := range [...]time.Duration{everything: time.Second, creations: 5 * time.Second, deletions: time.Second} {
		gates[i] = &gate{maxWait: maxWait, inFlightFor: inFlightFor, clock: clk, maxInFlight: initialInFlight}
	}
	return gates
}

// LimitError reports a request that was not sent because of a rate limit.
type LimitError struct {
	Limit  RateLimit
	Waited time.Duration
	// Until is when the limit is reset, by this machine's clock. It is zero if the request
	// waited for others in the queue.
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

// waitError returns an error if the limit is used up, and its reset comes too late for the
// request to wait for it.
func (g *gate) waitError(ctx context.Context, a *attempts) error {
	wait := time.Until(g.resetsAt)
	if g.remaining > 0 || wait <= 0 {
		return nil
	}
	e := &LimitError{Limit: RateLimit{g.limit, g.remaining, g.reset}, Waited: a.waited, Until: g.resetsAt}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(g.resetsAt) {
		e.Err = context.DeadlineExceeded
	} else if wait <= g.maxWait-a.waited {
		return nil
	}
	return e
}

// readLimit returns the limit that a response reports, and when it is reset by this
// machine's clock. Both are zero if the values are implausible.
func (g *gate) readLimit(h http.Header, now time.Time) (r RateLimit, resetsAt time.Time) {
	r, ok := ReadRateLimit(h)
	resetsAt = g.clock.endOfSecond(r.Reset)
	if after, ok := retryAfter(h, now); ok && now.Add(after).After(resetsAt) {
		resetsAt = now.Add(after)
	}
	if !ok || r.Limit == 0 || r.Reset.IsZero() || resetsAt.Sub(now) > maxReset {
		return RateLimit{}, time.Time{}
	}
	return r, resetsAt
}

// maxReset is the longest plausible time until a reset.
const maxReset = time.Hour

// notSentError marks an attempt that sent nothing.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// scarce defines when polling slows down: when less than one part in scarce of the limit
// remains.
const scarce = 10

// maxPollPause is the longest pause between polls.
const maxPollPause = 15 * time.Second

// PollPause returns the pause between polls with an operation. It is usual, or longer if the
// last response reported that less than a tenth of the limit remains. The remaining
// requests are then spread over the time until the reset, because other requests count too.
func (c *Client) PollPause(op *Op, usual time.Duration) time.Duration {
	v, ok := c.limits.Load(op)
	if !ok {
		return usual
	}
	r := v.(RateLimit)
	untilReset := r.Reset.Sub(c.Now())
	if r.Limit == 0 || r.Remaining*scarce >= r.Limit || untilReset <= 0 {
		return usual
	}
	return max(usual, min(untilReset/time.Duration(r.Remaining+1), maxPollPause))
}

// reportsLimit reports whether a response has the headers of a rate limit.
func reportsLimit(h http.Header) bool {
	_, ok := ReadRateLimit(h)
	return ok
}

// storeLimit stores the rate limit of the API's own response.
func (c *Client) storeLimit(op *Op, h http.Header) {
	if r, ok := ReadRateLimit(h); ok {
		c.limits.Store(op, r)
		c.sawLimit.Store(true)
	}
}

// Vouches reports whether a response has reported a rate limit. If so, a response without
// one is not the API's: all responses of the API report a rate limit, unless a proxy drops
// the headers.
func (c *Client) Vouches() bool { return c.sawLimit.Load() }
