package api

import (
	"net/http"
	"sync"
	"time"
)

// sleeping is by how much the time of day runs ahead of the monotonic clock if
// the machine was suspended: the latter stands still meanwhile.
const sleeping = 2 * time.Second

// clock is the service's, as the Date of its responses tells: cut to seconds, and
// as old as the request at most. It is safe for concurrent use.
type clock struct {
	base time.Time

	mu        sync.Mutex
	known     bool
	low, high time.Duration // between which it is ahead of ours
	// odd is set if the last response was behind that, as it is if one of the
	// clocks has been set, or if it was an old one. It is believed if the next one
	// says the same.
	odd             bool
	oddLow, oddHigh time.Duration
	slept           time.Duration // by how much the time of day was ahead of the monotonic clock

	text string // the last Date
	date time.Time
}

// note takes what the API's own response has told to a request that was sent at
// that time. Responses of caches tell nothing.
func (c *clock) note(h http.Header, sent time.Time) {
	text, age := h.Get("Date"), h.Get("Age")
	if text == "" || age != "" && age != "0" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != c.text { // most have that of the one before
		date, err := http.ParseTime(text)
		if err != nil {
			return
		}
		c.text, c.date = text, date
	}
	elapsed := c.elapsed()
	low := c.date.Sub(c.base) - elapsed
	high := low + time.Since(sent) + time.Second
	switch {
	case !c.known, low > c.high: // one that is too far ahead does less harm
		c.low, c.high = low, high
	case low <= c.high && high >= c.low:
		c.low, c.high = max(c.low, low), min(c.high, high)
	case c.odd && low <= c.oddHigh && high >= c.oddLow:
		c.low, c.high = max(c.oddLow, low), min(c.oddHigh, high)
	default:
		c.odd, c.oddLow, c.oddHigh = true, low, high
		return
	}
	c.known, c.odd = true, false
}

// elapsed returns the time since base by the monotonic clock. What is known is
// forgotten if that has stood still meanwhile. The caller holds mu.
func (c *clock) elapsed() time.Duration {
	now := time.Now()
	elapsed := now.Sub(c.base)
	slept := now.Round(0).Sub(c.base.Round(0)) - elapsed
	if slept > c.slept+sleeping {
		c.known, c.odd = false, false
	}
	c.slept = slept
	return elapsed
}

// now returns the service's time, or ours while that is not known.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := c.elapsed()
	if !c.known {
		return time.Now()
	}
	return c.base.Add(elapsed + c.low)
}

// passed returns when, by this machine's clock, the second t of the service's is
// surely over.
func (c *clock) passed(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elapsed()
	end := t.Add(time.Second)
	if !c.known {
		return end
	}
	return c.base.Add(end.Sub(c.base) - c.low)
}

// Now returns the current time by the service's clock, as its responses have told,
// or by this machine's clock before the first.
func (c *Client) Now() time.Time { return c.clock.now() }
