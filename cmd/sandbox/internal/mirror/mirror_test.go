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

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
}

func TestIgnore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, ".gitignore", "node_modules/\n*.log\n!keep.log\n# note\n/top.txt\nbuild/out\n")
	write(t, dir, ".sandboxignore", "secret\n")
	ignore, err := ReadIgnore(dir, []string{"extra"})
	require.NoError(t, err)
	for path, want := range map[string]bool{
		".git/config": true, "node_modules/a/b": true, "sub/node_modules/a": true, "a.log": true, "sub/a.log": true, "sub/keep.log": false,
		"top.txt": true, "sub/top.txt": false, "build/out/x": true, "secret": true, "extra": true, "main.go": false,
	} {
		assert.Equal(t, want, ignore.Match(path), path)
	}
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
	require.NoError(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	require.NoError(t, os.Symlink("run.sh", filepath.Join(dir, "link")))
	out, err := exec.Command("bash", "-c", ListScript, "bash", dir).Output()
	require.NoError(t, err)
	remote, err := ParseList(string(out), nil)
	require.NoError(t, err)
	local, err := Local(dir, nil)
	require.NoError(t, err)
	assert.Len(t, remote, 3)
	assert.Equal(t, Changes{}, Diff(local, remote))
	assert.Equal(t, Changes{}, Diff(remote, local))
	missing, err := exec.Command("bash", "-c", ListScript, "bash", filepath.Join(dir, "none")).Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, ExitMissing, exit.ExitCode())
	assert.Empty(t, missing)
	_, err = Local(filepath.Join(dir, "none"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestDiff(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	file := Entry{Size: 1, ModTime: at, Mode: 0o644}
	from := Tree{"same": file, "new": file, "grown": {Size: 2, ModTime: at, Mode: 0o644}, "mode": {Size: 1, ModTime: at, Mode: 0o755}, "link": {Mode: fs.ModeSymlink, Link: "b"}}
	to := Tree{"same": file, "old": file, "grown": file, "mode": file, "link": {Mode: fs.ModeSymlink, Link: "a"}}
	assert.Equal(t, Changes{Write: []string{"grown", "link", "mode", "new"}, Delete: []string{"old"}}, Diff(from, to))
}

func TestHostileListing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"../x\x00f\x001\x001\x00644\x00\x00", "/etc/passwd\x00f\x001\x001\x00644\x00\x00", "x\x00f\x00", "a\x00f\x00z\x001\x00644\x00\x00",
		"a/./b\x00f\x001\x001\x00644\x00\x00", "./a\x00f\x001\x001\x00644\x00\x00", "a//b\x00f\x001\x001\x00644\x00\x00", "a/\x00f\x001\x001\x00644\x00\x00"} {
		_, err := ParseList(text, nil)
		assert.Error(t, err, text)
	}
}

// TestGit spells the directory that Git runs programs from in every way that
// some file system takes for it.
func TestGit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, ".sandboxignore", "!.git\n!**/.git\n")
	reinclude, err := ReadIgnore(dir, nil)
	require.NoError(t, err)
	for path, want := range map[string]bool{
		".git": true, "lib/.git/hooks/post-checkout": true, "a/b/.GIT/config": true, "GIT~1/hooks/x": true, "x/.git./config": true, ".git . ./x": true,
		".g\u200cit/hooks": true, "\ufeff.git/x": true, ".git::$INDEX_ALLOCATION/config": true, `a\.git\hooks`: true, "sub/.git": true,
		".github/workflows/x": false, ".gitignore": false, "git": false, "x.git": false, ".git2/x": false, "git~10": false,
	} {
		assert.Equal(t, want, reinclude.Match(path), "%q", path)
		assert.Equal(t, want, (*Ignore)(nil).Match(path), "%q", path)
	}
}
