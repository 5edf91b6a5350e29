package sandbox

import "sync"

// memory is a set of what a client has seen, and no more than maxMemory of it:
// forgetting costs a request. It is safe for concurrent use.
type memory struct {
	mu   sync.Mutex
	seen map[string]bool
}

const maxMemory = 1000

// add remembers a key. At the limit another one is forgotten.
func (m *memory) add(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[string]bool{}
	}
	for other := range m.seen {
		if len(m.seen) < maxMemory {
			break
		}
		delete(m.seen, other)
	}
	m.seen[key] = true
}

// has reports whether a key is remembered.
func (m *memory) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[key]
}

// flights are what goroutines of a client wait for that another one of them does.
type flights struct {
	mu    sync.Mutex
	under map[string]*flight
}

type flight struct {
	done chan struct{}
	// err is for those that wait. It is nil also when they are to try themselves.
	err error
}

// join returns what is on its way for a key; if it is mine, it was not before,
// and the caller lands it.
func (f *flights) join(key string) (on *flight, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on = f.under[key]; on != nil {
		return on, false
	}
	if f.under == nil {
		f.under = map[string]*flight{}
	}
	on = &flight{done: make(chan struct{})}
	f.under[key] = on
	return on, true
}

func (f *flights) land(key string, on *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.under, key)
	close(on.done)
}
