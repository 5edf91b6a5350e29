package sandboxtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestHidden: sandboxes see a shown folder of a home, except for its hidden parts.
func TestHidden(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(home, ".sandbox-test-hidden-") //nolint:usetesting // sandboxes don't see t.TempDir
	if err != nil {
		needs.Other(t, "no home to have secrets in: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	for _, name := range []string{"tool", "keys/key"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644)) //nolint:gosec // for sandboxes
	}
	_, err = sandboxtest.NewServer(&sandboxtest.Options{Hidden: []string{filepath.Join(dir, "none")}})
	require.ErrorContains(t, err, "hiding "+dir)
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{
		Mode: sandboxtest.Namespace, HomeFolders: []string{filepath.Base(dir)}, Hidden: []string{filepath.Join(dir, "keys")},
	})
	if err != nil {
		needs.Missing(t, "namespace mode: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	c := newRaw(t, srv)
	res := c.run(c.create(nil).Session.ID, obj{"command": "sh", "args": []string{"-c", `cat "$1/tool" "$1/keys/key" 2>/dev/null`, "sh", dir}, "sudo": true})
	if res.stdout == "" {
		needs.Other(t, "sandboxes don't show the home of this user")
	}
	assert.Equal(t, "tool", res.stdout)
}
