package sandboxtest

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// quota limits the requests of one kind in each window of time.
type quota struct {
	kind   string
	limit  int
	window time.Duration
}

// The quotas, with the observed limits and windows of the service.
var (
	createQuota  = quota{"create", 20, 3 * time.Second}
	deleteQuota  = quota{"delete", 20, time.Second}
	generalQuota = quota{"general", 1000, time.Minute}
)

// rateLimits counts requests by their quota.
type rateLimits struct {
	mu      sync.Mutex
	windows map[string]*rateWindow
}

type rateWindow struct {
	ends time.Time
	used int
}

// count counts a request and returns the remaining requests and the end of the window.
func (l *rateLimits) count(q quota, now time.Time) (left int, ends time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.windows[q.kind]
	if w == nil || !now.Before(w.ends) {
		if l.windows == nil {
			l.windows = make(map[string]*rateWindow)
		}
		w = &rateWindow{ends: now.Add(q.window)}
		l.windows[q.kind] = w
	}
	w.used++
	return q.limit - w.used, w.ends
}

// limitRate sets the rate limit headers of a response. It returns an error if no request
// remains. Without Options.RateLimits the headers report a limit that never runs low, so
// that clients do not slow down.
func (c *call) limitRate(q quota) *reply.Error {
	now := c.s.store.Clock.Now()
	left, ends := q.limit-1, now.Add(q.window)
	if c.s.opts.RateLimits {
		left, ends = c.s.rates.count(q, now)
	}
	h := c.w.Header()
	h.Set("X-Ratelimit-Limit", strconv.Itoa(q.limit))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(max(0, left)))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(ends.Unix(), 10))
	if left >= 0 {
		return nil
	}
	seconds := int64((ends.Sub(now) + time.Second - 1) / time.Second)
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	e := reply.Fail(http.StatusTooManyRequests, "rate_limited", "Too many requests - try again in %d seconds (more than %d).", seconds, q.limit)
	e.Extra = map[string]any{"limit": map[string]any{"total": q.limit, "remaining": 0, "reset": ends.Unix()}}
	return e
}
