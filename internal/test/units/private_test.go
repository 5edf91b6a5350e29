package units_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/private"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestPrivateFolder: a private folder belongs to this user, and contains nothing that
// another user could have created.
func TestPrivateFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		needs.Other(t, "on Windows, a user's folders are private because of their location")
	}
	const stranger = 65534
	root := os.Geteuid() == 0
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		root bool   // only root can create this
		want string // the expected text in the error
	}{
		"missing":                     {make: func(*testing.T, string) {}},
		"its own, readable by others": {make: func(t *testing.T, path string) { folder(t, path, 0o755, "a") }},
		"its own, shared, empty":      {make: func(t *testing.T, path string) { folder(t, path, 0o777) }},
		"its own, writable by others": {
			make: func(t *testing.T, path string) { folder(t, path, 0o777, "token") }, want: "token",
		},
		"its own, writable by the group": {
			make: func(t *testing.T, path string) { folder(t, path, 0o770, "token") }, want: "token",
		},
		"another user's": {root: true, want: "not a directory of this user", make: func(t *testing.T, path string) {
			folder(t, path, 0o777)
			require.NoError(t, os.Chown(path, stranger, stranger))
		}},
		"a link": {want: "is a link", make: func(t *testing.T, path string) {
			folder(t, path+"-there", 0o700)
			require.NoError(t, os.Symlink(path+"-there", path))
		}},
		"a file": {want: "not a directory", make: func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && !root {
				needs.Other(t, "only root can change the owner of a folder")
			}
			path := filepath.Join(t.TempDir(), "folder")
			c.make(t, path)
			err := private.Dir(path)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, os.ModeDir|0o700, info.Mode())
		})
	}
	if !root {
		require.ErrorContains(t, private.Dir("/"), "not a directory of this user")
	}
}

func folder(t *testing.T, path string, mode os.FileMode, files ...string) {
	require.NoError(t, os.Mkdir(path, 0o700))
	for _, name := range files {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	require.NoError(t, os.Chmod(path, mode))
}
