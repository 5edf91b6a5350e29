package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestTokensAndAddresses combines every source of a token with every source of an
// address: a token is sent only to an address that it was given for.
func TestTokensAndAddresses(t *testing.T) {
	t.Parallel()
	token := oidctest.Token("team_a", "prj_a", 0)
	const scope = "\nVERCEL_TEAM_ID=team_a\nVERCEL_PROJECT_ID=prj_a\n"
	for _, source := range []struct {
		name    string
		env     []string
		dotenv  string
		login   bool
		options []string
		fromEnv bool // whether the token is sent to an address from the environment
	}{
		{name: "--token", options: []string{"--token", token}, fromEnv: true},
		{name: "SANDBOX_TOKEN", env: []string{"SANDBOX_TOKEN=" + token}, fromEnv: true},
		{name: "VERCEL_AUTH_TOKEN", env: []string{"VERCEL_AUTH_TOKEN=" + token}, fromEnv: true},
		{name: "VERCEL_TOKEN", env: []string{"VERCEL_TOKEN=" + token, "VERCEL_TEAM_ID=team_a", "VERCEL_PROJECT_ID=prj_a"}, fromEnv: true},
		{name: "VERCEL_TOKEN in a linked folder", env: []string{"VERCEL_TOKEN=" + token}, fromEnv: true},
		{name: "VERCEL_OIDC_TOKEN", env: []string{"VERCEL_OIDC_TOKEN=" + token}, fromEnv: true},
		{name: "VERCEL_OIDC_TOKEN_FILE", env: []string{"VERCEL_OIDC_TOKEN_FILE=oidc-token"}, fromEnv: true},
		{name: "SANDBOX_TOKEN in .env", dotenv: "SANDBOX_TOKEN=" + token},
		{name: "VERCEL_AUTH_TOKEN in .env", dotenv: "VERCEL_AUTH_TOKEN=" + token},
		{name: "VERCEL_TOKEN in .env", dotenv: "VERCEL_TOKEN=" + token + scope},
		{name: "VERCEL_OIDC_TOKEN in .env", dotenv: "VERCEL_OIDC_TOKEN=" + token},
		{name: "login", login: true},
	} {
		for _, address := range []string{"option", "environment", ".env"} {
			t.Run(source.name+" to "+address, func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				var got []string
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					got = append(got, r.Header.Get("Authorization"))
					mu.Unlock()
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"sandboxes":[],"pagination":{"count":0,"next":null}}`))
				}))
				defer server.Close()
				d := &workspace{t: t, dir: t.TempDir(), home: t.TempDir()}
				// Requests to Vercel must fail.
				d.env = append([]string{asProgram + "=1", "HOME=" + d.home, "PATH=" + os.Getenv("PATH"), "HTTPS_PROXY=http://127.0.0.1:1"}, source.env...)
				d.write(".vercel/project.json", `{"orgId":"team_a","projectId":"prj_a"}`)
				d.write("oidc-token", token)
				dotenv, options := source.dotenv+"\n", source.options
				switch address {
				case "option":
					options = append(options, "--api-url="+server.URL)
				case "environment":
					d.env = append(d.env, "VERCEL_SANDBOX_BASE_URL="+server.URL)
				case ".env":
					dotenv += "VERCEL_SANDBOX_BASE_URL=" + server.URL + "\n"
				}
				d.write(".env", dotenv)
				if source.login {
					file := filepath.Join(d.home, ".local/share/com.vercel.cli/auth.json")
					require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
					require.NoError(t, os.WriteFile(file, []byte(`{"token":"`+token+`"}`), 0o600))
				}
				if runtime.GOOS != "linux" {
					needs.Other(t, "the login's folder is that of Linux")
				}
				d.run("", append(options, "ls", "--request-timeout=2s")...)
				want := address == "option" || address == "environment" && source.fromEnv
				mu.Lock()
				defer mu.Unlock()
				assert.Equal(t, want, strings.Contains(strings.Join(got, " "), token), "%v", got)
			})
		}
	}
}
