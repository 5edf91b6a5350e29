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
