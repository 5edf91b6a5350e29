package client_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/needs"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// walkedNames returns the names that WalkDir visits, and checks that fs.WalkDir visits the
// same.
func walkedNames(t *testing.T, f *sandbox.FileSystem, root string) (list []string) {
	t.Helper()
	type visit struct {
		mode fs.FileMode
		size int64
	}
	walk := func(walk func(fn fs.WalkDirFunc) error) (names []string, seen map[string]visit) {
		seen = map[string]visit{}
		require.NoError(t, walk(func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				names = append(names, name)
				seen[name] = visit{info.Mode(), info.Size()}
			}
			return err
		}))
		return names, seen
	}
	list, seen := walk(func(fn fs.WalkDirFunc) error { return f.WalkDir(t.Context(), root, fn) })
	plain, also := walk(func(fn fs.WalkDirFunc) error { return fs.WalkDir(f.IOFS(t.Context(), root), ".", fn) })
	require.Equal(t, plain, list)
	require.Equal(t, also, seen)
	return list
}

// TestWalkDirCosts: WalkDir of 100 files in 10 directories takes one request.
func TestWalkDirCosts(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := start(t, nil)
	var files []sandbox.File
	want := map[string]bool{".": true}
	for i := range 100 {
		name := fmt.Sprintf("d%02d/f%03d", i%10, i)
		files = append(files, sandbox.File{Path: "tree/" + name, Content: []byte(name)})
		for ; name != "."; name = path.Dir(name) {
			want[name] = true
		}
	}
	require.NoError(t, sb.WriteFiles(t.Context(), files, nil))
	begin := len(srv.Requests())
	list := 0
	require.NoError(t, sb.FS().WalkDir(t.Context(), "tree", func(name string, d fs.DirEntry, err error) error {
		list++
		assert.True(t, want[name], name)
		_, infoErr := d.Info()
		return errors.Join(err, infoErr)
	}))
	assert.Len(t, want, list)
	assert.Equal(t, 1, len(srv.Requests())-begin)
	begin = len(srv.Requests())
	require.NoError(t, fs.WalkDir(sb.FS().IOFS(t.Context(), "tree"), ".", func(_ string, _ fs.DirEntry, err error) error { return err }))
	assert.Equal(t, 12, len(srv.Requests())-begin, "one request for each directory, and one for the type of the root")
}

// TestWalkDirFails: as with fs.WalkDir, fn receives the error about a missing root.
func TestWalkDirFails(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	f := sb.FS()
	require.NoError(t, f.WriteFile(t.Context(), "file", nil, 0o644))
	require.NoError(t, f.MkdirAll(t.Context(), "d/skipped/x", 0o755))
	require.NoError(t, f.MkdirAll(t.Context(), "d/z", 0o755))
	var list []string
	fn := func(name string, d fs.DirEntry, err error) error {
		list = append(list, name)
		switch name {
		case "skipped":
			return fs.SkipDir
		case "z":
			return fs.SkipAll
		}
		return err
	}
	assert.ErrorIs(t, f.WalkDir(t.Context(), "none", fn), fs.ErrNotExist)
	assert.ErrorIs(t, f.WalkDir(t.Context(), "a\x00b", fn), syscall.EINVAL)
	require.NoError(t, f.WalkDir(t.Context(), "file", fn))
	require.NoError(t, f.WalkDir(t.Context(), "d", fn))
	assert.Equal(t, []string{".", ".", ".", ".", "skipped", "z"}, list)
}

// TestWalkDirOddTrees: if one request can't list the whole tree, WalkDir lists each
// directory separately and reports the errors.
func TestWalkDirOddTrees(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx := t.Context()
	run := func(script string) {
		done, err := sb.RunCommand(ctx, "bash", []string{"-c", script}, nil)
		require.NoError(t, err)
		require.Zero(t, done.ExitCode)
	}
	t.Run("a name is not UTF-8", func(t *testing.T) {
		run(`mkdir -p odd/a odd/b; touch odd/a/$'\xff' odd/b/x`)
		assert.Equal(t, []string{".", "a", "a/\xff", "b", "b/x"}, walkedNames(t, sb.FS(), "odd"))
	})
	t.Run("links", func(t *testing.T) {
		run(`mkdir -p links/a/b; touch links/a/b/x; ln -s a links/l`)
		fsys := sb.FS().IOFS(ctx, "links")
		assert.Equal(t, []string{".", "a", "a/b", "a/b/x", "l"}, walkedNames(t, sb.FS(), "links"))
		list, err := fs.ReadDir(fsys, "l/b")
		require.NoError(t, err)
		assert.Len(t, list, 1)
	})
	t.Run("more files than one request lists", func(t *testing.T) {
		needs.Long(t, "5,400 files")
		run(`mkdir -p many/{a,b,c}/{d,e}; for d in many/*/*; do (cd $d && touch $(seq 900)); done`)
		assert.Len(t, walkedNames(t, sb.FS(), "many"), 1+3+6+6*900)
	})
	t.Run("a directory may not be read", func(t *testing.T) {
		run(`mkdir -p closed/a closed/b closed/c; touch closed/a/x closed/c/x; chmod 0 closed/b; id -u`)
		var failed []string
		var list []string
		require.NoError(t, sb.FS().WalkDir(ctx, "closed", func(name string, _ fs.DirEntry, err error) error {
			list = append(list, name)
			if err != nil {
				failed = append(failed, name)
			}
			return nil
		}))
		if _, err := sb.FS().ReadDir(ctx, "closed/b"); err == nil {
			assert.Empty(t, failed) // root may read each directory
			return
		}
		assert.Equal(t, []string{"b"}, failed)
		assert.Contains(t, list, "c/x")
	})
}

// TestIOFSReadsOneDirectory: fs.ReadDir does not list the whole tree.
func TestIOFSReadsOneDirectory(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := start(t, nil)
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "t/a/b/x"}}, nil))
	_, err := fs.ReadDir(sb.FS().IOFS(t.Context(), "t"), ".")
	require.NoError(t, err)
	requests := srv.Requests()
	last := requests[len(requests)-1]
	assert.Equal(t, sandboxtest.RunCommand, last.Operation)
	assert.Contains(t, string(last.Body), "maxdepth")
}
