package sandbox

import (
	"sync"
	"time"
)

// memory is a set of what a client has seen, for limited time, and no more than
// maxMemory of it: forgetting costs a request. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	since map[string]time.Time
}

const (
	maxMemory  = 1000
	memoryTime = 24 * time.Hour // longer than any session lasts
)

// add remembers a key. At the limit the oldest is forgotten.
func (m *memory) add(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since = map[string]time.Time{}
	}
	oldest := key
	for k, since := range m.since {
		if time.Since(since) > memoryTime {
			delete(m.since, k)
		} else if first, ok := m.since[oldest]; !ok || since.Before(first) {
			oldest = k
		}
	}
	if _, known := m.since[key]; !known && len(m.since) >= maxMemory {
		delete(m.since, oldest)
	}
	m.since[key] = time.Now()
}

// has reports whether a key is remembered.
func (m *memory) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, ok := m.since[key]
	return ok && time.Since(since) <= memoryTime
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
