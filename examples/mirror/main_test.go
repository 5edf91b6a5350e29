package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestMirror(t *testing.T) {
	needs.GNU(t)
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	t.Setenv("VERCEL_SANDBOX_BASE_URL", srv.URL)
	t.Setenv("VERCEL_TOKEN", c.Token)
	t.Setenv("VERCEL_AUTH_TOKEN", "") // whatever this machine has
	t.Setenv("VERCEL_TEAM_ID", c.TeamID)
	t.Setenv("VERCEL_PROJECT_ID", c.ProjectID)
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for name, sent := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600), sent)
	}
	require.NoError(t, run(t.Context(), dir, out, ""))
	sums, err := os.ReadFile(filepath.Join(out, "sums.txt"))
	require.NoError(t, err)
	for name, sent := range files {
		assert.Equal(t, sent, strings.Contains(string(sums), " ./"+name+"\n"), name)
	}
}

// files says which files of a folder are sent.
var files = map[string]bool{
	"main.go": true, "sub/data.json": true, "environment.md": true,
	".env": false, ".env.local": false, "sub/.env.production": false, ".aws/credentials": false, ".ssh/id_ed25519": false,
	".vercel/project.json": false, "server.pem": false, ".npmrc": false, ".git/config": false,
}

// TestPagesAreConfined: a page of the sandbox has no rights at an address of this
// machine.
func TestPagesAreConfined(t *testing.T) {
	w := httptest.NewRecorder()
	showOnly(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, "sandbox", w.Header().Get("Content-Security-Policy"))
}
