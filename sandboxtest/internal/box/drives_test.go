package box

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// versions lists the stored versions of a drive.
func versions(t *testing.T, h *Host, id string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(h.drives.dirOf(id))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestDriveVersions: a sandbox sees a drive as it was when the sandbox was created,
// whatever happens to the drive. A version that no sandbox uses is removed.
func TestDriveVersions(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		write := func(script string) {
			b := newBox(t, h, backend.Config{Mounts: []backend.Mount{{Path: "/data", Drive: "d", Keep: true}}})
			sh(t, b, script)
			require.NoError(t, b.Remove())
		}
		read := func() *Box { return newBox(t, h, backend.Config{Mounts: []backend.Mount{{Path: "/data", Drive: "d"}}}) }
		empty := read()
		write("echo one > /data/file; mkdir /data/dir; echo x > /data/dir/x; ln -s file /data/link; chmod 750 /data/dir")
		one := read()
		write("echo two > /data/file; rm -r /data/dir; echo new > /data/new")
		two := read()

		assert.Empty(t, sh(t, empty, "ls /data"))
		assert.Equal(t, "one\n750\nx", sh(t, one, "cat /data/link; stat -c %a /data/dir; cat /data/dir/x"))
		assert.Equal(t, "two\nfile\nlink\nnew", sh(t, two, "cat /data/link; ls /data"))
		// Their changes are their own, and remain after a restart.
		sh(t, one, "echo mine > /data/file; rm -r /data/dir; mkdir /data/dir; echo y > /data/dir/y")
		require.NoError(t, one.Stop())
		require.NoError(t, one.Restart())
		assert.Equal(t, "mine\ny", sh(t, one, "cat /data/file; ls /data/dir"))
		assert.Equal(t, "two", sh(t, two, "cat /data/file"))

		assert.Equal(t, []string{"0", "1", "2"}, versions(t, h, "d"))
		require.NoError(t, one.Remove())
		assert.Equal(t, []string{"0", "2"}, versions(t, h, "d"), "no sandbox uses version 1 any more")
		require.NoError(t, h.RemoveDrive("d"))
		assert.Equal(t, "two\nfile\nlink\nnew", sh(t, two, "cat /data/link; ls /data"))
		for _, b := range []*Box{empty, two} {
			require.NoError(t, b.Remove())
		}
		assert.NoDirExists(t, h.drives.dirOf("d"))
	})
}

// TestDrivesAfterKill: files that a killed run left next to the drives' content
// are removed, and so are unknown drives.
func TestDrivesAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDrives(dir)
	for _, name := range []string{"kept/3", "kept/11", "unknown/0"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "file"), []byte(name), 0o644))
	}
	require.NoError(t, d.keepOnly([]string{"kept", "none"}))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	held, err := d.hold("kept", func(string) error { return nil })
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(held, "file"))
	require.NoError(t, err)
	assert.Equal(t, "kept/11", string(data))
	assert.NoDirExists(t, filepath.Join(dir, "kept/3"))
}
