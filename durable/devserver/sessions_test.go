package devserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable/internal/mutual"
	"github.com/go-vercel/sandbox/durable/session"
)

// machineAddr is this machine's address in the network of an emulator's sandboxes.
const machineAddr = "10.0.2.2"

// service is a process of sandbox-sessions.
type service struct {
	cmd         *exec.Cmd
	base, token string
}

// startSessions starts sandbox-sessions with an emulator.
func startSessions(t *testing.T, program, dir string, environ []string) *service {
	t.Helper()
	cmd := exec.Command(program, "-addr", "127.0.0.1:0", "-dir", dir, "-emulator")
	cmd.Env = slices.Concat(os.Environ(), environ)
	u, err := url.Parse(startProcess(t, cmd))
	require.NoError(t, err)
	fragment, err := url.ParseQuery(u.Fragment)
	require.NoError(t, err)
	return &service{cmd, "http://" + u.Host, fragment.Get("token")}
}

// emulatorOf returns a client of the emulator that the sandbox-sessions of a folder share.
func emulatorOf(t *testing.T, dir string) *sandbox.Client {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "emulator", "address.json"))
	require.NoError(t, err)
	var e struct {
		URL, Token, TeamID, ProjectID string
		Key                           []byte
	}
	require.NoError(t, json.Unmarshal(data, &e))
	secure, err := mutual.Client(e.Key)
	require.NoError(t, err)
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	t.Cleanup(hc.CloseIdleConnections)
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: e.URL, HTTPClient: hc, Credentials: auth.Static(auth.Credentials{Token: e.Token, TeamID: e.TeamID, ProjectID: e.ProjectID}),
	})
	require.NoError(t, err)
	return c
}

// TestDoor: without the printed token, a client on this machine gets only the page. A
// sandbox cannot even connect to the ports.
func TestDoor(t *testing.T) {
	srv, _ := startTemporal(t)
	s := startSessions(t, build(t, "cmd/sandbox-sessions"), filepath.Join(t.TempDir(), "state"), srv.Environ())
	defer func() {
		assert.NoError(t, s.cmd.Process.Signal(os.Interrupt))
		assert.NoError(t, s.cmd.Wait(), "the process ends without an error, and so does its emulator")
	}()
	base, token := s.base, s.token
	require.NotEmpty(t, token)

	ask := func(method, path, body, token string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		if resp.Header.Get("X-Workflow-Run-Id") != "" { // a stream
			return resp.StatusCode, resp.Header.Get("X-Workflow-Run-Id")
		}
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/start", "{}"}, {"GET", "/events?runId=a", ""}, {"GET", "/session?runId=a", ""}, {"POST", "/command", `{"runId":"a","command":"id"}`},
		{"POST", "/interrupt", `{"runId":"a"}`}, {"POST", "/destroy", `{"runId":"a"}`},
	} {
		for _, wrong := range []string{"", "wrong"} {
			status, _ := ask(r.method, r.path, r.body, wrong)
			assert.Equal(t, http.StatusUnauthorized, status, "%s with %q", r.path, wrong)
		}
	}
	status, page := ask("GET", "/", "", "")
	assert.Equal(t, http.StatusOK, status)
	assert.NotContains(t, page, token)

	status, id := ask("POST", "/start", "{}", token)
	require.Equal(t, http.StatusOK, status)
	other := httptest.NewServer(http.NotFoundHandler()) // any other program of this machine
	defer other.Close()
	out := command(t, base, token, id, `for p in `+port(t, base)+` `+port(t, other.URL)+`; do (exec 3<>/dev/tcp/`+machineAddr+`/$p) 2>/dev/null && echo "reached $p"; done; echo tried`)
	assert.Contains(t, out, "tried")
	assert.NotContains(t, out, "reached")
}

func port(t *testing.T, base string) string {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	require.NoError(t, err)
	return port
}

// command runs a command in a session and returns its output.
func command(t *testing.T, base, token, id, script string) (out string) {
	request := func(path string, body any) *http.Response {
		data, err := json.Marshal(body)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+path, bytes.NewReader(data))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return resp
	}
	request("/command", map[string]string{"runId": id, "command": script, "key": "a"}).Body.Close()
	resp := request("/start", map[string]string{"runId": id})
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var e session.Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		out += e.Data
		if e.Type == session.TypeCommandEnd {
			return out
		}
	}
	require.Fail(t, "the stream has ended")
	return ""
}
