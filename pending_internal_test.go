package sandbox

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestPending: what is on its way is remembered once for each key, for a limited
// time, and up to a limit, at which the oldest goes.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pending[int]{keep: time.Hour}
		p.add("first", 1)
		p.add("first", 2)
		p.change("first", func(v *int) { assert.Equal(t, 1, *v); *v = 3 })
		p.change("first", func(v *int) { assert.Equal(t, 3, *v) })
		p.change("unknown", func(*int) { assert.Fail(t, "there is none") })
		assert.True(t, p.take("first"))
		assert.False(t, p.take("first"))

		p.add("first", 1)
		time.Sleep(time.Hour + 1)
		p.change("first", func(*int) { assert.Fail(t, "it has expired") })
		p.add("first", 4)
		p.change("first", func(v *int) { assert.Equal(t, 4, *v) })

		for i := range 2 * maxPending {
			time.Sleep(time.Nanosecond)
			p.add(strconv.Itoa(i), i)
		}
		assert.Len(t, p.entries, maxPending)
		assert.False(t, p.take("first"))
		assert.False(t, p.take(strconv.Itoa(maxPending-1)))
		assert.True(t, p.take(strconv.Itoa(maxPending)))
	})
	var p pending[int]
	assert.False(t, p.take("x"))
}
