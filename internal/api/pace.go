package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// farReset is the furthest reset that is believed.
	farReset = time.Hour
	// maxTurns is how often a request is sent again that the API has refused since
	// a limit is spent.
	maxTurns = 10
)

// pacer holds requests back while a limit is spent that responses have told of.
// It counts per kind of limit: the service tells with each response the limit
// that the request was counted in, what is left of it, and when it is reset.
// Operations of one kind share a window until their responses tell of different
// limits. Those who wait go in the order in which they came, except that reads
// which finish a running command go first.
type pacer struct {
	longest time.Duration // that one operation waits; none is held back if it is not positive

	clock *clock

	mu      sync.Mutex
	tickets uint64
	homes   map[string]*window // by kind: of operations that no response has told of
	of      map[*Op]*window
}

func newPacer(longest time.Duration, told *clock) *pacer {
	return &pacer{longest: longest, clock: told, homes: map[string]*window{}, of: map[*Op]*window{}}
}

// quota is the kind of limit that an operation is taken to have before a
// response has told: the service was seen to count creations, deletions and
// everything else.
func (op *Op) quota() string {
	switch {
	case makesSandbox(op):
		return "create"
	case op.Method == http.MethodDelete:
		return "delete"
	}
	return ""
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

// notSentError marks the error of an attempt that sent nothing.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// window returns the one that an operation is counted in.
func (p *pacer) window(op *Op) *window {
	if w := p.of[op]; w != nil {
		return w
	}
	kind := op.quota()
	w := p.homes[kind]
	if w == nil {
		w = newWindow(kind, 0)
		p.homes[kind] = w
	}
	return w
}

// enter waits until the limits permit an attempt.
func (p *pacer) enter(ctx context.Context, a *attempts) error {
	if p.longest <= 0 {
		return nil
	}
	p.mu.Lock()
	if a.ticket == 0 {
		p.tickets++
		a.ticket = p.tickets
	}
	w, now := p.window(a.req.Op), time.Now()
	first := a.req.Op.First
	if (len(w.waiting) == 0 || first && !w.waiting[0].first) && w.free(now, first) > 0 {
		w.send(&a.slot, now)
		p.mu.Unlock()
		return nil
	}
	limit := RateLimit{Limit: w.limit, Remaining: w.left, Reset: w.told}
	if err := p.tooLong(ctx, a, w.spent(now), limit); err != nil {
		p.mu.Unlock()
		ctx, e := a.beginPace(ctx, limit, 0)
		a.endPace(ctx, e, err)
		return notSentError{err}
	}
	q := &waiter{first: first, ticket: a.ticket, slot: &a.slot, granted: make(chan struct{})}
	before := w.join(q)
	p.arm(w, now)
	p.mu.Unlock()

	pacing, e := a.beginPace(ctx, limit, before)
	timer := time.NewTimer(p.longest - a.waited)
	defer timer.Stop()
	var err error
	select {
	case <-q.granted:
	case <-timer.C:
		err = &LimitError{Limit: limit, Waited: a.waited + time.Since(now)}
	case <-ctx.Done():
		err = ContextError(ctx)
	}
	a.waited += time.Since(now)
	a.endPace(pacing, e, err)
	if err != nil {
		p.mu.Lock()
		if q.ok {
			w.leave(&a.slot)
		} else {
			w.giveUp(q)
		}
		p.arm(w, time.Now())
		p.mu.Unlock()
		err = notSentError{err}
	}
	return err
}

// tooLong returns an error if the caller would give up before the limit is
// reset.
func (p *pacer) tooLong(ctx context.Context, a *attempts, until time.Time, limit RateLimit) error {
	if until.IsZero() {
		return nil
	}
	deadline, ok := ctx.Deadline()
	switch {
	case ok && deadline.Before(until):
		return &LimitError{Limit: limit, Waited: a.waited, Until: until, Err: context.DeadlineExceeded}
	case time.Until(until) > p.longest-a.waited:
		return &LimitError{Limit: limit, Waited: a.waited, Until: until}
	}
	return nil
}

// arm lets those go that may, and looks again when the next may.
func (p *pacer) arm(w *window, now time.Time) {
	again := w.wake(now)
	switch {
	case again.IsZero():
		if w.timer != nil {
			w.timer.Stop()
		}
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(again), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.arm(w, time.Now())
		})
	default:
		w.timer.Reset(max(time.Until(again), time.Millisecond))
	}
}

// left ends an attempt. h is what the API's own response has told, and nil if
// there was none. It returns whether the limit is now spent, and the request may
// wait for its reset.
func (p *pacer) left(ctx context.Context, a *attempts, h http.Header, refused bool) (spent bool) {
	if p.longest <= 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sentIn, now := a.slot.w, time.Now()
	w := sentIn
	w.leave(&a.slot)
	defer func() {
		p.arm(sentIn, now)
		if w != sentIn {
			p.arm(w, now)
		}
	}()
	if h == nil {
		return false
	}
	r, ok := ReadRateLimit(h)
	resets := p.clock.passed(r.Reset)
	if !ok || r.Limit == 0 || r.Reset.IsZero() || !resets.After(a.slot.sent) || resets.Sub(now) > farReset {
		w.silent = w.silent || w.limit == 0
		return false
	}
	w = p.assign(a.req.Op, w, r.Limit)
	if !resets.After(now) {
		w.late(&a.slot, r, resets)
		return false
	}
	w.report(&a.slot, r, refused, resets, now)
	if after, ok := retryAfter(h, now); ok && refused && w.left <= 0 && now.Add(after).After(w.resets) && after <= farReset {
		w.resets = now.Add(after)
	}
	until := w.spent(now)
	return refused && !until.IsZero() && p.tooLong(ctx, a, until, r) == nil
}

// assign returns the window of a limit that a response to the operation has
// told, which is another than w if others in w have told another limit.
func (p *pacer) assign(op *Op, w *window, limit int) *window {
	w.silent = false
	if w.limit == 0 {
		w.limit = limit
	}
	if w.limit != limit {
		alone := true
		for other, of := range p.of {
			alone = alone && (of != w || other == op)
		}
		kinds := []string{op.quota(), ""}
		shared := w
		for _, of := range p.of {
			if of.limit == limit && slices.Contains(kinds, of.quota) {
				shared = of
			}
		}
		switch {
		case shared != w:
			w = shared
		case alone:
			w.limit = limit
		default:
			w = newWindow(op.quota(), limit)
		}
	}
	p.of[op] = w
	return w
}

// unsent reports whether err is that of an attempt that sent nothing.
func unsent(err error) bool {
	_, ok := errors.AsType[notSentError](err)
	return ok
}
