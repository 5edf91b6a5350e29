package api

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestOwners: the sandbox of a session stays known as long as the session is used, however many
// others there are.
func TestOwners(t *testing.T) {
	t.Parallel()
	var o owners
	assert.Empty(t, o.lookup("used"))
	o.learn("used", "box")
	o.learn("unused", "old")
	for i := range 3 * maxOwners {
		o.learn(fmt.Sprint(i), "other")
		if i%1000 == 0 {
			assert.Equal(t, "box", o.lookup("used"))
		}
	}
	assert.Empty(t, o.lookup("unused"))
	assert.LessOrEqual(t, len(o.recent)+len(o.older), 2*maxOwners)
}
