package auth_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// tokenCheck accepts only requests with the file's current token, like an API after the older ones
// have expired.
type tokenCheck struct {
	file string
	srv  *sandboxtest.Server
}

func (d *tokenCheck) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	token, err := os.ReadFile(d.file)
	if err != nil {
		return nil, err
	}
	if req.Header.Get("Authorization") == "Bearer "+strings.TrimSpace(string(token)) {
		req.Header.Set("Authorization", "Bearer "+d.srv.Credentials().Token)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// TestReplacedTokenFile: a program that outlives its token uses the current one in the file, also to
// follow a command that it started with an older one.
func TestReplacedTokenFile(t *testing.T) {
	m := onMachine(t)
	srv := sandboxtest.New(t, nil)
	creds := srv.Credentials()
	file := filepath.Join(m.Home, "oidc")
	first, second := oidctest.Token(creds.TeamID, creds.ProjectID, time.Hour), oidctest.Token(creds.TeamID, creds.ProjectID, 2*time.Hour)
	m.Write(file, first)
	t.Setenv("VERCEL_OIDC_TOKEN_FILE", file)
	c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, HTTPClient: &http.Client{Transport: &tokenCheck{file, srv}}})
	require.NoError(t, err)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "until [ -e done ]; do sleep 0.05; done; echo done"}, nil)
	require.NoError(t, err)
	m.Write(file, second)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "done", nil, 0o644))
	result, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Zero(t, result.ExitCode)
	out, err := result.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "done\n", out)
}
