package api

import (
	"net/http"
	"sync"
	"time"
)

// clock is the service's, as the Date of its responses tells: cut to seconds, and
// as old as the request at most. It is safe for concurrent use. [serverClock] is
// not as exact, but it errs on the side of waiting.
type clock struct {
	base time.Time

	mu        sync.Mutex
	known     bool
	low, high time.Duration // between which it is ahead of ours
}

// note takes what the API's own response has told to a request that was sent at
// that time.
func (c *clock) note(h http.Header, sent time.Time) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	low := date.Sub(c.base) - time.Since(c.base)
	high := low + time.Since(sent) + time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || low > c.high || high < c.low { // one of the clocks has been set
		c.low, c.high, c.known = low, high, true
		return
	}
	c.low, c.high = max(c.low, low), min(c.high, high)
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Now()
	}
	return c.base.Add(time.Since(c.base) + c.low)
}

// Now returns the current time by the service's clock, as its responses have told,
// or by this machine's clock before the first.
func (c *Client) Now() time.Time { return c.clock.now() }
