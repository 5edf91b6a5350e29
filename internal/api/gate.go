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
	firstMost = 8                      // requests on their way before any was answered
	jitter    = 250 * time.Millisecond // keeps clients from coming back at the same time
)

// gate holds back requests that the API would refuse: those of one kind, which it
// counts together, and with those of the team's other clients.
type gate struct {
	longest time.Duration // that one operation waits; none does if it is not positive
	counted time.Duration // after which a request without a response is on its way no more
	clock   *clock

	mu           sync.Mutex
	most, flying int       // requests on their way
	limit, left  int       // as told; left until told
	told, resets time.Time // when the limit is reset, by the service's clock and by ours
	tickets      uint64
	queues       [2][]*attempts // what goes first, and the others
}

// enter waits until the request may go.
func (g *gate) enter(ctx context.Context, a *attempts) error {
	if g.longest <= 0 {
		return nil
	}
	g.mu.Lock()
	g.tickets++
	a.ticket = cmp.Or(a.ticket, g.tickets)
	q, before := g.find(a)
	*q = slices.Insert(*q, before, a)
	a.going, a.turn = nil, make(chan struct{})
	if g.wake(); a.going != nil {
		g.mu.Unlock()
		return nil
	}
	limit, err, began := RateLimit{g.limit, g.left, g.told}, g.tooLong(ctx, a), time.Now()
	g.mu.Unlock()
	pace := a.beginPace(ctx, limit, before+1)
	if err == nil {
		timer := time.NewTimer(g.longest - a.waited)
		defer timer.Stop()
		select {
		case <-a.turn:
		case <-timer.C:
			err = &LimitError{Limit: limit, Waited: a.waited + time.Since(began)}
		case <-ctx.Done():
			err = ContextError(ctx)
		}
	}
	g.mu.Lock()
	if q, i := g.find(a); a.going != nil {
		err = nil
	} else {
		*q = slices.Delete(*q, i, i+1)
	}
	g.mu.Unlock()
	a.waited += time.Since(began)
	if err != nil && ctx.Err() == nil {
		pace.Outcome = RateLimited.String()
	}
	pace.End(err)
	return err
}

// find returns a request's queue and its place there, also once it was refused.
func (g *gate) find(a *attempts) (q *[]*attempts, i int) {
	if q = &g.queues[1]; a.req.Op.First {
		q = &g.queues[0]
	}
	i, _ = slices.BinarySearchFunc(*q, a.ticket, func(b *attempts, t uint64) int { return cmp.Compare(b.ticket, t) })
	return q, i
}

// wake lets those go that may.
func (g *gate) wake() {
	now, most := time.Now(), g.most
	if now.Before(g.resets) {
		most = min(most, g.left)
	}
	for i := range g.queues {
		for q := &g.queues[i]; len(*q) > 0 && g.flying < most; g.flying++ {
			a := (*q)[0]
			*q = slices.Delete(*q, 0, 1)
			a.going = g.after(g.counted, func() { g.flying--; g.wake() })
			close(a.turn)
		}
	}
}

// leave ends an attempt. h is what the API's own response has told, and nil if
// there was none. It returns whether the limit is spent and the request may wait.
func (g *gate) leave(ctx context.Context, a *attempts, h http.Header, refused bool) (spent bool) {
	if g.longest <= 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.going.Stop() {
		g.flying--
	}
	if h != nil {
		g.learn(h, refused)
	}
	g.wake()
	return refused && g.left == 0 && time.Now().Before(g.resets) && g.tooLong(ctx, a) == nil
}

// learn takes in what a response tells.
func (g *gate) learn(h http.Header, refused bool) {
	now := time.Now()
	if refused {
		g.most = max(1, g.most/2)
	} else {
		g.most++
	}
	r, resets := g.tells(h, now)
	if r.Limit > 0 {
		g.limit, g.most = r.Limit, min(g.most, r.Limit)
	}
	if !resets.After(now) || r.Reset.Before(g.told) {
		return
	}
	if r.Reset.After(g.told) {
		g.told, g.left, g.resets = r.Reset, r.Remaining, time.Time{}
	}
	g.left = min(g.left, r.Remaining)
	if resets.After(g.resets) {
		g.resets = resets.Add(rand.N(jitter))
		g.after(g.resets.Sub(now), g.wake)
	}
}

func (g *gate) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { g.mu.Lock(); defer g.mu.Unlock(); f() })
}
