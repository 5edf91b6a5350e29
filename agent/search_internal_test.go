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

// FuzzGrepOutput: what stands for grep in the sandbox is read in the same way
// however it comes in pieces, and in little memory.
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
