//go:build darwin || linux

package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/localfile"
)

// TestSweepOfTempFiles: Sweep removes only temporary files, and only if no process holds
// them.
func TestSweepOfTempFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	held, left := localfile.TempName(), localfile.TempName()
	for _, name := range []string{held, left, ".download-other", "file"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	link, sub := localfile.TempName(), localfile.TempName()
	require.NoError(t, os.Symlink("file", filepath.Join(dir, link)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
	f, err := os.Open(filepath.Join(dir, held))
	require.NoError(t, err)
	release, ok := localfile.Hold(f)
	require.True(t, ok)
	require.NoError(t, f.Close())
	localfile.Sweep(root)
	assert.NoFileExists(t, filepath.Join(dir, left))
	for _, name := range []string{held, ".download-other", "file", link, sub} {
		_, err := os.Lstat(filepath.Join(dir, name))
		assert.NoError(t, err, name)
	}
	release()
	localfile.Sweep(root)
	assert.NoFileExists(t, filepath.Join(dir, held))
}
