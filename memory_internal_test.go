package sandbox

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestMemory: what was seen is remembered for a limited time, and up to a limit,
// at which the oldest goes.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		assert.False(t, m.has("first"))
		m.add("first")
		time.Sleep(memoryTime)
		assert.True(t, m.has("first"))
		time.Sleep(time.Nanosecond)
		assert.False(t, m.has("first"))
		for i := range 2 * maxMemory {
			time.Sleep(time.Nanosecond)
			m.add(strconv.Itoa(i))
		}
		assert.Len(t, m.since, maxMemory)
		assert.False(t, m.has(strconv.Itoa(maxMemory-1)))
		assert.True(t, m.has(strconv.Itoa(maxMemory)))
	})
}
