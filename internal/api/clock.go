package api

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is the service's clock, as the Dates of its responses show it. The zero clock
// is this machine's. It is safe for concurrent use.
type clock struct {
	known  atomic.Bool
	offset atomic.Int64 // by which it is at least ahead of this machine's
}

// note reads the Date of the API's own response to a request that was sent at that time.
// Responses of caches tell nothing. The service's clock showed Date, cut to seconds, at
// some moment since then: a slow response leaves the offset as it is, if it agrees.
func (c *clock) note(h http.Header, sent time.Time) {
	if age := h.Get("Age"); age != "" && age != "0" {
		return
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	least, most := int64(time.Until(date)), int64(date.Add(time.Second).Sub(sent))
	if offset := c.offset.Load(); c.known.Swap(true) && offset <= most {
		least = max(least, offset)
	}
	c.offset.Store(least)
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
