package sandboxtest_test

import (
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// fileServer serves a file over HTTP, at the given addresses. Python's own server takes
// three times as long to start.
const fileServer = `
import socket, sys, threading
def serve(s):
    while True:
        c, _ = s.accept()
        while b"\r\n\r\n" not in c.recv(65536): pass
        data = open("file", "rb").read()
        c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        c.close()
for at in sys.argv[1:]:
    host, port = at.rsplit("/", 1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    threading.Thread(target=serve, args=(socket.create_server((host, int(port)), family=family),)).start()
`

func TestRoutes(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		port := needs.Port(t)
		made := c.create(obj{"name": "one", "ports": []int{port}})
		url := made.Routes[0].URL
		get := func() (int, string) {
			resp, err := c.client.Get(url + "/file?x=1")
			require.NoError(t, err)
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(data)
		}
		status, _ := get()
		assert.Equal(t, 502, status)

		serve := func(sess string) {
			c.sh(sess, "echo served > file")
			c.detach(sess, obj{"command": "python3", "args": []string{"-c", fileServer, "0.0.0.0/" + strconv.Itoa(port)}})
			require.Eventually(t, func() bool {
				status, body := get()
				return status == 200 && body == "served\n"
			}, eventually, 20*time.Millisecond)
		}
		serve(made.Session.ID)
		const large = 200_000
		c.sh(made.Session.ID, "head -c 200000 /dev/zero > file")
		_, body := get()
		require.Len(t, body, large)
		stopped := c.stop(made.Session.ID).Session
		assert.Positive(t, stopped.NetworkTransfer.Ingress)
		assert.Less(t, stopped.NetworkTransfer.Ingress, int64(large), "bytes received")
		assert.GreaterOrEqual(t, stopped.NetworkTransfer.Egress, int64(large), "bytes sent")
		status, body = get()
		assert.Equal(t, 410, status)
		assert.Contains(t, body, "SANDBOX_STOPPED")
		back := c.get("one", "&resume=true", 200)
		assert.Equal(t, made.Routes, back.Routes)
		serve(back.Session.ID)
		c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"ports": []int{}}, 200, nil)
		_, err := c.client.Get(url)
		require.Error(t, err, "the route is gone")
	})
}

// TestSystemRoutes: a response contains the route of terminals only if the request asks
// for it.
func TestSystemRoutes(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	made := c.create(obj{"name": "one", "ports": []int{3000}})
	for _, path := range []string{"/v2/sandboxes/one?projectId=prj", session(made.Session.ID) + "?"} {
		for query, more := range map[string]int{"": 0, "&__includeSystemRoutes=false": 0, "&__includeSystemRoutes=true": 1} {
			var got wire.SessionResponse
			c.call("GET", path+query, nil, 200, &got)
			require.Len(t, got.Routes, 1+more, path+query)
			assert.Equal(t, made.Routes[0], got.Routes[0])
			if more > 0 {
				route := got.Routes[1]
				assert.Equal(t, []any{26661, true}, []any{route.Port, route.System})
				assert.NotEmpty(t, route.URL)
				assert.NotEmpty(t, route.Subdomain)
			}
		}
		c.refused("GET", path+"&__includeSystemRoutes=x", nil, 400, "bad_request")
	}
}

// TestRouteToLoopback: a server that listens only on 127.0.0.1 can't be reached from
// outside its sandbox, whether the sandbox has its own network or not.
func TestRouteToLoopback(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	srv, c := start(t, nil)
	if !srv.Enforces().Policies {
		needs.Other(t, "sandboxes may not have networks of their own")
	}
	policies := []string{"deny-all", "allow-all"}
	if !needs.Slow() {
		policies = policies[:1] // the policy that denies everything
	}
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			made := c.create(obj{"ports": []int{3000, 4000, 5000}, "networkPolicy": obj{"mode": policy}})
			get := func(i int) (int, string) {
				resp, err := c.client.Get(made.Routes[i].URL)
				require.NoError(t, err)
				defer resp.Body.Close()
				data, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return resp.StatusCode, string(data)
			}
			c.sh(made.Session.ID, "echo served > file")
			c.detach(made.Session.ID, obj{"command": "python3", "args": []string{"-c", fileServer, "127.0.0.1/3000", "::1/5000", "0.0.0.0/4000"}})
			require.Eventually(t, func() bool { status, _ := get(1); return status == 200 }, eventually, 20*time.Millisecond)
			for _, i := range []int{0, 2} {
				require.Eventually(t, func() bool {
					status, body := get(i)
					return status == 502 && strings.Contains(body, "let it listen on 0.0.0.0")
				}, eventually, 20*time.Millisecond)
			}
			c.sh(made.Session.ID, `python3 -c 'import socket; socket.create_connection(("127.0.0.1", 3000))'`)
		})
	}
}

// term is a client of a terminal.
type term struct {
	t    *testing.T
	conn *websocket.Conn
	out  strings.Builder
}

func (c *raw) terminal(t *testing.T, sess string, start any) *term {
	var response wire.InteractiveResponse
	c.call("POST", session(sess)+"/interactive", obj{}, 200, &response)
	conn, _, err := websocket.Dial(t.Context(), response.URL+"?token="+response.Token, nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	x := &term{t: t, conn: conn}
	x.send(start)
	return x
}

func (x *term) send(v any) {
	data, err := json.Marshal(v)
	require.NoError(x.t, err)
	require.NoError(x.t, x.conn.Write(x.t.Context(), websocket.MessageText, data))
}

func (x *term) input(s string) {
	require.NoError(x.t, x.conn.Write(x.t.Context(), websocket.MessageBinary, []byte(s)))
}

// until reads until the output contains the text.
func (x *term) until(text string) {
	x.t.Helper()
	x.match(regexp.QuoteMeta(text))
}

// match reads until the output matches the pattern.
func (x *term) match(pattern string) {
	x.t.Helper()
	want := regexp.MustCompile(pattern)
	ctx, cancel := context.WithTimeout(x.t.Context(), eventually)
	defer cancel()
	for !want.MatchString(x.out.String()) {
		kind, data, err := x.conn.Read(ctx)
		require.NoError(x.t, err, "got %q", x.out.String())
		require.Equal(x.t, websocket.MessageBinary, kind)
		x.out.Write(data)
	}
}

// exit reads to the end and returns the exit code.
func (x *term) exit() int {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), eventually)
	defer cancel()
	for {
		kind, data, err := x.conn.Read(ctx)
		require.NoError(x.t, err, "got %q", x.out.String())
		if kind == websocket.MessageBinary {
			x.out.Write(data)
			continue
		}
		var m struct {
			Type string
			Code *int
		}
		require.NoError(x.t, json.Unmarshal(data, &m))
		require.Equal(x.t, "exit", m.Type)
		_, _, err = x.conn.Read(ctx)
		assert.Equal(x.t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
		return *m.Code
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(obj{"env": obj{"A": "from sandbox"}}).Session.ID
		c.sh(sess, "mkdir -p d")
		x := c.terminal(t, sess, obj{"type": "start", "command": "bash", "args": []string{"--norc", "--noprofile"},
			"env": []string{"B=from start", "PS1=$ "}, "cwd": "d", "cols": 100, "rows": 30})
		x.input("stty size; tty; echo \"$A, $B\" $(basename $PWD)\n")
		x.until("30 100")
		x.until("/dev/pts/")
		x.until("from sandbox, from start d")
		// Wait for the prompt: before it, bash sets the size that it has queried earlier.
		x.match(`from start d\r\n.*\$ $`)
		x.send(obj{"type": "resize", "cols": 120, "rows": 40})
		x.input("stty size\n")
		x.until("40 120")
		x.input("exit 9\n")
		assert.Equal(t, 9, x.exit())

		// The terminal turns ^C into a signal.
		x = c.terminal(t, sess, obj{"type": "start", "command": "sh",
			"args": []string{"-c", "trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.1; done"}})
		x.until("up")
		x.input("\x03")
		assert.Equal(t, 5, x.exit())
		assert.Contains(t, x.out.String(), "caught")

		// A client that disconnects ends the program.
		mark := marked(4)
		x = c.terminal(t, sess, obj{"type": "start", "command": "sh", "args": []string{"-c", "echo up; sleep " + mark}})
		x.until("up")
		assertRuns(t, mark)
		require.NoError(t, x.conn.CloseNow())
		assert.Eventually(t, func() bool { return !alive(t, mark) }, eventually, 10*time.Millisecond)

		// And so does a stop.
		x = c.terminal(t, sess, obj{"type": "start", "command": "sh", "args": []string{"-c", "echo up; sleep " + mark}})
		x.until("up")
		c.stop(sess)
		assert.Equal(t, 137, x.exit())
		assert.False(t, alive(t, mark))
		c.refused("POST", session(sess)+"/interactive", obj{}, 410, "sandbox_stopped")
	})
}

func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	var response wire.InteractiveResponse
	c.call("POST", session(sess)+"/interactive", obj{}, 200, &response)
	for _, url := range []string{response.URL, response.URL + "?token=wrong", response.URL + "x?token=" + response.Token} {
		_, resp, err := websocket.Dial(t.Context(), url, nil)
		require.Error(t, err)
		assert.Contains(t, []int{401, 404}, resp.StatusCode)
	}
	for _, first := range []any{obj{"type": "resize"}, "x", obj{"type": "start", "command": "sh", "env": []string{"x"}}} {
		x := c.terminal(t, sess, first)
		_, _, err := x.conn.Read(t.Context())
		assert.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
	}
	x := c.terminal(t, sess, obj{"type": "start", "command": "no-such-program"})
	assert.Equal(t, 127, x.exit())
	assert.Contains(t, x.out.String(), "no-such-program")
}
