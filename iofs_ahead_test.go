package sandbox_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"testing"
	"testing/synctest"

	"github.com/go-vercel/sandbox/internal/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// names walks a tree and returns the names visited.
func names(t *testing.T, fsys fs.FS, at func(name string)) (list []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		list = append(list, name)
		if err == nil && at != nil {
			at(name)
		}
		if err == nil {
			_, err = d.Info()
		}
		return err
	}))
	return list
}

// TestIOFSWalkIsFewRequests walks 1,000 files in 50 directories.
func TestIOFSWalkIsFewRequests(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	var files []sandbox.File
	want := map[string]bool{".": true}
	for i := range 1000 {
		name := fmt.Sprintf("d%02d/sub %d/f%03d", i%50, i%2, i)
		files = append(files, sandbox.File{Path: "tree/" + name, Content: []byte(name)})
		for ; name != "."; name = path.Dir(name) {
			want[name] = true
		}
	}
	require.NoError(t, sb.WriteFiles(t.Context(), files, nil))
	// What was listed ahead is used for a second, by the time of a bubble, which
	// stands still while connections lead out of it.
	synctest.Test(t, func(t *testing.T) {
		sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: testkit.Transport(t)}}).Get(t.Context(), sb.Name(), nil)
		require.NoError(t, err)
		before := len(srv.Requests())
		list := names(t, sb.FS().IOFS(t.Context(), "tree"), nil)
		assert.LessOrEqual(t, len(srv.Requests())-before, 4)
		assert.Len(t, list, len(want))
		for _, name := range list {
			assert.True(t, want[name], name)
		}
	})
}

// TestIOFSWalkSeesChanges: a walk sees the changes that the program makes, in
// whatever way.
func TestIOFSWalkSeesChanges(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, nil)
	ctx := t.Context()
	f := sb.FS()
	require.NoError(t, sb.WriteFiles(ctx, []sandbox.File{{Path: "t/a/x"}, {Path: "t/b/x"}, {Path: "t/c/x"}, {Path: "t/d/x"}, {Path: "t/e/x"}, {Path: "t/f/x"}}, nil))
	slow, err := sb.StartCommand(ctx, "sh", []string{"-c", "while ! [ -e go ]; do sleep 0.01; done; touch t/e/slow"}, nil)
	require.NoError(t, err)
	list := names(t, f.IOFS(ctx, "t"), func(name string) {
		switch name {
		case "a/x":
			require.NoError(t, f.WriteFile(ctx, "t/b/new", nil, 0o644))
		case "b/x":
			_, err := sb.RunCommand(ctx, "sh", []string{"-c", "mkdir t/c/sub; touch t/c/sub/y"}, nil)
			require.NoError(t, err)
		case "c/x":
			require.NoError(t, f.Remove(ctx, "t/d/x"))
		case "d":
			require.NoError(t, f.WriteFile(ctx, "go", nil, 0o644))
			_, err := slow.Wait(ctx)
			require.NoError(t, err)
		}
	})
	assert.Equal(t, []string{".", "a", "a/x", "b", "b/new", "b/x", "c", "c/sub", "c/sub/y", "c/x", "d", "e", "e/slow", "e/x", "f", "f/x"}, list)
}

// TestIOFSWalkOddTrees: where a tree can't be listed ahead, the walk continues
// as if it had not been tried, with the errors of each directory.
func TestIOFSWalkOddTrees(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, nil)
	ctx := t.Context()
	run := func(script string) {
		done, err := sb.RunCommand(ctx, "bash", []string{"-c", script}, nil)
		require.NoError(t, err)
		require.Zero(t, done.ExitCode)
	}
	t.Run("a name is not UTF-8", func(t *testing.T) {
		run(`mkdir -p odd/a odd/b; touch odd/a/$'\xff' odd/b/x`)
		assert.Equal(t, []string{".", "a", "a/\xff", "b", "b/x"}, names(t, sb.FS().IOFS(ctx, "odd"), nil))
	})
	t.Run("links", func(t *testing.T) {
		run(`mkdir -p links/a/b; touch links/a/b/x; ln -s a links/l`)
		fsys := sb.FS().IOFS(ctx, "links")
		assert.Equal(t, []string{".", "a", "a/b", "a/b/x", "l"}, names(t, fsys, nil))
		list, err := fs.ReadDir(fsys, "l/b")
		require.NoError(t, err)
		assert.Len(t, list, 1)
	})
	t.Run("more than is listed at once", func(t *testing.T) {
		run(`mkdir -p many/{a,b,c}/{d,e}; for d in many/*/*; do (cd $d && touch $(seq 1200)); done`)
		assert.Len(t, names(t, sb.FS().IOFS(ctx, "many"), nil), 1+3+6+6*1200)
	})
	t.Run("a directory may not be read", func(t *testing.T) {
		run(`mkdir -p closed/a closed/b closed/c; touch closed/a/x closed/c/x; chmod 0 closed/b; id -u`)
		var failed []string
		var list []string
		require.NoError(t, fs.WalkDir(sb.FS().IOFS(ctx, "closed"), ".", func(name string, _ fs.DirEntry, err error) error {
			list = append(list, name)
			if err != nil {
				failed = append(failed, name)
			}
			return nil
		}))
		if _, err := sb.FS().ReadDir(ctx, "closed/b"); err == nil {
			assert.Empty(t, failed) // for root there is no such directory
			return
		}
		assert.Equal(t, []string{"b"}, failed)
		assert.Contains(t, list, "c/x")
	})
}

// TestIOFSReadsOneDirectory: reading a single directory does not list the whole
// tree.
func TestIOFSReadsOneDirectory(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "t/a/b/x"}}, nil))
	_, err := fs.ReadDir(sb.FS().IOFS(t.Context(), "t"), ".")
	require.NoError(t, err)
	requests := srv.Requests()
	last := requests[len(requests)-1]
	assert.Equal(t, sandboxtest.RunCommand, last.Operation)
	assert.Contains(t, string(last.Body), "maxdepth")
}
