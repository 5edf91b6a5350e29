package sandbox

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
