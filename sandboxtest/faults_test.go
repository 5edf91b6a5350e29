package sandboxtest_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestFaults(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	sess := c.create(obj{"name": "one"}).Session.ID
	touch := func(name string) *http.Request {
		return c.request("POST", session(sess)+"/cmd", obj{"command": "touch", "args": []string{name}, "wait": true, "logs": true})
	}
	acted := func(name string) bool {
		var res result
		require.Eventually(t, func() bool {
			res = c.run(sess, obj{"command": "ls", "args": []string{name}})
			return res.code == 0
		}, eventually, time.Millisecond)
		return res.code == 0
	}

	t.Run("status", func(t *testing.T) {
		srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Status: 429, RetryAfter: 1500 * time.Millisecond, Times: 2})
		for range 2 {
			resp := c.send(touch("status"))
			assert.Equal(t, 429, resp.StatusCode)
			assert.Equal(t, "2", resp.Header.Get("Retry-After"))
		}
		c.get("one", "", 200) // another operation
		assert.Equal(t, 200, c.send(touch("status")).StatusCode, "the fault has occurred twice")
	})
	t.Run("act then status", func(t *testing.T) {
		srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, ActThenStatus: 502, Code: "bad_gateway", Times: 1})
		resp := c.send(touch("gateway"))
		assert.Equal(t, 502, resp.StatusCode)
		assert.Equal(t, "application/json; charset=utf-8", resp.Header.Get("Content-Type"))
		assert.True(t, acted("gateway"))
	})
	t.Run("drop before", func(t *testing.T) {
		srv.Inject(sandboxtest.Fault{Operation: sandboxtest.MakeDir, DropBefore: true, Times: 1})
		_, err := c.client.Do(c.request("POST", session(sess)+"/fs/mkdir", obj{"path": "dropped"}))
		require.Error(t, err)
		c.call("POST", session(sess)+"/fs/mkdir", obj{"path": "dropped"}, 200, nil)
	})
	t.Run("drop after", func(t *testing.T) {
		srv.Inject(sandboxtest.Fault{Operation: sandboxtest.MakeDir, DropAfter: true, Times: 1})
		_, err := c.client.Do(c.request("POST", session(sess)+"/fs/mkdir", obj{"path": "made"}))
		require.Error(t, err)
		c.refused("POST", session(sess)+"/fs/mkdir", obj{"path": "made"}, 400, "file_error")
	})
	t.Run("cut", func(t *testing.T) {
		srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: 300, Times: 1})
		resp := c.send(c.request("POST", session(sess)+"/cmd", obj{"command": "seq", "args": []string{"1000"}, "wait": true, "logs": true}))
		data, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Len(t, data, 300)
	})
	t.Run("delay and remove", func(t *testing.T) {
		remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.GetSandbox, Delay: time.Hour})
		var wg sync.WaitGroup
		req := c.request("GET", "/v2/sandboxes/one?projectId=prj", nil)
		wg.Go(func() {
			resp, err := (&http.Client{Timeout: 50 * time.Millisecond, Transport: c.client.Transport}).Do(req)
			if !assert.Error(t, err) {
				resp.Body.Close()
			}
		})
		wg.Wait()
		remove()
		c.get("one", "", 200)
	})
	t.Run("match and probability", func(t *testing.T) {
		remove := srv.Inject(sandboxtest.Fault{
			Match: func(r *http.Request) bool { return r.Header.Get("X-Test") == "yes" }, Probability: 0.5, Status: 500,
		})
		defer remove()
		seen := make(map[int]int)
		for range 100 {
			req := c.request("GET", "/v2/sandboxes", nil)
			req.Header.Set("X-Test", "yes")
			resp := c.send(req)
			resp.Body.Close()
			seen[resp.StatusCode]++
		}
		assert.Positive(t, seen[200])
		assert.Positive(t, seen[500])
		c.get("one", "", 200)
	})
}

func TestRequests(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []sandboxtest.Request
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, OnRequest: func(r sandboxtest.Request) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, r)
	}})
	sess := c.create(obj{"name": "one"}).Session.ID
	c.refused("GET", "/v2/sandboxes/none?projectId=prj", nil, 404, "not_found")
	assert.Contains(t, c.refused("POST", "/v1/sandboxes", obj{}, 404, "not_found"), "does not have version 1")
	c.refused("PUT", "/v2/sandboxes", nil, 405, "method_not_allowed")
	list := srv.Requests()
	require.Len(t, list, 4)
	assert.Equal(t, sandboxtest.CreateSandbox, list[0].Operation)
	assert.Equal(t, 200, list[0].Status)
	assert.JSONEq(t, `{"projectId":"prj","name":"one"}`, string(list[0].Body))
	assert.Equal(t, "<redacted>", list[0].Header.Get("Authorization"))
	assert.Equal(t, sandboxtest.GetSandbox, list[1].Operation)
	assert.Equal(t, 404, list[1].Status)
	assert.Equal(t, "prj", list[1].Query.Get("projectId"))
	assert.Empty(t, list[2].Operation)
	mu.Lock()
	assert.Len(t, told, 4)
	mu.Unlock()

	// A client with a response finds its status, even while the body is still being sent.
	follow := c.stream("POST", session(sess)+"/cmd", obj{"command": "sleep", "args": []string{"1000"}, "wait": true, "logs": true})
	last := srv.Requests()[4]
	assert.Equal(t, []any{sandboxtest.RunCommand, 200, time.Duration(0)}, []any{last.Operation, last.Status, last.Duration})
	c.stop(sess)
	for follow.next() != nil {
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, 200, told[4].Status)
}

func TestHandleCommand(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	srv.HandleCommand("npm", func(_ context.Context, inv *sandboxtest.Invocation) int {
		_, _ = io.WriteString(inv.Stdout, "npm "+inv.Args[0]+" "+inv.Env["A"]+" "+inv.Cwd)
		return 3
	})
	srv.HandleCommand("npm in*", func(_ context.Context, inv *sandboxtest.Invocation) int {
		_, _ = io.WriteString(inv.Stderr, "installed")
		return 0
	})
	srv.HandleCommand("*/slow", func(ctx context.Context, _ *sandboxtest.Invocation) int {
		<-ctx.Done()
		return 0
	})
	sess := c.create(obj{"env": obj{"A": "b"}}).Session.ID
	res := c.run(sess, obj{"command": "npm", "args": []string{"test", "x"}, "cwd": "app"})
	assert.Equal(t, 3, res.code)
	assert.Equal(t, "npm test b /vercel/sandbox/app", res.stdout)
	assert.Equal(t, "installed", c.run(sess, obj{"command": "npm", "args": []string{"install", "a/b"}}).stderr)
	assert.Equal(t, "real\n", c.sh(sess, "echo real"))

	cmd := c.detach(sess, obj{"command": "/opt/bin/slow"})
	c.kill(cmd, 15, 200)
	assert.Equal(t, 143, *c.wait(cmd).ExitCode)
	cmd = c.detach(sess, obj{"command": "/opt/bin/slow", "timeout": 1000})
	srv.Advance(time.Second)
	assert.Equal(t, 137, *c.wait(cmd).ExitCode)
	l := c.stream("POST", session(sess)+"/cmd", obj{"command": "/opt/bin/slow", "wait": true, "logs": true})
	require.NotNil(t, l.next().Command)
	var out wire.StopResponse
	c.call("POST", session(sess)+"/stop", nil, 200, &out)
	assert.Equal(t, "error", l.next().Stream)

	assert.Panics(t, func() { srv.HandleCommand("", nil) })
	assert.Panics(t, func() { srv.HandleCommand("[", func(context.Context, *sandboxtest.Invocation) int { return 0 }) })
}
