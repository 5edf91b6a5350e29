package durable_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

func TestDir(t *testing.T) {
	t.Parallel()
	durabletest.TestStore(t, durable.Dir(filepath.Join(t.TempDir(), "made")))
}

// TestDirCleans: what a killed writer has left goes when the object is written
// after all; what another one is about to write stays.
func TestDirCleans(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store := durable.Dir(folder)
	write := func(key string) durable.OutputWriter {
		w, err := store.Create(t.Context(), key)
		require.NoError(t, err)
		_, err = w.Write([]byte(key))
		require.NoError(t, err)
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	files := func() (names []string) {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	write("a") // and never again
	old := time.Now().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(folder, files()[0]), old, old))
	write("a") // has begun
	require.NoError(t, write("b").Commit())
	assert.Len(t, files(), 3, "those of another key are not looked at")
	require.NoError(t, write("a").Commit())
	assert.Len(t, files(), 3, "a, b, and the one that has begun")
}

// TestDirCommitCloses: the file is closed before it gets its name.
func TestDirCommitCloses(t *testing.T) {
	t.Parallel()
	w, err := durable.Dir(t.TempDir()).Create(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	_, err = w.Write([]byte("late"))
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
}
