package sandboxtest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const controlToken = "ctl_of-the-test"

// control sends a request to the control API.
func (c *raw) control(method, path string, body any, status int, out any) {
	c.t.Helper()
	req := c.request(method, "", body)
	var err error
	req.URL, err = req.URL.Parse(c.srv.ControlURL() + path)
	require.NoError(c.t, err)
	req.Header.Set("Authorization", "Bearer "+controlToken)
	resp := c.send(req)
	data, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, status, resp.StatusCode, "%s %s: %s", method, path, data)
	if out != nil {
		require.NoError(c.t, json.Unmarshal(data, out), "%s", data)
	}
}

// TestControl: a program in any language can use the control API for what Go tests do
// with methods.
func TestControl(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, ControlToken: controlToken})
	sess := c.create(obj{"name": "one"}).Session.ID

	c.control("POST", "/faults", obj{"operation": "get sandbox", "times": 1, "status": 503, "code": "odd"}, 204, nil)
	c.control("POST", "/faults", obj{"path": "/v2/sandboxes/sessions/*", "status": 500}, 204, nil)
	c.refused("GET", "/v2/sandboxes/one?projectId=prj", nil, 503, "odd")
	c.get("one", "", 200)
	for range 2 {
		c.refused("GET", session(sess), nil, 500, "internal_server_error")
	}
	c.control("DELETE", "/faults", nil, 204, nil)
	assert.Equal(t, "running", c.session(sess).Status)

	var before, after struct{ Now int64 }
	c.control("GET", "/clock", nil, 200, &before)
	c.control("POST", "/clock", obj{"advanceMs": 6 * 60_000}, 200, &after)
	assert.GreaterOrEqual(t, after.Now-before.Now, int64(6*60_000))
	assert.Equal(t, "stopped", c.session(sess).Status, "its timeout has passed")
	const years = int64(365 * 24 * 3600_000)
	c.control("POST", "/clock", obj{"advanceMs": 99 * years}, 200, &before)
	c.control("POST", "/clock", obj{"advanceMs": 99 * years}, 400, nil) // with the previous advance, more than a time.Duration can hold
	c.control("GET", "/clock", nil, 200, &after)
	assert.GreaterOrEqual(t, after.Now, before.Now)

	var seen struct {
		Requests []struct {
			Operation, Method, Path, Body string
			Status                        int
		}
	}
	c.control("GET", "/requests", nil, 200, &seen)
	require.NotEmpty(t, seen.Requests)
	assert.Equal(t, []any{"create sandbox", "POST", "/v2/sandboxes", 200}, []any{seen.Requests[0].Operation, seen.Requests[0].Method, seen.Requests[0].Path, seen.Requests[0].Status})
	assert.Contains(t, seen.Requests[0].Body, `"one"`)
	all := len(seen.Requests)
	c.control("GET", "/requests?after=1", nil, 200, &seen)
	assert.Len(t, seen.Requests, all-1)

	for _, bad := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/faults", obj{"operation": "no such"}},
		{"POST", "/faults", obj{"path": "["}},
		{"POST", "/faults", obj{"status": 20}},
		{"POST", "/faults", obj{"unknown": 1}},
		{"POST", "/faults", "{"},
		{"POST", "/clock", obj{"advanceMs": -1}},
		{"GET", "/requests?after=-1", nil},
	} {
		c.control(bad.method, bad.path, bad.body, 400, nil)
	}
	c.control("GET", "/", nil, 404, nil)
	c.control("PATCH", "/clock", nil, 404, nil)
}

// TestControlIsClosed attacks the control API: without its own token, with that
// of the other API, and from web pages.
func TestControlIsClosed(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, ControlToken: controlToken})
	ask := func(url, token string, edit func(*http.Request)) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(`{"advanceMs":3600000}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		if edit != nil {
			edit(req)
		}
		return c.send(req).StatusCode
	}
	began := srv.Now()
	clock := srv.ControlURL() + "/clock"
	for what, token := range map[string]string{
		"no token": "", "a wrong one": "ctl_x", "that of the API": srv.Credentials().Token, "that of a project": srv.OIDCToken(), "a part of it": controlToken[:6],
	} {
		assert.Equal(t, 403, ask(clock, token, nil), what)
	}
	assert.Equal(t, 403, ask(clock, controlToken, func(r *http.Request) { r.Header.Set("Origin", "http://"+r.URL.Host) }), "a web page")
	assert.Equal(t, 403, ask(clock, controlToken, func(r *http.Request) { r.Host = "rebound.example" }), "a foreign name that leads to this machine")
	assert.Less(t, srv.Now().Sub(began), time.Hour)
	assert.Equal(t, 403, ask(srv.URL+"/v2/sandboxes", controlToken, nil), "the token of the control API is not valid for the API")
	assert.Equal(t, 404, ask(strings.Replace(clock, "/control", "/controls", 1), controlToken, nil))

	// Without its own token the control API does not exist, whatever is sent.
	closed, _ := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	assert.Empty(t, closed.ControlURL())
	clock = strings.TrimSuffix(closed.URL, "/api") + "/control/v1/clock"
	for _, token := range []string{"", closed.Credentials().Token} {
		assert.Equal(t, 404, ask(clock, token, nil))
	}
	_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, Token: "same", ControlToken: "same"})
	require.ErrorContains(t, err, "ControlToken")
	env := strings.Join(srv.Environ(), " ")
	assert.Contains(t, env, "SANDBOX_CONTROL_TOKEN="+controlToken)
	assert.NotContains(t, strings.Join(closed.Environ(), " "), "CONTROL")
}

// TestEdgeCuts: if the edge cuts a stream after minutes, by breaking the connection or by
// ending it without a last record, the client loses nothing.
func TestEdgeCuts(t *testing.T) {
	t.Parallel()
	for _, cleanly := range []bool{true, false} {
		srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
		sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Timeout: time.Hour})
		require.NoError(t, err)
		srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Times: 1, CutAfter: 6 * time.Minute, EndCleanly: cleanly})
		type ending struct {
			out string
			err error
		}
		done := make(chan ending, 1)
		go func() {
			out, err := sb.CommandContext(t.Context(), "sh", "-c", "echo one; touch started; until test -e go; do sleep 0.1; done; echo two; exit 3").Output()
			done <- ending{string(out), err}
		}()
		require.Eventually(t, func() bool {
			resp := c.send(c.request("POST", session(sb.CurrentSession().ID())+"/fs/read", obj{"path": "started"})) // a request that starts no command
			return resp.StatusCode == 200
		}, eventually, 10*time.Millisecond)
		srv.Advance(6 * time.Minute)
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(srv.Requests(), func(r sandboxtest.Request) bool { return r.Operation == sandboxtest.CommandLogs })
		}, eventually, 10*time.Millisecond, "the log is opened")
		require.NoError(t, sb.FS().WriteFile(t.Context(), "go", nil, 0o644))
		got := <-done
		assert.Equal(t, "one\ntwo\n", got.out)
		var exit *sandbox.ExitError
		require.ErrorAs(t, got.err, &exit)
		assert.Equal(t, 3, exit.ExitCode())
	}
}
