//go:build unix

package mirror

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLateFile changes files between their listing and their upload.
func TestLateFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("tree/sub"), 0o755))
	for name, text := range map[string]string{"outside": "secret", "tree/ignored": "secret", "tree/grown": "12345678", "tree/shrunk": "1"} {
		require.NoError(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("ignored", at("tree/link")))
	require.NoError(t, os.Symlink(at("outside"), at("tree/out")))
	require.NoError(t, os.Symlink(dir, at("tree/up")))
	require.NoError(t, syscall.Mkfifo(at("tree/fifo"), 0o600))
	root, err := os.OpenRoot(at("tree"))
	require.NoError(t, err)
	defer root.Close()
	for name, changed := range map[string]bool{
		"link": true, "out": true, "sub": true, "gone": true, "grown/x": true, "fifo": true, "shrunk": true, "up/outside": false, "../outside": false,
	} {
		_, err := io.ReadAll(listedFile(root, name, 6))
		require.Error(t, err, name)
		assert.Equal(t, changed, errors.Is(err, errChanged), "%s: %v", name, err)
	}
	f := listedFile(root, "grown", 6)
	for range 2 {
		data, err := io.ReadAll(f)
		require.NoError(t, err)
		assert.Equal(t, "123456", string(data), "as it was listed")
		assert.Nil(t, f.file, "it is left open")
		_, err = f.Seek(0, io.SeekStart)
		require.NoError(t, err)
	}
	_, err = f.Seek(4, io.SeekStart)
	require.NoError(t, err)
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, "56", string(data))
	_, err = f.Seek(-1, io.SeekStart)
	require.Error(t, err)
}
