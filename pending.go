package sandbox

import (
	"sync"
	"time"
)

// pending remembers by a key what is on its way, or has yet to be done, until it
// shows: for a limited time, and no more than maxPending of it. It is safe for
// concurrent use.
type pending[V any] struct {
	keep time.Duration // zero: a day, longer than any session lasts
	mu   sync.Mutex
	// entries are by key. They are few: each stands for a response that was lost,
	// or a hook that failed.
	entries map[string]pendingEntry[V]
}

type pendingEntry[V any] struct {
	since time.Time
	value V
}

const maxPending = 1000

// add remembers a value, unless there is one for the key. At the limit the
// oldest is forgotten.
func (p *pending[V]) add(key string, value V) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries == nil {
		p.entries = map[string]pendingEntry[V]{}
	}
	oldest := key
	for k, e := range p.entries {
		if p.expired(e) {
			delete(p.entries, k)
		} else if o, ok := p.entries[oldest]; !ok || e.since.Before(o.since) {
			oldest = k
		}
	}
	if _, known := p.entries[key]; known {
		return
	}
	if len(p.entries) >= maxPending {
		delete(p.entries, oldest)
	}
	p.entries[key] = pendingEntry[V]{time.Now(), value}
}

func (p *pending[V]) expired(e pendingEntry[V]) bool {
	keep := p.keep
	if keep == 0 {
		keep = 24 * time.Hour
	}
	return time.Since(e.since) > keep
}

// take reports whether there is a value for the key, and forgets it.
func (p *pending[V]) take(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[key]
	delete(p.entries, key)
	return ok && !p.expired(e)
}

// change calls fn with the value of the key, if there is one, to change it.
func (p *pending[V]) change(key string, fn func(*V)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.entries[key]; ok && !p.expired(e) {
		fn(&e.value)
		p.entries[key] = e
	}
}

// lateLimit is how long a request that was given up is expected to arrive
// nevertheless.
const lateLimit = 5 * time.Minute

// lateStart is a request to resume a sandbox whose response was lost. A session
// that it has started, even after the response to a retry or after the caller has
// given up, would otherwise be taken for somebody else's, whose OnResume has run.
type lateStart struct {
	since time.Time // when the first of the requests began
	// handled is the last session that was taken for one of ours.
	handled string
}
