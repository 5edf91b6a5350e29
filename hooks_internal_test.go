package sandbox

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// SetHookLease shortens the lease of hooks for a process of a test.
func SetHookLease(d time.Duration) { hookLease = d }

// TestMemory: what a client has seen does not grow for ever, and the last is known.
func TestMemory(t *testing.T) {
	var m memory
	assert.False(t, m.has("a"))
	for i := range 2 * maxMemory {
		m.add(strconv.Itoa(i))
		assert.True(t, m.has(strconv.Itoa(i)))
	}
	assert.Len(t, m.seen, maxMemory)
}
