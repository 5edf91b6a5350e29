package screen

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInput: standard input is read to its end, and a wait for more ends with the
// context.
func TestInput(t *testing.T) {
	t.Parallel()
	open := func(ctx context.Context) (io.Reader, *os.File) {
		in, w, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() {
			w.Close()
			in.Close()
		})
		s := New(nil)
		s.In = in
		return s.Input(ctx), w
	}
	r, w := open(t.Context())
	_, err := w.WriteString("all of it")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "all of it", string(text))

	s := New(nil)
	s.In, err = os.Open(t.TempDir()) // which can't be read
	require.NoError(t, err)
	defer s.In.Close()
	_, err = io.ReadAll(s.Input(t.Context()))
	require.Error(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	r, _ = open(ctx)
	cancel()
	_, err = io.ReadAll(r)
	assert.ErrorIs(t, err, context.Canceled)
}
