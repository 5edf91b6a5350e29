package agent

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGivenUpSearch: the search of a long line by a slow pattern ends with the
// call. It would last for minutes.
func TestGivenUpSearch(t *testing.T) {
	t.Parallel()
	re, err := compile(strings.Repeat("(?:x?){240}", 9) + "y")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &boundReader{Reader: bytes.NewReader(bytes.Repeat([]byte("x"), maxSearched)), ctx: ctx}
	assert.False(t, re.MatchReader(r))
	assert.Greater(t, r.Len(), maxSearched-2*maxLooked, "it has read on")
}
