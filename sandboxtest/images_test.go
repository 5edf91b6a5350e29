package sandboxtest_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// openToAll creates a directory that every user of the machine can enter, in parent or, if
// that is empty, in the temporary directory.
func openToAll(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "sandboxtest-") //nolint:usetesting // only its owner can enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// printed runs a command, which must succeed, and returns its output.
func printed(t *testing.T, sb *sandbox.Sandbox, opts *sandbox.CommandOptions, name string, args ...string) string {
	t.Helper()
	done, err := sb.RunCommand(t.Context(), name, args, opts)
	require.NoError(t, err)
	out, err := done.CombinedOutput(t.Context())
	require.NoError(t, err)
	require.Zero(t, done.ExitCode, "%s", out)
	return strings.TrimSpace(out)
}

// namespaceServer starts a server for a test in namespace mode.
func namespaceServer(t *testing.T, opts *sandboxtest.Options) *sandboxtest.Server {
	t.Helper()
	opts.Mode = sandboxtest.Namespace
	probe, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Namespace})
	if err != nil {
		needs.Missing(t, "namespace mode: %v", err)
	}
	require.NoError(t, probe.Close())
	srv, err := sandboxtest.NewServer(opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	return srv
}

// sdk returns a client of this module for a server in another process.
func (v *victim) sdk() *sandbox.Client {
	v.t.Helper()
	transport := new(http.Transport)
	v.t.Cleanup(transport.CloseIdleConnections)
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: v.url, HTTPClient: &http.Client{Transport: transport},
		Credentials: auth.Static(auth.Credentials{Token: v.token, TeamID: "team_emulator", ProjectID: "prj"}),
	})
	require.NoError(v.t, err)
	return client
}

// TestAuthoritiesAreRebuilt: if a sandbox rebuilds the list of trusted authorities, as
// packages do, the firewall's authority stays in it.
func TestAuthoritiesAreRebuilt(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "update-ca-certificates")
	if os.Geteuid() != 0 {
		needs.Missing(t, "root")
	}
	srv := namespaceServer(t, &sandboxtest.Options{})
	sb, err := srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	const list = "/etc/ssl/certs/ca-certificates.crt"
	last := strings.TrimSpace(printed(t, sb, nil, "tail", "-n", "3", "/usr/local/share/ca-certificates/vercel-proxy-ca.crt"))
	require.Contains(t, printed(t, sb, nil, "cat", list), last)
	if !needs.Slow() {
		return // the package takes ten seconds
	}
	printed(t, sb, nil, "sudo", "sh", "-c", "rm "+list+" && update-ca-certificates 2>&1")
	assert.Contains(t, printed(t, sb, nil, "cat", list), last)
}

// TestNamesOfImages: the names that Options.Images accepts, and those of the service's
// own images.
func TestNamesOfImages(t *testing.T) {
	t.Parallel()
	for name, image := range map[string]string{"no name": "", "a bad name": "Team/Tools", "a digest": "team/tools@sha256:" + strings.Repeat("a", 64)} {
		_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, Images: []string{image}})
		assert.ErrorContains(t, err, "Options.Images", name)
	}
	inFolders(t, sandboxtest.Options{Images: []string{"team/tools:v1"}}, func(t *testing.T, _ *sandboxtest.Server, c *raw) {
		made := c.create(obj{"image": "team/tools:v1"})
		assert.Equal(t, "ok\n", c.sh(made.Session.ID, "echo ok"))
		c.create(obj{"image": made.Sandbox.Image})
		c.create(obj{"image": "vercel/sandbox/node:24"})
		for _, other := range []string{"team/tools", "team/tools:v2", "team/tools@sha256:" + strings.Repeat("a", 64), "vercel/sandbox/cobol", "registry.example.com/x"} {
			assert.Equal(t, "Image not found.", c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "image": other}, 404, "not_found"), other)
		}
	})
}
