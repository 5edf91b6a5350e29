package agent

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCanceledSearch: cancellation ends a search of a long line with a slow pattern, which
// would take minutes.
func TestCanceledSearch(t *testing.T) {
	t.Parallel()
	re, err := compilePattern(strings.Repeat("(?:x?){240}", 9) + "y")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &cancelableReader{Reader: bytes.NewReader(bytes.Repeat([]byte("x"), maxSearched)), ctx: ctx}
	assert.False(t, re.MatchReader(r))
	assert.Greater(t, r.Len(), maxSearched-2*maxLooked, "the search continues after the cancellation")
}

// FuzzGrepOutput: parsing the output of any program does not depend on how the output is
// split into pieces, and needs little memory.
func FuzzGrepOutput(f *testing.F) {
	f.Add([]byte("./a\x001:x\n./b\x0022:y\n"), 3)
	f.Add([]byte("a\x00-1:x\n"), 1)
	f.Add([]byte("a\x0099999999999999999999:x\nno"), 1)
	f.Add(bytes.Repeat([]byte("x"), 3*maxLooked), 100)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(1, size)
		read := func(size int) (found []match, err error) {
			g := &grepOutput{full: func() bool { return len(found) >= 10 }, found: func(m match) { found = append(found, m) }}
			for rest := data; len(rest) > 0 && g.err == nil; rest = rest[min(size, len(rest)):] {
				_, _ = g.Write(rest[:min(size, len(rest))])
			}
			assert.LessOrEqual(t, len(g.line), maxLooked)
			return found, g.err
		}
		whole, wholeErr := read(len(data) + 1)
		pieces, piecesErr := read(size)
		assert.Equal(t, whole, pieces)
		assert.Equal(t, wholeErr, piecesErr)
		assert.LessOrEqual(t, len(whole), 10)
		for _, m := range whole {
			assert.NotContains(t, string(m.text), "\n")
		}
	})
}
