package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable/session"
)

// TestMain makes the test binary the emulator's process, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == emulatorArg {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err := serveEmulator(ctx, os.Args[2])
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start runs the program until the function that it returns is called, and gives
// the address and the token that it printed.
func start(t *testing.T, dir string) (base, token string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0", "-dir", dir, "-emulator"}, w, t.Output())
		w.CloseWithError(io.EOF)
		ended <- err
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		cancel()
		require.NoError(t, <-ended)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	require.NoError(t, err)
	fragment, err := url.ParseQuery(u.Fragment)
	require.NoError(t, err)
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			assert.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return "http://" + u.Host, fragment.Get("token"), stop
}

// TestWithoutHome: without a home directory nothing is taken from a folder that
// anybody can make, and a folder of another user is not used either.
func TestWithoutHome(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData", "TEMPORAL_ADDRESS"} {
		t.Setenv(name, "")
	}
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // whatever starts ends
	var said bytes.Buffer
	require.ErrorContains(t, run(ctx, []string{"-addr", "127.0.0.1:0"}, &said, io.Discard), "set HOME")
	assert.Empty(t, said.String())

	shared := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(shared, "token"), []byte("ATTACKERS\n"), 0o600))
	require.NoError(t, os.Chmod(shared, 0o777))
	require.ErrorContains(t, run(ctx, []string{"-addr", "127.0.0.1:0", "-dir", shared}, &said, io.Discard), "may be theirs")
	assert.Empty(t, said.String())
}

// TestDoor: without the printed token, clients get only the page, on this machine
// as in a sandbox, which does not even reach the ports.
func TestDoor(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	dir := filepath.Join(t.TempDir(), "state")
	base, token, stop := start(t, dir)
	require.NotEmpty(t, token)
	assert.NoFileExists(t, filepath.Join(dir, "token"), "it ends with its run, also with one that is killed")

	ask := func(method, path, body, token, host string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Host = host
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
		{"POST", "/interrupt", `{"runId":"a"}`}, {"POST", "/touch", `{"runId":"a"}`}, {"POST", "/destroy", `{"runId":"a"}`},
	} {
		for _, wrong := range []string{"", "wrong"} {
			status, _ := ask(r.method, r.path, r.body, wrong, "")
			assert.Equal(t, http.StatusUnauthorized, status, "%s with %q", r.path, wrong)
		}
		status, _ := ask(r.method, r.path, r.body, token, "rebound.example")
		assert.Equal(t, http.StatusForbidden, status, "%s by a name that a page could have", r.path)
	}
	status, page := ask("GET", "/", "", "", "")
	assert.Equal(t, http.StatusOK, status)
	assert.NotContains(t, page, token)

	status, id := ask("POST", "/start", "{}", token, "")
	require.Equal(t, http.StatusOK, status)
	other := httptest.NewServer(http.NotFoundHandler()) // any other program of this machine
	defer other.Close()
	out := command(t, base, token, id, `for p in `+port(t, base)+` `+port(t, other.URL)+`; do (exec 3<>/dev/tcp/`+machineAddr+`/$p) 2>/dev/null && echo "reached $p"; done; echo tried`)
	assert.Contains(t, out, "tried")
	assert.NotContains(t, out, "reached")

	// Another run has another token.
	stop()
	_, again, stop := start(t, dir)
	assert.NotEqual(t, token, again)
	stop()
}

// TestTokens: a run that shares its sessions has the token of the others, which
// nobody else can read; any other has its own.
func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := func(shared bool) string {
		token, err := doorToken(dir, shared)
		require.NoError(t, err)
		require.NotEmpty(t, token)
		return token
	}
	assert.NotEqual(t, token(false), token(false))
	kept := token(true)
	assert.Equal(t, kept, token(true))
	assert.NotEqual(t, kept, token(false))
	info, err := os.Stat(filepath.Join(dir, "token"))
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)
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

// TestStrangerAtThePort: who listens where a killed emulator did gets no request:
// it can't prove that it is that emulator.
func TestStrangerAtThePort(t *testing.T) {
	asked := 0
	stranger := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer stranger.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer plain.Close()
	dir := t.TempDir()
	first, err := startEmulator(t.Context(), dir)
	require.NoError(t, err)
	require.True(t, first.alive(t.Context()))
	p, err := os.FindProcess(first.PID)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool { return !first.alive(t.Context()) }, time.Minute, 20*time.Millisecond)
	for _, at := range []string{stranger.URL, strings.Replace(plain.URL, "http:", "https:", 1)} {
		squatted := *first
		squatted.URL = at
		assert.False(t, squatted.alive(t.Context()), at)
	}
	assert.Zero(t, asked)
	second, err := startEmulator(t.Context(), dir)
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, second.stop())
		// What the killed one has started may still write.
		assert.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, time.Minute, 20*time.Millisecond)
	}()
	assert.NotEqual(t, first.Token, second.Token)
	assert.NotEqual(t, first.Key, second.Key)
}
