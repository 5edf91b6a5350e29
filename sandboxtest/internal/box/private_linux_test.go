package box

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestPrivateFiles: a box sees the files of the machine, but not the keys and
// logins in the homes of its users, not even as root.
func TestPrivateFiles(t *testing.T) {
	real, err := os.UserHomeDir()
	require.NoError(t, err)
	// There a box has directories of its own.
	hidden := func(dir string) bool { return strings.HasPrefix(real+"/", dir+"/") }
	if slices.ContainsFunc([]string{"/tmp", "/mnt", "/media", "/srv", "/run"}, hidden) {
		needs.Other(t, "boxes don't show this machine's %v", real)
	}
	home, err := os.MkdirTemp(real, ".sandbox-test-home-") //nolint:usetesting // t.TempDir is below /tmp
	if err != nil {
		needs.Other(t, "no home to have secrets in: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(home)) })
	for name, text := range map[string]string{
		".ssh/id_ed25519": "secret", ".npmrc": "secret", ".config/gh/hosts.yml": "secret", ".local/share/com.vercel.cli/auth.json": "secret",
		".claude/settings.json": "secret", ".config/plain": "plain", "file": "plain",
		".config/sandbox-cli/config.toml": "secret", ".local/state/sandbox-cli/daemon/socket": "secret", ".cache/sandbox-sessions/token": "secret",
		"elsewhere/sandbox-cli/config.toml": "secret",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text+"\n"), 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(home, "dotfiles"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(home, "dotfiles/netrc"), []byte("secret\n"), 0o644))
	require.NoError(t, os.Symlink("dotfiles/netrc", filepath.Join(home, ".netrc")))
	require.NoError(t, os.Mkdir(filepath.Join(home, "linked"), 0o755))
	require.NoError(t, os.Symlink("linked", filepath.Join(home, ".docker")))
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "later", "data"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "elsewhere"))
	// A program in a home that is closed to others stays within reach.
	require.NoError(t, os.Mkdir(filepath.Join(home, "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(home, "bin/tool-of-the-home"), []byte("#!/bin/sh\necho tool\n"), 0o755))
	t.Setenv("PATH", filepath.Join(home, "bin")+":"+os.Getenv("PATH"))
	// The host's own files may be among what is private.
	own := openHost(t, Options{Mode: Namespace, Dir: filepath.Join(home, ".local", "state", "sandbox-cli", "daemon")})
	rootless := openHost(t, Options{Mode: Namespace}).Rootless()
	assert.Equal(t, rootless, own.Rootless())
	assert.Equal(t, "tool", sh(t, newBox(t, own, Config{}), "tool-of-the-home"))
	h := openHost(t, Options{Mode: Namespace, Dir: filepath.Join(home, ".cache", "sandbox-sessions", "emulator")})
	assert.Equal(t, rootless, h.Rootless())
	b := newBox(t, h, Config{})
	assert.Equal(t, "tool", sh(t, b, "tool-of-the-home"))
	out, errOut, res := run(t, b, Spec{Path: "sh", Args: []string{"-c", `cd "$1" && cat file .config/plain && grep -rs secret . ; ls -A .ssh`, "sh", home}, User: rootUser})
	assert.Equal(t, "plain\nplain\n", out, errOut)
	if h.Rootless() {
		return // what is shown there is to read only, and seen as the machine has it
	}
	assert.NotZero(t, res.ExitCode, "there is no .ssh")
	out, errOut, res = run(t, b, Spec{Path: "sh", Args: []string{"-c", `cd "$1" && mkdir .ssh && echo own > .ssh/config && echo own > .npmrc && cat .ssh/* .npmrc`, "sh", home}, User: rootUser})
	assert.Zero(t, res.ExitCode, errOut)
	assert.Equal(t, "own\nown\n", out)

	// A login that is made while boxes run is as private as those before.
	late := []string{".aws/credentials", ".kube/config", ".config/gcloud/credentials.db", ".local/share/opencode/auth.json", ".vault-token", "linked/config.json", "later/data/com.vercel.cli/auth.json"}
	for _, name := range late {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte("secret\n"), 0o644))
	}
	for _, b := range []*Box{b, newBox(t, h, Config{})} {
		out, _, _ = run(t, b, Spec{Path: "sh", Args: []string{"-c", `cd "$1" && cat file && grep -rs secret .`, "sh", home}, User: rootUser})
		assert.Equal(t, "plain\n", out)
	}
}
