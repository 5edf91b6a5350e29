package testkit

import (
	"context"
	"slices"
	"sync"

	"github.com/go-vercel/sandbox/observe"
)

// Events is an [observe.Observer] that records ended events.
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

// Ended returns the ended events of the given kinds, or of all kinds, in the order of their ends.
func (r *Events) Ended(kinds ...observe.Kind) []observe.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.ended), func(e observe.Event) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, e.Kind)
	})
}

// Open returns the number of events that have begun but not ended.
func (r *Events) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun - len(r.ended)
}
