package main

import (
	"archive/tar"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit/hostile"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestEnvironmentOfOwnPrograms: copies, completions and other helper programs in the
// sandbox don't depend on its environment, nor on which shell its sh is. Without
// SANDBOX_SLOW=1, it sets all hostile variables at once, and some of them at random.
func TestEnvironmentOfOwnPrograms(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv("SANDBOX_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SANDBOX_TEST_SEED=%d", seed)
	d := newWorkspace(t, nil)
	want := ownPrograms(t, d, "plain", hostile.Row{})
	rows := hostile.Rows(seed, needs.Slow())
	if !needs.Slow() {
		rows = rows[1:]
	}
	for i, row := range rows {
		assert.Equal(t, want, ownPrograms(t, d, "row-"+strconv.Itoa(i), row), row)
	}
}

// ownPrograms returns the results of operations on a sandbox with an environment.
func ownPrograms(t *testing.T, d *workspace, name string, row hostile.Row) (results []string) {
	ctx := t.Context()
	sb, err := d.server.Client().Create(ctx, &sandbox.CreateOptions{Name: name, Env: row.Env})
	require.NoError(t, err)
	files := []sandbox.File{
		{Path: "d/.git/config", Content: []byte("config")}, {Path: "d/node_modules/x", Content: []byte("module"), Mode: new(fs.FileMode(0o755))},
		{Path: "d/sub/y", Content: []byte("y")},
	}
	if d.server.Mode() != sandboxtest.Folder { // folder mode has the machine's /tmp
		files = append(files, sandbox.File{Path: hostile.Script, Content: []byte(hostile.Text)})
		if row.Bash {
			require.NoError(t, sb.FS().MkdirAll(ctx, hostile.Shells, 0o755))
			require.NoError(t, sb.FS().Symlink(ctx, "/bin/bash", hostile.Shells+"/sh"))
		}
	}
	require.NoError(t, sb.WriteFiles(ctx, files, nil))
	require.NoError(t, sb.FS().Symlink(ctx, "sub/y", "d/link"))
	require.NoError(t, sb.FS().Symlink(ctx, "/etc/passwd", "d/outside"))
	say := func(words ...string) {
		results = append(results, strings.ReplaceAll(strings.Join(words, " "), name, "NAME"))
	}
	run := func(args ...string) string {
		got := d.run("", args...)
		say(args[0], strconv.Itoa(got.code), got.stderr)
		return got.stdout
	}
	tree := func(dir string) {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := entry.Info()
			require.NoError(t, err)
			say(strings.TrimPrefix(path, dir), info.Mode().String(), strconv.FormatBool(entry.IsDir() || info.Size() > 0))
			return nil
		}))
	}
	local := filepath.Join(d.dir, name)
	require.NoError(t, os.MkdirAll(local, 0o755))
	run("cp", "-r", name+":d", name+"/copy")
	tree(filepath.Join(local, "copy"))
	var packed []string // the entries in the order of the directory
	for r := tar.NewReader(strings.NewReader(run("cp", name+":d", "-"))); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err, name)
		packed = append(packed, h.Name+" "+h.FileInfo().Mode().String())
	}
	slices.Sort(packed)
	say(packed...)
	say(strconv.FormatBool(strings.Contains("\n"+run("__completeNoDesc", "exec", name, "mkd"), "\nmkdir\n")))
	return results
}
