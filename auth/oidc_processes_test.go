package auth_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// rounds is the number of refreshes of each process.
const rounds = 10

// refresher repeatedly replaces the login and the token.
func refresher(address string) error {
	server, err := url.Parse(address)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: toServer{server}}
	h := oidc.NewHost(client, os.Getenv, "")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	ctx, refused := context.Background(), ""
	for range rounds {
		token, err := h.ProjectToken(ctx, oidc.Scope{TeamID: "team_a", ProjectID: "prj_a"}, time.Minute, refused)
		if err != nil {
			return err
		}
		refused = token.Token
	}
	return nil
}

// toServer sends all requests to one server.
type toServer struct{ server *url.URL }

func (s toServer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Path = "/" + req.URL.Host + req.URL.Path
	req.URL.Scheme, req.URL.Host = s.server.Scheme, s.server.Host
	return http.DefaultTransport.RoundTrip(req)
}

func TestProcessesRefreshTogether(t *testing.T) {
	m := oidctest.NewMachine(t)
	m.Write(m.LoginFile(), map[string]any{"token": "login_0", "refreshToken": "refresh_0", "expiresAt": 1000000000, "kept": true})

	var mu sync.Mutex
	logins, tokens := 0, 0
	mux := http.NewServeMux()
	respond := func(w http.ResponseWriter, v any) { assert.NoError(t, json.NewEncoder(w).Encode(v)) }
	mux.HandleFunc("GET /vercel.com/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		respond(w, map[string]string{"token_endpoint": "https://api.vercel.com/login/oauth/token"})
	})
	mux.HandleFunc("POST /api.vercel.com/login/oauth/token", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if !assert.Equal(t, fmt.Sprintf("refresh_%d", logins), r.FormValue("refresh_token"), "a refresh token works once") {
			w.WriteHeader(http.StatusBadRequest)
			respond(w, map[string]string{"error": "invalid_grant"})
			return
		}
		logins++
		respond(w, map[string]any{
			// It expires so soon that the processes refresh it at once.
			"access_token": fmt.Sprintf("login_%d", logins), "token_type": "Bearer", "expires_in": 1,
			"refresh_token": fmt.Sprintf("refresh_%d", logins),
		})
	})
	mux.HandleFunc("POST /api.vercel.com/v1/projects/prj_a/token", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens++
		assert.Equal(t, fmt.Sprintf("Bearer login_%d", logins), r.Header.Get("Authorization"))
		respond(w, map[string]string{"token": oidctest.Token("team_a", "prj_a", time.Hour)})
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	program, err := os.Executable()
	require.NoError(t, err)
	var processes []*exec.Cmd
	var starts []io.WriteCloser
	var outputs []*strings.Builder
	for range 4 {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), "OIDC_TEST_SERVER="+server.URL, "HOME="+m.Home,
			"XDG_DATA_HOME="+m.Getenv("XDG_DATA_HOME"), "VERCEL_AUTH_CONFIG_DIR=")
		output := &strings.Builder{}
		cmd.Stderr = output
		start, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		processes, starts, outputs = append(processes, cmd), append(starts, start), append(outputs, output)
	}
	for _, start := range starts {
		_, err := io.WriteString(start, "go\n")
		require.NoError(t, err)
	}

	// Meanwhile, readers of the files always find them complete.
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			var content map[string]any
			data, err := os.ReadFile(m.LoginFile())
			if !assert.NoError(t, err) || !assert.NoError(t, json.Unmarshal(data, &content)) {
				return
			}
			assert.Equal(t, strings.TrimPrefix(fmt.Sprint(content["token"]), "login_"),
				strings.TrimPrefix(fmt.Sprint(content["refreshToken"]), "refresh_"))
			testkit.Linger(time.Millisecond)
		}
	})
	for i, cmd := range processes {
		assert.NoError(t, cmd.Wait(), outputs[i].String())
	}
	close(done)
	reader.Wait()

	// A process may find that another has just refreshed.
	assert.GreaterOrEqual(t, tokens, rounds)
	assert.LessOrEqual(t, tokens, 4*rounds)
	assert.Equal(t, tokens, logins)
	content := m.Read(m.LoginFile())
	assert.Equal(t, fmt.Sprintf("login_%d", logins), content["token"])
	assert.Equal(t, fmt.Sprintf("refresh_%d", logins), content["refreshToken"])
	assert.Equal(t, true, content["kept"])
	for _, file := range []string{m.LoginFile(), m.TokenFile("prj_a")} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".*"))
		require.NoError(t, err)
		assert.Empty(t, left)
	}
	_, err = oidc.ParseClaims(m.Read(m.TokenFile("prj_a"))["token"].(string))
	assert.NoError(t, err)
}
