package api

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is the service's clock, as the Date of its last response shows it: cut to
// seconds, and as old as the request at most. The zero clock is this machine's. It is
// safe for concurrent use.
type clock struct {
	offset atomic.Int64 // by which it is at least ahead of this machine's
}

// note reads the Date of the API's own response. Responses of caches tell nothing.
func (c *clock) note(h http.Header) {
	if age := h.Get("Age"); age != "" && age != "0" {
		return
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		c.offset.Store(int64(time.Until(date)))
	}
}

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// passed returns when the service's second t is over for certain, by this machine's
// clock.
func (c *clock) passed(t time.Time) time.Time {
	return t.Add(time.Second - time.Duration(c.offset.Load()))
}

// Now returns the current time by the service's clock, or by this machine's before the
// first response.
func (c *Client) Now() time.Time { return c.clock.now() }
