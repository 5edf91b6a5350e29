package api

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is the service's clock, derived from the Dates of its responses. The zero clock is
// this machine's. It is safe for concurrent use.
type clock struct {
	known  atomic.Bool
	offset atomic.Int64 // lower bound of how far it is ahead of this machine's
}

// update reads the Date of the API's own response to a request that was sent at the time
// sent. It ignores responses of caches. The service's clock showed Date, truncated to
// seconds, at some moment since sent. If the offset is consistent with that, a slow
// response does not change it.
func (c *clock) update(h http.Header, sent time.Time) {
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

// endOfSecond returns when the service's second t has certainly ended, by this machine's
// clock.
func (c *clock) endOfSecond(t time.Time) time.Time {
	return t.Add(time.Second - time.Duration(c.offset.Load()))
}

// Now returns the current time by the service's clock, or by this machine's before the
// first response.
func (c *Client) Now() time.Time { return c.clock.now() }
