//go:build unix

package box

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/gofrs/flock"
)

// TestRemoveAll removes a tree with read-only directories, and changes nothing behind a
// link.
func TestRemoveAll(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	outside, dir := filepath.Join(base, "outside"), filepath.Join(base, "dir")
	require.NoError(t, os.Mkdir(outside, 0o555))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	require.NoError(t, os.Symlink("../../outside", filepath.Join(dir, "a", "link")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a", "b"), 0))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o500))
	require.NoError(t, backend.RemoveAll(dir))
	assert.NoDirExists(t, dir)
	info, err := os.Stat(outside)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o555), info.Mode().Perm())
}

// TestAbandonedDirectoriesOfOthers: in a shared folder, a directory that another user has
// created is not removed, even if its name looks like ours.
func TestAbandonedDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		needs.Missing(t, "root, to give a directory to another user")
	}
	parent := t.TempDir()
	for name, owner := range map[string]int{"prefix-mine": 0, "prefix-other": 65534} {
		dir := filepath.Join(parent, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		lock := flock.New(filepath.Join(dir, lockName))
		require.NoError(t, lock.Lock())
		require.NoError(t, lock.Unlock())
		require.NoError(t, os.Chown(dir, owner, owner))
	}
	removeAbandoned(parent, "prefix-")
	assert.NoDirExists(t, filepath.Join(parent, "prefix-mine"))
	assert.DirExists(t, filepath.Join(parent, "prefix-other"))
}

// TestAbandonedDirectoriesWhileClosing: a process removes abandoned directories while the
// owner of a directory is removing it.
func TestAbandonedDirectoriesWhileClosing(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir, unlock, err := TempDir(parent, "prefix-")
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, claimName)))
	_, own := lockedDirs.LoadAndDelete(dir) // as if another process had locked it
	require.True(t, own)
	removeAbandoned(parent, "prefix-")
	assert.NoFileExists(t, filepath.Join(dir, claimName), "a new file would keep the owner from removing the directory")
	assert.DirExists(t, dir)
	require.NoError(t, unlock())
	removeAbandoned(parent, "prefix-")
	assert.NoDirExists(t, dir, "the owner has died meanwhile")
}
