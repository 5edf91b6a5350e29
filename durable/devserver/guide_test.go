package devserver_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guideClient follows the protocol of the platform's guide to durable sandboxes. It starts
// a session or returns to one by its run ID, reads a JSON object from each line, and sends
// commands. It does not know cursors or keys.
type guideClient struct {
	t     *testing.T
	base  string
	runID string
	lines *bufio.Scanner
	close func() error
	slept int // how many times the client has seen the session hibernate
}

func (c *guideClient) open(runID string) (reconnected bool) {
	var body bytes.Buffer
	if runID != "" {
		require.NoError(c.t, json.NewEncoder(&body).Encode(map[string]string{"runId": runID}))
	}
	resp, err := http.Post(c.base+"/start", "application/json", &body)
	require.NoError(c.t, err)
	require.Equal(c.t, 200, resp.StatusCode)
	assert.Equal(c.t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	c.runID = resp.Header.Get("x-workflow-run-id")
	require.NotEmpty(c.t, c.runID)
	c.lines, c.close = bufio.NewScanner(resp.Body), resp.Body.Close
	c.t.Cleanup(func() { _ = c.close() })
	return resp.Header.Get("x-workflow-reconnected") == "true"
}

func (c *guideClient) next() map[string]any {
	for {
		require.True(c.t, c.lines.Scan(), "the stream has ended: %v", c.lines.Err())
		var e map[string]any
		require.NoError(c.t, json.Unmarshal(c.lines.Bytes(), &e))
		if e["type"] != "ping" {
			return e
		}
	}
}

// until reads to an event of a type, and of a state if one is given. It returns the event
// and the output before it.
func (c *guideClient) until(typ, state string) (e map[string]any, output string) {
	for {
		e := c.next()
		if e["type"] == "command_output" {
			output += e["data"].(string)
		}
		if e["state"] == "hibernated" {
			c.slept++
		}
		if e["type"] == typ && (state == "" || e["state"] == state) {
			return e, output
		}
	}
}

func (c *guideClient) send(command string) int {
	body, err := json.Marshal(map[string]string{"runId": c.runID, "command": command})
	require.NoError(c.t, err)
	resp, err := http.Post(c.base+"/command", "application/json", bytes.NewReader(body))
	require.NoError(c.t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// TestGuideClient: the guide's client works with these routes, also across hibernation, and
// gets the fields that the guide names.
func TestGuideClient(t *testing.T) {
	_, config := startEmulator(t)
	config.IdleAfter = 2 * time.Second
	_, base := startService(t, config)
	c := &guideClient{t: t, base: base}
	assert.False(t, c.open(""))
	created := c.next()
	assert.Equal(t, "created", created["type"])
	for _, field := range []string{"sandboxId", "runtime", "startedAt", "sandboxExpiresAt", "hibernateAfterMs"} {
		assert.Contains(t, created, field)
	}
	active, _ := c.until("status", "active")
	assert.Contains(t, active, "sandboxExpiresAt")
	require.Equal(t, 200, c.send("echo out; echo err >&2; echo kept > f; exit 4"))
	start, _ := c.until("command_start", "")
	assert.Equal(t, "echo out; echo err >&2; echo kept > f; exit 4", start["command"])
	end, output := c.until("command_end", "")
	assert.ElementsMatch(t, []string{"out", "err"}, strings.Fields(output))
	assert.EqualValues(t, 4, end["exitCode"])
	assert.Contains(t, end, "durationMs")
	c.until("activity", "")
	c.until("status", "hibernating")
	c.until("status", "hibernated")
	require.NoError(t, c.close())

	// The tab was closed. Another one opens and sees everything.
	again := &guideClient{t: t, base: base}
	assert.True(t, again.open(c.runID))
	assert.Equal(t, created, again.next())
	for again.slept < c.slept { // on a slow machine, the session may hibernate before the command comes
		again.until("status", "hibernated")
	}
	require.Equal(t, 200, again.send("cat f"))
	again.until("status", "resuming")
	again.until("status", "active")
	_, output = again.until("command_end", "")
	assert.Equal(t, "kept\n", output)
	require.Equal(t, 200, again.send("/destroy"))
	again.until("status", "destroyed")
	result, _ := again.until("result", "")
	assert.Equal(t, "destroyed", result["status"])
	assert.False(t, again.lines.Scan(), "the stream ends with the session")
	assert.Equal(t, http.StatusGone, again.send("echo late"))

	// An unknown run ID starts a new session.
	third := &guideClient{t: t, base: base}
	assert.False(t, third.open("run-of-another-life"))
	assert.NotEqual(t, "run-of-another-life", third.runID)
}
