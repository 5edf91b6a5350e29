package preview

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReplayedBody: each attempt gets the same bytes, however many the previous one has
// read.
func TestReplayedBody(t *testing.T) {
	t.Parallel()
	sent := make([]byte, 100<<10)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	body := &replayBody{src: io.NopCloser(bytes.NewReader(sent)), reading: make(chan struct{}, 1)}
	for _, read := range []int{1, 40_001, 70_000, 70_000, 3} {
		got := make([]byte, read)
		_, err := io.ReadFull(body.attempt(), got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(sent[:read], got), "%d bytes", read)
	}
	got, err := io.ReadAll(body.attempt())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(sent, got))
}
