package testkit

import (
	"context"
	"slices"
	"sync"

	"github.com/go-vercel/sandbox/observe"
)

// Events is an [observe.Observer] that keeps what has ended.
type Events struct {
	mu    sync.Mutex
	begun int
	ended []observe.Event
}

// Begin implements [observe.Observer].
func (r *Events) Begin(ctx context.Context, _ observe.Event) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	return ctx
}

// End implements [observe.Observer].
func (r *Events) End(_ context.Context, e observe.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, e)
}

// Ended returns the events that have ended, in that order; of the given kinds only,
// if there are any.
func (r *Events) Ended(kinds ...observe.Kind) []observe.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.ended), func(e observe.Event) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, e.Kind)
	})
}

// Open returns how many events have begun and not ended.
func (r *Events) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun - len(r.ended)
}
