package sandboxtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testmain"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	// The emulator's own tests set its speed themselves.
	if err := os.Unsetenv("SANDBOX_TEST_REALISTIC"); err != nil {
		panic(err)
	}
	needs.Overlap()
	testmain.Main(withShared{m})
}

// shared is the server in folder mode that tests share.
var shared struct {
	sync.Mutex
	srv *sandboxtest.Server
}

// withShared closes the shared server after the tests.
type withShared struct{ tests *testing.M }

func (m withShared) Run() int {
	code := m.tests.Run()
	if shared.srv != nil {
		if err := shared.srv.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the shared server:", err)
			code = 1
		}
	}
	return code
}

// startShared returns the server in folder mode that tests share. Use it for tests that give
// their sandboxes no names, and that neither count requests nor change the server's clock,
// faults or options.
func startShared(t testing.TB) (*sandboxtest.Server, *raw) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.srv == nil {
		var err error
		shared.srv, err = sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder})
		require.NoError(t, err)
	}
	return shared.srv, newRaw(t, shared.srv)
}

// eventually is how long a test waits for another process before it fails.
const eventually = 2 * time.Minute

// raw is an HTTP client that does not know the API.
type raw struct {
	t      testing.TB
	srv    *sandboxtest.Server
	client *http.Client
}

func newRaw(t testing.TB, srv *sandboxtest.Server) *raw {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &raw{t, srv, &http.Client{Transport: transport}}
}

func start(t testing.TB, opts *sandboxtest.Options) (*sandboxtest.Server, *raw) {
	srv := sandboxtest.New(t, opts)
	return srv, newRaw(t, srv)
}

// inModes runs a test in each mode that this machine supports.
func inModes(t *testing.T, opts sandboxtest.Options, f func(t *testing.T, srv *sandboxtest.Server, c *raw)) {
	for _, mode := range []sandboxtest.Mode{sandboxtest.Folder, sandboxtest.Namespace} {
		t.Run(string(mode), func(t *testing.T) {
			opts.Mode = mode
			srv, err := sandboxtest.NewServer(&opts)
			if err != nil && mode == sandboxtest.Namespace {
				needs.Missing(t, "namespace mode: %v", err)
			}
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, srv.Close()) })
			f(t, srv, newRaw(t, srv))
		})
	}
}

// onShared runs a test on the shared server; see [startShared]. With SANDBOX_SLOW=1 it runs
// the test in each mode.
func onShared(t *testing.T, f func(t *testing.T, srv *sandboxtest.Server, c *raw)) {
	if needs.Slow() {
		inModes(t, sandboxtest.Options{}, f)
		return
	}
	srv, c := startShared(t)
	f(t, srv, c)
}

// inFolders runs a test in folder mode only, because that is cheaper. With SANDBOX_SLOW=1
// it runs the test in each mode. Use it for tests that hardly depend on the mode.
func inFolders(t *testing.T, opts sandboxtest.Options, f func(t *testing.T, srv *sandboxtest.Server, c *raw)) {
	if needs.Slow() {
		inModes(t, opts, f)
		return
	}
	opts.Mode = sandboxtest.Folder
	srv, c := start(t, &opts)
	f(t, srv, c)
}

func (c *raw) request(method, path string, body any) *http.Request {
	c.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case io.Reader:
		r = b
	default:
		data, err := json.Marshal(b)
		require.NoError(c.t, err)
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequest(method, c.srv.URL+path, r)
	require.NoError(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.srv.Credentials().Token)
	return req
}

func (c *raw) send(req *http.Request) *http.Response {
	c.t.Helper()
	resp, err := c.client.Do(req)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// call sends JSON and decodes the response, which must have the given status.
func (c *raw) call(method, path string, body any, status int, out any) {
	c.t.Helper()
	resp := c.send(c.request(method, path, body))
	data, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, status, resp.StatusCode, "%s %s: %s", method, path, data)
	assert.NotEmpty(c.t, resp.Header.Get("X-Vercel-Id"))
	if out != nil {
		require.NoError(c.t, json.Unmarshal(data, out), "%s", data)
	}
}

// refused sends a request that must fail with the given status and code, and
// returns the error's message.
func (c *raw) refused(method, path string, body any, status int, code string) string {
	c.t.Helper()
	var out wire.ErrorResponse
	c.call(method, path, body, status, &out)
	assert.Equal(c.t, code, out.Error.Code, "%s", out.Error.Message)
	assert.NotEmpty(c.t, out.Error.Message)
	return out.Error.Message
}

type obj = map[string]any

func (c *raw) create(params obj) *wire.SandboxResponse {
	c.t.Helper()
	body := obj{"projectId": "prj"}
	maps.Copy(body, params)
	out := new(wire.SandboxResponse)
	c.call("POST", "/v2/sandboxes", body, 200, out)
	return out
}

func (c *raw) get(name, query string, status int) *wire.SandboxResponse {
	c.t.Helper()
	out := new(wire.SandboxResponse)
	c.call("GET", "/v2/sandboxes/"+name+"?projectId=prj"+query, nil, status, out)
	return out
}

func (c *raw) session(id string) wire.Session {
	c.t.Helper()
	var out wire.SessionResponse
	c.call("GET", session(id), nil, 200, &out)
	return out.Session
}

func (c *raw) stop(id string) *wire.StopResponse {
	c.t.Helper()
	out := new(wire.StopResponse)
	c.call("POST", session(id)+"/stop", nil, 200, out)
	return out
}

func session(id string) string { return "/v2/sandboxes/sessions/" + id }

// detach starts a command.
func (c *raw) detach(sess string, params obj) wire.Command {
	c.t.Helper()
	var out wire.CommandResponse
	c.call("POST", session(sess)+"/cmd", params, 200, &out)
	assert.Nil(c.t, out.Command.ExitCode)
	return out.Command
}

func (c *raw) wait(cmd wire.Command) wire.Command {
	c.t.Helper()
	var out wire.CommandResponse
	c.call("GET", session(cmd.SessionID)+"/cmd/"+cmd.ID+"?wait=true", nil, 200, &out)
	require.NotNil(c.t, out.Command.ExitCode)
	return out.Command
}

func (c *raw) kill(cmd wire.Command, signal, status int) {
	c.t.Helper()
	c.call("POST", session(cmd.SessionID)+"/cmd/"+cmd.ID+"/kill", obj{"signal": signal}, status, nil)
}

// record is one line of a stream.
type record struct {
	Stream  string          `json:"stream"`
	Data    json.RawMessage `json:"data"`
	Command *wire.Command   `json:"command"`
}

func (r record) text(t testing.TB) string {
	var s string
	require.NoError(t, json.Unmarshal(r.Data, &s))
	return s
}

// lines reads a stream record by record.
type lines struct {
	t    testing.TB
	dec  *json.Decoder
	body io.ReadCloser
}

func (c *raw) stream(method, path string, body any) *lines {
	c.t.Helper()
	resp := c.send(c.request(method, path, body))
	require.Equal(c.t, 200, resp.StatusCode)
	require.Equal(c.t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	return &lines{c.t, json.NewDecoder(resp.Body), resp.Body}
}

// next returns nil at the end.
func (l *lines) next() *record {
	l.t.Helper()
	r := new(record)
	err := l.dec.Decode(r)
	if err == io.EOF {
		return nil
	}
	require.NoError(l.t, err)
	return r
}

// result is the output and the end of a waited command.
type result struct {
	stdout, stderr string
	code           int
	command        wire.Command
}

// run runs a command to its end.
func (c *raw) run(sess string, params obj) result {
	c.t.Helper()
	params["wait"], params["logs"] = true, true
	l := c.stream("POST", session(sess)+"/cmd", params)
	first := l.next()
	require.NotNil(c.t, first.Command)
	require.Nil(c.t, first.Command.ExitCode)
	var res result
	for {
		r := l.next()
		require.NotNil(c.t, r, "the stream ended early")
		switch {
		case r.Command != nil:
			require.NotNil(c.t, r.Command.ExitCode)
			res.code, res.command = *r.Command.ExitCode, *r.Command
			require.Nil(c.t, l.next())
			return res
		case r.Stream == "stdout":
			res.stdout += r.text(c.t)
		case r.Stream == "stderr":
			res.stderr += r.text(c.t)
		default:
			require.Fail(c.t, "unexpected record", "%s %s", r.Stream, r.Data)
		}
	}
}

// sh runs a script, which must succeed, and returns its output.
func (c *raw) sh(sess, script string) string {
	c.t.Helper()
	res := c.run(sess, obj{"command": "sh", "args": []string{"-c", script}})
	require.Zero(c.t, res.code, "%s%s", res.stdout, res.stderr)
	return res.stdout
}
