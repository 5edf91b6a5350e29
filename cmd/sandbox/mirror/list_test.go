package mirror

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/glob"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
}

// ignored reads a directory and returns both of what it leaves out and a match.
func local(t *testing.T, dir string, more ...string) (listing, func(string) bool) {
	t.Helper()
	extra, err := newIgnoreList(more)
	require.NoError(t, err)
	tree, ignore, err := listLocal(os.DirFS(dir), extra, nil)
	require.NoError(t, err)
	return tree, func(name string) bool { return ignore.match(name) || extra.match(name) }
}

func TestIgnore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, ".gitignore", "node_modules/\n*.log\n!keep.log\n# note\n/top.txt\nbuild/out\n")
	write(t, dir, ".sandboxignore", "secret\n")
	write(t, dir, ".git/info/exclude", "mine\n")
	write(t, dir, "api/.gitignore", ".env\n/local\n*.tmp\n!keep.tmp\n")
	write(t, dir, "odd[*]/.gitignore", "x\n")
	write(t, dir, "node_modules/.gitignore", "!../main.go\n*\n")
	for _, name := range []string{"api/.env", "api/v1/.env", "api/local", "api/v1/local", "api/a.tmp", "api/keep.tmp", ".env", "odd[*]/x", "oddy/x"} {
		write(t, dir, name, "")
	}
	tree, match := local(t, dir, "extra")
	for path, want := range map[string]bool{
		".git/config": true, "node_modules/a/b": true, "sub/node_modules/a": true, "a.log": true, "sub/a.log": true, "sub/keep.log": false,
		"top.txt": true, "sub/top.txt": false, "build/out/x": true, "secret": true, "extra": true, "main.go": false, "mine": true,
		"api/.env": true, "api/v1/.env": true, ".env": false, "api/local": true, "api/v1/local": false, "api/a.tmp": true, "api/keep.tmp": false, "a.tmp": false,
		"odd[*]/x": true, "oddy/x": false,
	} {
		assert.Equal(t, want, match(path), path)
		if _, there := tree[path]; there {
			assert.False(t, want, path)
		}
	}
	assert.Contains(t, tree, "api/v1/local")
	assert.NotContains(t, tree, "api/.env")
}

// TestListing compares the listing of find with that of this process.
func TestListing(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("find", "--version").CombinedOutput(); err != nil {
		needs.Missing(t, "GNU find is not there: %s", out)
	}
	dir := t.TempDir()
	write(t, dir, "a b/c\nd", "x")
	write(t, dir, "run.sh", "#!/bin/sh\n")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	require.NoError(t, os.Symlink("run.sh", filepath.Join(dir, "link")))
	out, err := exec.Command("bash", "-c", listScript, "bash", dir).Output()
	require.NoError(t, err)
	remote, err := parseList(string(out))
	require.NoError(t, err)
	here, _ := local(t, dir)
	assert.Len(t, remote, 5)
	assert.Equal(t, plan{}, diff(here, remote))
	assert.Equal(t, plan{}, diff(remote, here))
	missing, err := exec.Command("bash", "-c", listScript, "bash", filepath.Join(dir, "none")).Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, exitMissing, exit.ExitCode())
	assert.Empty(t, missing)
	_, _, err = listLocal(os.DirFS(filepath.Join(dir, "none")), nil, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestDiff(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	file := entry{Size: 1, ModTime: at, Mode: 0o644}
	dir := entry{Mode: fs.ModeDir | 0o755}
	from := listing{"now-dir": dir, "now-dir/x": file, "now-file": file, "empty": dir, "dir": {Mode: fs.ModeDir | 0o700}, "same": file, "new": file, "grown": {Size: 2, ModTime: at, Mode: 0o644}, "mode": {Size: 1, ModTime: at, Mode: 0o755}, "link": {Mode: fs.ModeSymlink, Link: "b"}}
	to := listing{"now-dir": file, "now-file": dir, "now-file/x": file, "gone": dir, "dir": dir, "same": file, "old": file, "grown": file, "mode": file, "link": {Mode: fs.ModeSymlink, Link: "a"}}
	assert.Equal(t, plan{
		Replace: []string{"now-dir"}, Clear: []string{"now-file"}, Make: []string{"empty", "now-dir"}, Remove: []string{"gone"},
		Write: []string{"grown", "link", "mode", "new", "now-dir/x", "now-file"}, Delete: []string{"now-file/x", "old"},
	}, diff(from, to))
}

func TestHostileListing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"../x\x00f\x001\x001\x00644\x00\x00", "/etc/passwd\x00f\x001\x001\x00644\x00\x00", "x\x00f\x00", "a\x00f\x00z\x001\x00644\x00\x00",
		"a/./b\x00f\x001\x001\x00644\x00\x00", "./a\x00f\x001\x001\x00644\x00\x00", "a//b\x00f\x001\x001\x00644\x00\x00", "a/\x00f\x001\x001\x00644\x00\x00"} {
		_, err := parseList(text)
		assert.Error(t, err, text)
	}
}

// TestGit spells the directory that Git runs programs from in every way that
// some file system takes for it.
func TestGit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, ".sandboxignore", "!.git\n!**/.git\n")
	_, reinclude := local(t, dir)
	for path, want := range map[string]bool{
		".git": true, "lib/.git/hooks/post-checkout": true, "a/b/.GIT/config": true, "GIT~1/hooks/x": true, "x/.git./config": true, ".git . ./x": true,
		".g\u200cit/hooks": true, "\ufeff.git/x": true, ".git::$INDEX_ALLOCATION/config": true, `a\.git\hooks`: true, "sub/.git": true,
		".github/workflows/x": false, ".gitignore": false, "git": false, "x.git": false, ".git2/x": false, "git~10": false,
	} {
		assert.Equal(t, want, reinclude(path), "%q", path)
		assert.Equal(t, want, (*ignoreList)(nil).match(path), "%q", path)
	}
}

// FuzzParseList: whatever stands for find in the sandbox, no entry leads out of the
// directory or into what Git runs programs from.
func FuzzParseList(f *testing.F) {
	f.Add("a\x00f\x001\x002.5\x00644\x00\x00")
	f.Add("../a\x00f\x001\x002\x00644\x00\x00")
	f.Add("x/.GIT/hooks/a\x00f\x00-1\x00-2\x007777\x00\x00l\x00l\x000\x000\x00777\x00/etc/passwd\x00")
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := parseList(text)
		if err != nil {
			assert.Empty(t, tree)
			return
		}
		for name, e := range tree {
			assert.True(t, filepath.IsLocal(name) && path.Clean(name) == name, "%q", name)
			assert.False(t, glob.Git(name), "%q", name)
			assert.Zero(t, e.Mode&^(fs.ModePerm|fs.ModeDir|fs.ModeSymlink), "%q", name)
		}
	})
}
