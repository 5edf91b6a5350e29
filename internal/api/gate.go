package api

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	initialInFlight = 8                      // maximum number of requests in flight before the first response
	jitter          = 250 * time.Millisecond // keeps clients from resuming at the same time
)

// gate holds back requests that the API would refuse because of a rate limit. There is a
// gate for each kind of request that the API counts separately. The API also counts the
// requests of the team's other clients.
type gate struct {
	maxWait     time.Duration // total wait of one operation; if not positive, no operation waits
	inFlightFor time.Duration // how long a request without a response counts as in flight
	clock       *clock

	mu                    sync.Mutex
	maxInFlight, inFlight int            // requests in flight
	limit, remaining      int            // as reported; remaining is valid until reset
	reset, resetsAt       time.Time      // when the limit is reset, by the service's clock and by ours
	tickets               uint64         // number of tickets issued
	queues                [2][]*attempts // operations with First, and others
}

// acquire waits until the request may be sent.
func (g *gate) acquire(ctx context.Context, a *attempts) error {
	if g.maxWait <= 0 {
		return nil
	}
	g.mu.Lock()
	g.tickets++
	a.ticket = cmp.Or(a.ticket, g.tickets)
	q, ahead := g.position(a)
	*q = slices.Insert(*q, ahead, a)
	a.inFlight, a.admitted = nil, make(chan struct{})
	if g.admit(); a.inFlight != nil {
		g.mu.Unlock()
		return nil
	}
	limit, err, start := RateLimit{g.limit, g.remaining, g.reset}, g.waitError(ctx, a), time.Now()
	g.mu.Unlock()
	a.logWait(ctx, limit, ahead+1)
	if err == nil {
		timer := time.NewTimer(g.maxWait - a.waited)
		defer timer.Stop()
		select {
		case <-a.admitted:
		case <-timer.C:
			err = &LimitError{Limit: limit, Waited: a.waited + time.Since(start)}
		case <-ctx.Done():
			err = ContextError(ctx)
		}
	}
	g.mu.Lock()
	if q, i := g.position(a); a.inFlight != nil {
		err = nil
	} else {
		*q = slices.Delete(*q, i, i+1)
	}
	g.mu.Unlock()
	a.waited += time.Since(start)
	return err
}

// position returns a request's queue and its index there. A refused request keeps its ticket.
func (g *gate) position(a *attempts) (q *[]*attempts, i int) {
	if q = &g.queues[1]; a.req.Op.First {
		q = &g.queues[0]
	}
	i, _ = slices.BinarySearchFunc(*q, a.ticket, func(b *attempts, t uint64) int { return cmp.Compare(b.ticket, t) })
	return q, i
}

// admit admits waiting requests. The caller holds mu.
func (g *gate) admit() {
	now, limit := time.Now(), g.maxInFlight
	if now.Before(g.resetsAt) {
		limit = min(limit, g.remaining)
	}
	for i := range g.queues {
		for q := &g.queues[i]; len(*q) > 0 && g.inFlight < limit; g.inFlight++ {
			a := (*q)[0]
			*q = slices.Delete(*q, 0, 1)
			a.inFlight = g.afterLocked(g.inFlightFor, func() { g.inFlight--; g.admit() })
			close(a.admitted)
		}
	}
}

// release ends an attempt. h is the header of the API's own response, or nil if there was
// none. It reports whether the request was refused because the limit is used up, and may
// wait for the reset.
func (g *gate) release(ctx context.Context, a *attempts, h http.Header, refused bool) (spent bool) {
	if g.maxWait <= 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.inFlight.Stop() {
		g.inFlight--
	}
	if h != nil {
		g.update(h, refused)
	}
	g.admit()
	return refused && g.remaining == 0 && time.Now().Before(g.resetsAt) && g.waitError(ctx, a) == nil
}

// update updates the limit from a response. The caller holds mu.
func (g *gate) update(h http.Header, refused bool) {
	now := time.Now()
	if refused {
		g.maxInFlight = max(1, g.maxInFlight/2)
	} else {
		g.maxInFlight++
	}
	r, resetsAt := g.readLimit(h, now)
	if r.Limit > 0 {
		g.limit, g.maxInFlight = r.Limit, min(g.maxInFlight, r.Limit)
	}
	if !resetsAt.After(now) || r.Reset.Before(g.reset) {
		return
	}
	if r.Reset.After(g.reset) {
		g.reset, g.remaining, g.resetsAt = r.Reset, r.Remaining, time.Time{}
	}
	g.remaining = min(g.remaining, r.Remaining)
	if resetsAt.After(g.resetsAt) {
		g.resetsAt = resetsAt.Add(rand.N(jitter))
		g.afterLocked(g.resetsAt.Sub(now), g.admit)
	}
}

func (g *gate) afterLocked(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { g.mu.Lock(); defer g.mu.Unlock(); f() })
}
