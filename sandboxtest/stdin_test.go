package sandboxtest_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func stdin(cmd wire.Command) string { return session(cmd.SessionID) + "/cmd/" + cmd.ID + "/stdin" }

// write returns the total number of bytes written to the command.
func (c *raw) write(cmd wire.Command, params obj) int64 {
	c.t.Helper()
	var out wire.StdinResponse
	c.call("POST", stdin(cmd), params, 200, &out)
	assert.Equal(c.t, cmd.ID, out.Command.ID)
	require.NotNil(c.t, out.BytesWritten)
	return *out.BytesWritten
}

// reader is a command that echoes its input line by line.
func reader() obj {
	return obj{"command": "sh", "args": []string{"-c", `while read -r l; do echo "got $l"; done; echo end`}, "attachStdin": true}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(nil).Session.ID
		cmd := c.detach(sess, reader())
		l := c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil)
		assert.EqualValues(t, 4, c.write(cmd, obj{"data": encoded("one\n")}))
		assert.Equal(t, "got one\n", l.next().text(t)) // the command has read it already
		assert.EqualValues(t, 4, c.write(cmd, obj{}), "a query")

		// A resend is skipped, in whole or in part.
		assert.EqualValues(t, 4, c.write(cmd, obj{"data": encoded("one\n"), "offset": 0}))
		assert.EqualValues(t, 8, c.write(cmd, obj{"data": encoded("ne\ntwo\n"), "offset": 1}))
		assert.Equal(t, "got two\n", l.next().text(t))
		c.refused("POST", stdin(cmd), obj{"data": encoded("x"), "offset": 9}, 409, "conflict")
		c.refused("POST", stdin(cmd), obj{"data": "%%"}, 400, "bad_request")
		c.refused("POST", stdin(cmd), obj{"data": encoded("x"), "offset": -1}, 400, "bad_request")
		c.refused("POST", stdin(cmd), obj{"text": "x"}, 400, "bad_request")
		c.refused("POST", stdin(cmd), obj{"data": strings.Repeat("A", 1<<20)}, 413, "payload_too_large")

		assert.EqualValues(t, 13, c.write(cmd, obj{"data": encoded("last\n"), "offset": 8, "close": true}))
		var out strings.Builder
		for r := l.next(); r != nil; r = l.next() {
			out.WriteString(r.text(t))
		}
		assert.Equal(t, "got last\nend\n", out.String())
		assert.Zero(t, *c.wait(cmd).ExitCode)
		c.refused("POST", stdin(cmd), obj{"data": encoded("x")}, 404, "command_not_found_or_exited")
		c.refused("POST", stdin(wire.Command{SessionID: sess, ID: "cmd_none"}), obj{}, 404, "command_not_found_or_exited")

		// A command without an open input, and one that closed its end.
		cmd = c.detach(sess, obj{"command": "sleep", "args": []string{"1000"}})
		c.refused("POST", stdin(cmd), obj{"data": encoded("x")}, 400, "command_stdin_unavailable")
		cmd = c.detach(sess, obj{"command": "sh", "args": []string{"-c", "exec <&-; echo closed; sleep 1000"}, "attachStdin": true})
		assert.Equal(t, "closed\n", c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil).next().text(t))
		c.refused("POST", stdin(cmd), obj{"data": encoded("x")}, 400, "command_stdin_unavailable")
		// A closed input refuses new data, but not a resend.
		cmd = c.detach(sess, obj{"command": "sh", "args": []string{"-c", "cat; sleep 1000"}, "attachStdin": true})
		assert.EqualValues(t, 2, c.write(cmd, obj{"data": encoded("ab"), "offset": 0, "close": true}))
		assert.EqualValues(t, 2, c.write(cmd, obj{"data": encoded("ab"), "offset": 0, "close": true}))
		c.refused("POST", stdin(cmd), obj{"data": encoded("c"), "offset": 2}, 400, "command_stdin_unavailable")
		c.stop(sess)
		c.refused("POST", stdin(cmd), obj{}, 410, "sandbox_stopped")
	})
}

// TestStdinOfACommandThatDoesNotRead: a write blocks until the command reads or
// ends, for at most thirty seconds of the server's clock.
func TestStdinOfACommandThatDoesNotRead(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(obj{"timeout": day.Milliseconds()}).Session.ID // long enough for the clock's advances below
		script := `while [ ! -e go ]; do sleep 0.1; done; cat | wc -c`
		cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", script}, "attachStdin": true})
		text := strings.Repeat("x", 500<<10)
		type response struct {
			status int
			body   string
		}
		write := func() response {
			resp, err := c.client.Do(c.request("POST", stdin(cmd), obj{"data": encoded(text), "offset": 0}))
			if err != nil {
				return response{body: err.Error()}
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			if err != nil {
				data = []byte(err.Error())
			}
			return response{resp.StatusCode, string(data)}
		}
		done := make(chan response, 1)
		go func() { done <- write() }()
		var a response
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for a.status == 0 {
			select {
			case a = <-done:
			case <-tick.C: // until the request has arrived
				srv.Advance(30 * time.Second)
			}
		}
		assert.Equal(t, 504, a.status, a.body)
		assert.Contains(t, a.body, `"bytesWritten":`)
		// The rest is accepted as soon as the command reads.
		go func() { done <- write() }()
		c.sh(sess, "touch go")
		a = <-done
		assert.Equal(t, 200, a.status, a.body)
		assert.EqualValues(t, len(text), c.write(cmd, obj{"close": true}))
		r := c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil).next()
		assert.Equal(t, "512000", strings.TrimSpace(r.text(t)))

		cmd = c.detach(sess, obj{"command": "sleep", "args": []string{"1000"}, "attachStdin": true})
		go func() { done <- write() }()
		require.Eventually(t, func() bool { return inFlight(srv, sandboxtest.WriteStdin) }, eventually, time.Millisecond)
		c.kill(cmd, 9, 200)
		a = <-done
		assert.Contains(t, []int{400, 404}, a.status, a.body)
		assert.Contains(t, a.body, "command_")
	})
}

// inFlight reports whether a request for the operation is in progress.
func inFlight(srv *sandboxtest.Server, op sandboxtest.Operation) bool {
	for _, r := range srv.Requests() {
		if r.Operation == op && r.Status == 0 {
			return true
		}
	}
	return false
}

// TestStdinOneByOne: concurrent writes are applied one after another, each as a whole.
func TestStdinOneByOne(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", "sort | uniq -c | wc -l"}, "attachStdin": true})
	line := strings.Repeat("0123456789", 800) + "\n"
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			resp, err := c.client.Do(c.request("POST", stdin(cmd), obj{"data": encoded(line)}))
			if assert.NoError(t, err) {
				assert.Equal(t, 200, resp.StatusCode)
				resp.Body.Close()
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 20*len(line), c.write(cmd, obj{"close": true}))
	r := c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil).next()
	assert.Equal(t, "1", strings.TrimSpace(r.text(t)))
}

func TestStubsHaveStdinAndFiles(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	srv.HandleCommand("ask", func(ctx context.Context, inv *sandboxtest.Invocation) int {
		data, err := io.ReadAll(inv.Stdin)
		if err == nil {
			err = inv.WriteFile("deep/answer", append([]byte("asked: "), data...), 0o640)
		}
		if err == nil {
			data, err = inv.ReadFile("deep/answer")
		}
		if err != nil {
			_, _ = io.WriteString(inv.Stderr, err.Error())
			return 1
		}
		_, _ = inv.Stdout.Write(data)
		return 0
	})
	sess := c.create(nil).Session.ID
	assert.Equal(t, "asked: ", c.run(sess, obj{"command": "ask"}).stdout)
	cmd := c.detach(sess, obj{"command": "ask", "attachStdin": true})
	c.write(cmd, obj{"data": encoded("why")})
	c.write(cmd, obj{"close": true})
	assert.Equal(t, "asked: why", c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil).next().text(t))
	assert.Equal(t, "asked: why", c.sh(sess, "cat deep/answer"))
	assert.Equal(t, "640\n", c.sh(sess, "stat -c %a deep/answer"))
}

func TestCommandIDs(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	path := session(sess) + "/cmd?cmdId="
	var out wire.CommandResponse
	c.call("POST", path+"mine-1", obj{"command": "true"}, 200, &out)
	assert.Equal(t, "mine-1", out.Command.ID)
	c.refused("POST", path+"mine-1", obj{"command": "true"}, 409, "conflict")
	c.wait(out.Command)
	c.refused("POST", path+"mine-1", obj{"command": "true"}, 409, "conflict")
	c.refused("POST", path+"a/b", obj{"command": "true"}, 400, "bad_request")
	c.refused("POST", path, obj{"command": "true"}, 400, "bad_request")
	// A command that did not start does not use up its ID.
	c.refused("POST", path+"mine-2", obj{"command": "no-such-program"}, 400, "executable_not_found")
	c.call("POST", path+"mine-2", obj{"command": "true"}, 200, nil)

	// Of many concurrent starts with one ID, exactly one succeeds.
	statuses := make(chan int, 20)
	var group sync.WaitGroup
	for range cap(statuses) {
		group.Go(func() {
			resp, err := c.client.Do(c.request("POST", path+"race", obj{"command": "sh", "args": []string{"-c", "echo x >> ran"}}))
			if assert.NoError(t, err) {
				statuses <- resp.StatusCode
				resp.Body.Close()
			}
		})
	}
	group.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	assert.Equal(t, map[int]int{http.StatusOK: 1, http.StatusConflict: 19}, count)
	c.wait(wire.Command{SessionID: sess, ID: "race"})
	assert.Equal(t, "x\n", c.sh(sess, "cat ran"))

	for _, support := range []sandboxtest.CommandIDs{sandboxtest.CommandIDsIgnored, sandboxtest.CommandIDsRefused} {
		_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, CommandIDs: support})
		path := session(c.create(nil).Session.ID) + "/cmd?cmdId=mine"
		if support == sandboxtest.CommandIDsRefused {
			c.refused("POST", path, obj{"command": "true"}, 400, "bad_request")
			continue
		}
		for range 2 {
			c.call("POST", path, obj{"command": "true"}, 200, &out)
			assert.NotEqual(t, "mine", out.Command.ID)
		}
	}
}
