//go:build unix

package mirror

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/needs"
)

// turning is a tree in which something happens when a name is read.
type turning struct {
	fs.FS
	name string
	turn func()
}

func (f turning) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == f.name {
		f.turn()
	}
	return fs.ReadDir(f.FS, name)
}

func (f turning) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(f.FS, name) }
func (f turning) ReadLink(name string) (string, error)   { return fs.ReadLink(f.FS, name) }

// TestTurning puts something else in the place of a directory while it is listed.
func TestTurning(t *testing.T) {
	t.Parallel()
	for what, put := range map[string]func(name string) error{
		"file": func(name string) error { return os.WriteFile(name, nil, 0o600) }, "nothing": func(string) error { return nil },
	} {
		dir := t.TempDir()
		write(t, dir, "a/x", "")
		_, _, err := listLocal(turning{os.DirFS(dir), "a", func() {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "a")))
			require.NoError(t, put(filepath.Join(dir, "a")))
		}}, nil, nil)
		require.ErrorIs(t, err, errChanged, what)
	}
}

// TestWatchedBeforeRead: what comes into a directory once it is watched is either
// listed, or noticed.
func TestWatchedBeforeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a/b/x", "")
	write(t, dir, "a/.gitignore", "left\n")
	write(t, dir, "a/left/x", "")
	var entered []string
	tree, _, err := listLocal(os.DirFS(dir), nil, func(name string) error {
		entered = append(entered, name)
		write(t, dir, name+"/late", "")
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, []string{".", "a", "a/b"}, entered)
	for _, name := range []string{"late", "a/late", "a/b/late"} {
		assert.Contains(t, tree, name)
	}
}

func TestSameTime(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	for _, test := range []struct {
		a, b time.Duration
		same bool
	}{{0, 0, true}, {0, 999_999_999, true}, {5e6, 5e6 + 10, true}, {5e6, 6e6, false}, {5e6, time.Second + 5e6, false}, {0, time.Second, false}} {
		assert.Equal(t, test.same, sameTime(at.Add(test.a), at.Add(test.b)), test)
		assert.Equal(t, test.same, sameTime(at.Add(test.b), at.Add(test.a)), test)
	}
}

// TestPackScript: a file that changes while it is packed, which tar says by its
// exit code 1, is no failure; whatever else it says is.
func TestPackScript(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash", "tar", "gzip")
	for code, want := range map[string]bool{"0": true, "1": true, "2": false, "44": false} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tar"), []byte("#!/bin/sh\nexit "+code+"\n"), 0o755))
		cmd := exec.Command("bash", "-c", packScript, "bash", dir)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		assert.Equal(t, want, cmd.Run() == nil, code)
	}
}
