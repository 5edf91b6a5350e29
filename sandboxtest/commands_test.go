package sandboxtest_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestRunCommand(t *testing.T) {
	t.Parallel()
	inModes(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(obj{"env": obj{"A": "from sandbox", "B": "from sandbox"}}).Session.ID
		res := c.run(sess, obj{
			"command": "sh", "args": []string{"-c", `echo "$A, $B"; pwd >&2; exit 3`}, "env": obj{"B": "from command"},
		})
		assert.Equal(t, 3, res.code)
		assert.Equal(t, "from sandbox, from command\n", res.stdout)
		assert.True(t, strings.HasSuffix(res.stderr, "/vercel/sandbox\n"), res.stderr)
		assert.Equal(t, "/vercel/sandbox", res.command.Cwd)
		assert.NotNil(t, res.command.DurationMs)

		c.sh(sess, "mkdir -p sub/dir")
		res = c.run(sess, obj{"command": "pwd", "cwd": "sub/dir"})
		assert.True(t, strings.HasSuffix(res.stdout, "/vercel/sandbox/sub/dir\n"), res.stdout)
		assert.Equal(t, "/vercel/sandbox/sub/dir", res.command.Cwd)

		c.refused("POST", session(sess)+"/cmd", obj{"command": "no-such-program"}, 400, "executable_not_found")
		c.refused("POST", session(sess)+"/cmd", obj{"command": "true", "cwd": "/no/such/dir"}, 400, "bad_request")
		c.refused("POST", session(sess)+"/cmd", obj{"args": []string{"x"}}, 400, "bad_request")

		var list wire.CommandsResponse
		c.call("GET", session(sess)+"/cmd", nil, 200, &list)
		assert.Len(t, list.Commands, 3)
	})
}

func TestOutputArrivesWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	// Each line is written only after the previous one was received here.
	l := c.stream("POST", session(sess)+"/cmd", obj{
		"command": "sh", "args": []string{"-c", `for i in 1 2 3; do echo $i; while [ ! -e go$i ]; do sleep 0.1; done; done`},
		"wait": true, "logs": true,
	})
	cmd := l.next().Command
	require.NotNil(t, cmd)
	for i := 1; i <= 3; i++ {
		assert.Equal(t, strconv.Itoa(i)+"\n", l.next().text(t))
		c.sh(sess, "touch go"+strconv.Itoa(i))
	}
	assert.Zero(t, *l.next().Command.ExitCode)
}

func TestLogsReplayAndFollow(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two >&2"}})
	path := session(sess) + "/cmd/" + cmd.ID + "/logs"
	first := c.stream("GET", path, nil)
	assert.Equal(t, "one\n", first.next().text(t))
	second := c.stream("GET", path, nil)
	assert.Equal(t, "one\n", second.next().text(t))
	c.sh(sess, "touch go")
	for _, l := range []*lines{first, second, c.stream("GET", path, nil)} {
		r := l.next()
		if r.text(t) == "one\n" {
			r = l.next()
		}
		assert.Equal(t, "stderr", r.Stream)
		assert.Equal(t, "two\n", r.text(t))
		assert.Nil(t, l.next())
	}
	assert.Zero(t, *c.wait(cmd).ExitCode)
}

func TestDisconnectDoesNotKill(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	l := c.stream("POST", session(sess)+"/cmd", obj{
		"command": "sh", "args": []string{"-c", "while [ ! -e go ]; do sleep 0.1; done; exit 5"}, "wait": true, "logs": true,
	})
	cmd := l.next().Command
	require.NoError(t, l.body.Close())
	c.sh(sess, "touch go")
	assert.Equal(t, 5, *c.wait(*cmd).ExitCode)
}

func TestUnicodeStaysWhole(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	// The two halves of é are written separately, with a lone half at the end.
	res := c.run(sess, obj{"command": "sh", "args": []string{"-c", `printf 'caf\303'; sleep 0.2; printf '\251 \377 end\303'`}})
	assert.Equal(t, "café \ufffd end\ufffd", res.stdout)
	res = c.run(sess, obj{"command": "printf", "args": []string{`\000\001\037"\\</\342\200\250`}})
	assert.Equal(t, "\x00\x01\x1f\"\\</\u2028", res.stdout)
}

func TestKill(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(nil).Session.ID
		for _, signal := range []int{1, 2, 9, 15} {
			cmd := c.detach(sess, obj{"command": "sleep", "args": []string{"1000"}})
			c.kill(cmd, signal, 200)
			assert.Equal(t, 128+signal, *c.wait(cmd).ExitCode)
			c.refused("POST", session(sess)+"/cmd/"+cmd.ID+"/kill", obj{"signal": 9}, 404, "command_not_found_or_exited")
		}
		// One signal is caught; another stops and continues the process.
		cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", `trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done`}})
		l := c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil)
		assert.Equal(t, "ready\n", l.next().text(t))
		c.kill(cmd, 19, 200)
		c.kill(cmd, 18, 200)
		c.kill(cmd, 15, 200)
		r := l.next()
		for r.Stream == "stderr" { // the shell may report the end of its sleep
			r = l.next()
		}
		assert.Equal(t, "caught\n", r.text(t))
		assert.Equal(t, 7, *c.wait(cmd).ExitCode)

		cmd = c.detach(sess, obj{"command": "sleep", "args": []string{"1000"}})
		path := session(sess) + "/cmd/" + cmd.ID + "/kill"
		c.refused("POST", path, obj{}, 400, "bad_request")
		c.refused("POST", path, obj{"signal": "SIGTERM"}, 400, "bad_request")
		c.refused("POST", path, obj{"signal": 0}, 400, "bad_request")
		c.refused("POST", path, obj{"signal": 65}, 400, "bad_request")
		c.refused("POST", session(sess)+"/cmd/cmd_none/kill", obj{"signal": 9}, 404, "command_not_found_or_exited")
	})
}

func TestCommandTimeout(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	sess := c.create(obj{"timeout": day.Milliseconds()}).Session.ID
	cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", "sleep 1000 & wait"}, "timeout": time.Hour.Milliseconds()})
	srv.Advance(59 * time.Minute)
	var out wire.CommandResponse
	c.call("GET", session(sess)+"/cmd/"+cmd.ID, nil, 200, &out)
	require.Nil(t, out.Command.ExitCode)
	srv.Advance(time.Minute)
	assert.Equal(t, 137, *c.wait(cmd).ExitCode)
	c.refused("POST", session(sess)+"/cmd", obj{"command": "true", "timeout": -1}, 400, "bad_request")
}

// assertRuns waits for a process whose arguments contain the text. A started process may
// not show its arguments yet: between exec and the moment when the kernel has set them up.
func assertRuns(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return alive(t, text) }, eventually, time.Millisecond, "no process has %q", text)
}

// alive reports whether a process's arguments contain the text.
func alive(t *testing.T, text string) bool {
	if runtime.GOOS != "linux" {
		needs.Other(t, "needs /proc")
	}
	procs, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), text) {
			return true
		}
	}
	return false
}

// marked returns an argument for sleep that identifies the process.
func marked(n int) string { return fmt.Sprintf("%d.%d", 100_000+n, os.Getpid()) }

func TestStopEndsEveryProcess(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(nil).Session.ID
		mark := marked(1)
		// One process in the background, one in its own session, and one of the command
		// itself.
		cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", "sleep " + mark + " & setsid sleep " + mark + " & echo up; sleep " + mark}})
		l := c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil)
		assert.Equal(t, "up\n", l.next().text(t))
		assertRuns(t, mark)
		assert.Equal(t, "stopped", c.stop(sess).Session.Status)
		assert.False(t, alive(t, mark))

		c.refused("POST", session(sess)+"/cmd", obj{"command": "true"}, 410, "sandbox_stopped")
		c.refused("GET", session(sess)+"/cmd/"+cmd.ID, nil, 410, "sandbox_stopped")
		c.refused("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil, 410, "sandbox_stopped")
		c.refused("POST", session(sess)+"/fs/read", obj{"path": "x"}, 410, "sandbox_stopped")
	})
}

func TestWaitersLearnOfTheStop(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	l := c.stream("POST", session(sess)+"/cmd", obj{"command": "sh", "args": []string{"-c", "echo up; sleep 1000"}, "wait": true, "logs": true})
	require.NotNil(t, l.next().Command)
	assert.Equal(t, "up\n", l.next().text(t))
	cmd := c.detach(sess, obj{"command": "sleep", "args": []string{"1000"}})
	logs := c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil)
	c.stop(sess)
	for _, l := range []*lines{l, logs} {
		r := l.next()
		assert.Equal(t, "error", r.Stream)
		assert.JSONEq(t, `{"code":"sandbox_stream_closed","message":"Sandbox stream was closed and is not accepting commands."}`, string(r.Data))
		assert.Nil(t, l.next())
	}
}

func TestMuchOutput(t *testing.T) {
	size := 256 << 20
	if !needs.Slow() {
		size = 20 << 20
	}
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	sess := c.create(nil).Session.ID
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", fmt.Sprintf("yes 0123456789abcdef | head -c %d", size)}})
	require.Zero(t, *c.wait(cmd).ExitCode)
	for range 2 { // replays from the start each time
		resp := c.send(c.request("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil))
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.Greater(t, n, int64(size))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(12<<20))
}

func TestSudoAndUser(t *testing.T) {
	t.Parallel()
	srv, c := start(t, nil)
	if srv.Mode() != sandboxtest.Namespace {
		needs.Missing(t, "namespace mode")
	}
	sess := c.create(nil).Session.ID
	assert.Equal(t, "vercel-sandbox\n1000\n", c.sh(sess, "id -un; id -u"))
	res := c.run(sess, obj{"command": "id", "args": []string{"-u"}, "sudo": true})
	assert.Equal(t, "0\n", res.stdout)
	if syscall.Getuid() == 0 {
		res = c.run(sess, obj{"command": "sh", "args": []string{"-c", "echo x > /vercel/own; stat -c %U /vercel/own"}, "sudo": true})
		assert.Equal(t, "root\n", res.stdout)
	}
}

func TestWaitParameter(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	cmd := c.detach(sess, obj{"command": "sleep", "args": []string{"1000"}})
	path := session(sess) + "/cmd/" + cmd.ID
	c.refused("GET", path+"?wait=yes", nil, 400, "bad_request")
	c.refused("GET", session(sess)+"/cmd/none", nil, 404, "not_found")
	c.refused("GET", session("none")+"/cmd/none", nil, 404, "not_found")
	// A request that doesn't wait returns while another one waits.
	req := c.request("GET", path+"?wait=true", nil)
	done := make(chan *http.Response, 1)
	go func() {
		resp, err := c.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- resp
	}()
	c.kill(cmd, 9, 200)
	assert.Equal(t, 200, (<-done).StatusCode)
}

// TestExitHiddenUntilWaited: until a client has waited for the end of a command, reads
// show it as running.
func TestExitHiddenUntilWaited(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	sess := c.create(nil).Session.ID
	first := c.detach(sess, obj{"command": "true"})
	path := session(sess) + "/cmd/" + first.ID
	for r := c.stream("GET", path+"/logs", nil); r.next() != nil; { // until the command ends
	}
	exits := func() []*int {
		var one wire.CommandResponse
		c.call("GET", path, nil, 200, &one)
		var all wire.CommandsResponse
		c.call("GET", session(sess)+"/cmd", nil, 200, &all)
		return []*int{one.Command.ExitCode, all.Commands[len(all.Commands)-1].ExitCode}
	}
	assert.Equal(t, []*int{nil, nil}, exits())
	c.wait(first)
	assert.Equal(t, []*int{new(0), new(0)}, exits())

	srv.Advance(time.Second)
	second := c.detach(sess, obj{"command": "true"})
	var all wire.CommandsResponse
	c.call("GET", session(sess)+"/cmd", nil, 200, &all)
	assert.Equal(t, []string{second.ID, first.ID}, []string{all.Commands[0].ID, all.Commands[1].ID}, "the newest comes first")
}

// TestContentTypeIsNeeded: a request that changes something must have a content
// type, even without a body.
func TestContentTypeIsNeeded(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	response := c.create(nil)
	sess := response.Session.ID
	for _, path := range []string{"/v2/sandboxes", session(sess) + "/stop", session(sess) + "/snapshot", session(sess) + "/cmd", session(sess) + "/fs/write"} {
		for _, kind := range []string{"", "text/plain", "nonsense/"} {
			req := c.request("POST", path, nil)
			req.Header.Del("Content-Type")
			if kind != "" {
				req.Header.Set("Content-Type", kind)
			}
			assert.Equal(t, http.StatusUnsupportedMediaType, c.send(req).StatusCode, "%s %q", path, kind)
		}
	}
	req := c.request("PATCH", "/v2/sandboxes/"+response.Sandbox.Name, nil)
	req.Header.Del("Content-Type")
	assert.Equal(t, http.StatusUnsupportedMediaType, c.send(req).StatusCode)
	req = c.request("GET", session(sess), nil)
	req.Header.Del("Content-Type")
	assert.Equal(t, http.StatusOK, c.send(req).StatusCode)
	req = c.request("POST", session(sess)+"/stop", nil)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	assert.Equal(t, http.StatusOK, c.send(req).StatusCode)
}
