package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSyncedDirectories tells which of two is the one in a sandbox.
func TestSyncedDirectories(t *testing.T) {
	t.Parallel()
	c, here := &syncCommand{}, t.TempDir()
	from, to, err := c.locations([]string{here, "web:app"})
	require.NoError(t, err)
	assert.Equal(t, []location{{path: here}, {sandbox: "web", path: "app"}}, []location{from, to})
	from, to, err = c.locations([]string{"web:app", "./new"})
	require.NoError(t, err)
	assert.Equal(t, []location{{sandbox: "web", path: "app"}, {path: "./new"}}, []location{from, to})
	for _, args := range [][]string{
		{here, here}, {"a:x", "b:y"}, {"-", "web:app"}, {"web:app", "-"}, {here + "/nosuch", "web:app"}, {"web:~", here}, {here, "a b:x"},
	} {
		_, _, err := c.locations(args)
		var usage *usageError
		assert.ErrorAs(t, err, &usage, args)
	}
}
