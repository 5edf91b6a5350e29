package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestSources creates sandboxes from a repository and from an archive.
func TestSources(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "git", "tar")
	root := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(root)))
	t.Cleanup(server.Close)
	d := newWorkspace(t, nil)
	url := strings.Replace(server.URL, "127.0.0.1", d.server.HostAddress(), 1)
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	commit := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(root, "repo", "file"), []byte(text), 0o644))
		run("git", "-C", "repo", "add", "file")
		run("git", "-C", "repo", "commit", "-q", "-m", text)
	}
	run("git", "init", "-q", "-b", "main", "repo")
	commit("first")
	run("git", "-C", "repo", "tag", "v1")
	commit("second")
	run("git", "-C", "repo", "update-server-info")
	run("tar", "-czf", "tree.tgz", "-C", "repo", "file")

	// The API decides where the file is.
	content := func(name string) string {
		t.Helper()
		return d.ok("exec", name, "--", "sh", "-c", "cat $(find /vercel -name file)")
	}
	d.ok("create", "--name", "latest", "--git", url+"/repo/.git")
	assert.Equal(t, "second", content("latest"))
	d.ok("create", "--name", "tagged", "--git", url+"/repo/.git#v1")
	assert.Equal(t, "first", content("tagged"))
	d.ok("create", "--name", "unpacked", "--tarball", url+"/tree.tgz")
	assert.Equal(t, "second", content("unpacked"))
	d.seen()
	for _, args := range [][]string{{"--git", url, "--tarball", url}, {"--git", url, "--snapshot", "snap_x"}, {"--depth", "1"}} {
		got := d.run("", append([]string{"create"}, args...)...)
		assert.Equal(t, 2, got.code, "%v: %s", args, got.stderr)
	}
	assert.Empty(t, d.seen())
}

// TestNewSandboxes creates sandboxes with variables, a policy and local files, and downloads
// files.
func TestNewSandboxes(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.write("vars", "A=from the file\nB=1\n")
	d.ok("create", "--name", "env", "--env-file", "vars", "-e", "B=2")
	assert.Equal(t, "from the file 2\n", d.ok("exec", "env", "--", "sh", "-c", "echo $A $B"))
	assert.Equal(t, "3 2\n", d.ok("exec", "-e", "A=3", "env", "--", "sh", "-c", "echo $A $B"))

	d.write("policy.json", `{"allow": {"example.com": [{"transform": [{"headers": {"x-key": "planted"}}]}]}}`)
	d.ok("create", "--name", "policy", "--network-policy-file", "policy.json")
	shown := d.ok("config", "policy", "show", "policy")
	assert.Contains(t, shown, "example.com")
	assert.NotContains(t, shown, "planted")
	d.seen()
	d.write("bad.json", `{"allow": 3}`)
	got := d.run("", "create", "--network-policy-file", "bad.json")
	assert.Equal(t, 2, got.code, got.stderr)
	got = d.run("", "create", "--network-policy-file", "policy.json", "--network-policy", "deny-all")
	assert.Equal(t, 2, got.code, got.stderr)
	assert.Empty(t, d.seen())

	d.write("in/x.txt", "x\n")
	d.ok("run", "--rm", "--upload", "in:there", "--download", "made:here", "--", "sh", "-c", "mkdir made && cat there/x.txt there/x.txt > made/twice.txt")
	twice, err := os.ReadFile(filepath.Join(d.dir, "here/twice.txt"))
	require.NoError(t, err)
	assert.Equal(t, "x\nx\n", string(twice))
}
