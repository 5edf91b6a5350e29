package cli

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOpenLocal changes a file between its listing and its upload.
func TestOpenLocal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("tree/sub"), 0o755))
	require.NoError(t, os.WriteFile(at("outside"), []byte("secret"), 0o600))
	require.NoError(t, os.WriteFile(at("tree/ignored"), []byte("secret"), 0o600))
	require.NoError(t, os.WriteFile(at("tree/grown"), []byte("12345678"), 0o600))
	require.NoError(t, os.WriteFile(at("tree/shrunk"), []byte("1"), 0o600))
	require.NoError(t, os.Symlink("ignored", at("tree/link")))
	require.NoError(t, os.Symlink(at("outside"), at("tree/out")))
	require.NoError(t, os.Symlink(dir, at("tree/up")))
	root, err := os.OpenRoot(at("tree"))
	require.NoError(t, err)
	defer root.Close()
	s := &syncing{root: root}
	for _, name := range []string{"link", "out", "up/outside", "sub", "gone", "../outside"} {
		_, err := s.openLocal(name, 6)
		assert.Error(t, err, name)
	}
	_, err = s.openLocal("shrunk", 6)
	require.ErrorIs(t, err, errChanged)
	f, err := s.openLocal("grown", 6)
	require.NoError(t, err)
	defer f.Close()
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, "123456", string(data), "as it was listed")
}
