//go:build unix

package mirror

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
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

// tarMeanwhile is a tar that does something in the directory once some of the
// archive has been read. It waits in a full pipe until then.
const tarMeanwhile = `#!/bin/bash
/usr/bin/tar "$@" | { head -c 20000; . /vercel/during; cat; }
exit "${PIPESTATUS[0]}"
`

// TestDownloadInUse: what programs leave alone arrives, a file that was in use is
// copied again, and one that is in use each time is named, without zeros that it
// never had.
func TestDownloadInUse(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	if srv.Mode() == sandboxtest.Folder {
		needs.Missing(t, "namespaces: tar is replaced in a folder of the sandbox")
	}
	client := srv.Client()
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Timeout: time.Hour, Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin"}})
	require.NoError(t, err)
	p := &pair{t, client, sb, t.TempDir()}
	big := strings.Repeat("0123456789abcdef", 200_000)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "/vercel/bin/tar", []byte(tarMeanwhile), 0o755))
	for _, row := range []struct {
		during        string
		changed, gone []string
	}{
		{"[ -e ../once ] || { touch ../once; echo more >> aa; }", nil, nil},
		{"[ -e ../once ] || { touch ../once; : > aa; }", nil, nil},
		{"[ -e ../once ] || { touch ../once; rm zz; }", nil, nil},
		{"echo more >> aa", []string{"aa"}, nil},
		{"n=$(cat ../once 2>/dev/null); echo $((n+1)) >../once; head -c $((3000000-n)) /dev/zero | tr '\\0' x >aa", []string{"aa"}, nil},
	} {
		p.sh("rm -rf app once")
		require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{
			{Path: "app/aa", Content: []byte(big)}, {Path: "app/mm", Content: []byte("m")}, {Path: "app/zz", Content: []byte(big)},
			{Path: "/vercel/during", Content: []byte(row.during)},
		}, nil))
		here := t.TempDir()
		write(t, here, "old", "old")
		c, err := Download(t.Context(), sb, "app", here, &Options{Delete: true})
		if row.changed == nil {
			require.NoError(t, err, row.during)
			want, err := sb.FS().ReadFile(t.Context(), "app/aa")
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(here, "aa"))
			require.NoError(t, err)
			assert.True(t, bytes.Equal(want, got), "%s: %d bytes for %d", row.during, len(got), len(want))
		} else {
			var inUse *sandbox.ChangedError
			require.ErrorAs(t, err, &inUse, row.during)
			assert.Equal(t, row.changed, inUse.Changed, row.during)
			assert.Equal(t, row.gone, inUse.Gone, row.during)
		}
		assert.Contains(t, c.Write, "mm", row.during)
		assert.Equal(t, []string{"old"}, c.Delete, row.during)
		assert.NoFileExists(t, filepath.Join(here, "old"))
		got, err := os.ReadFile(filepath.Join(here, "aa"))
		require.NoError(t, err)
		assert.Zero(t, bytes.Count(got, []byte{0}), "%s: zeros that no program wrote", row.during)
	}
}
