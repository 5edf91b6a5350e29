package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
)

// TestExpiringDir: the next write removes expired outputs and the folders that become
// empty, and nothing else.
func TestExpiringDir(t *testing.T) {
	path := t.TempDir()
	write := func(store durable.OutputStore, key string) {
		t.Helper()
		w, err := store.Create(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, w.Commit())
		require.NoError(t, w.Close())
	}
	text := durable.NeededPrefix + "old/commands/a"
	for _, key := range []string{"old/cmd-1", "old/sub/cmd-2", text, "mixed/cmd-1", "mixed/cmd-2", "new/cmd-1"} {
		write(durable.Dir(path), key)
	}
	past := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{"old/cmd-1", "old/sub/cmd-2", "old/sub", "old", "mixed/cmd-1", "mixed", text} {
		require.NoError(t, os.Chtimes(filepath.Join(path, name), past, past))
	}
	// The running command wrote its last output two hours ago.
	silent, err := durable.Dir(path).Create(t.Context(), "silent/cmd-1")
	require.NoError(t, err)
	defer silent.Close()
	unfinished, err := filepath.Glob(filepath.Join(path, "silent", ".new-*"))
	require.NoError(t, err)
	require.Len(t, unfinished, 1)
	require.NoError(t, os.Chtimes(unfinished[0], past, past))
	outside := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(outside, nil, 0o600))
	require.NoError(t, os.Chtimes(outside, past, past))
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(path, "link")); err != nil {
		t.Log("no symbolic links here:", err)
	}
	there := func() (names []string) {
		require.NoError(t, fs.WalkDir(os.DirFS(path), ".", func(name string, d fs.DirEntry, err error) error {
			if d.Type().IsRegular() {
				names = append(names, name)
			}
			return err
		}))
		return names
	}
	write(durable.ExpiringDir(path, 0), "kept/cmd-1")
	require.Len(t, there(), 8, "an age of zero keeps everything")
	write(durable.ExpiringDir(path, time.Hour), "new/cmd-2")
	require.NoError(t, silent.Commit())
	assert.Equal(t, []string{"kept/cmd-1", "mixed/cmd-2", "new/cmd-1", "new/cmd-2", text, "silent/cmd-1"}, there())
	assert.FileExists(t, outside)
	_, err = durable.Dir(path).Open(t.Context(), "mixed/cmd-1")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.NoDirExists(t, filepath.Join(path, "old"))
}
