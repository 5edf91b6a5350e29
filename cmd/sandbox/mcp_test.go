package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// TestIsolationIsStated: the server tells agents and their users whether its sandboxes are
// isolated. Those of --local are not.
func TestIsolationIsStated(t *testing.T) {
	t.Parallel()
	const isolated, boundless = "an isolated Linux machine", "NOT isolated"
	d := newWorkspace(t, nil)
	t.Cleanup(func() {
		got := finish(t, d.command(context.Background(), "local", "stop"))
		assert.Zero(t, got.code, got.stderr)
	})
	for _, test := range []struct {
		args      []string
		says, not string
		warned    bool
	}{
		{[]string{"mcp"}, isolated, boundless, false},
		{[]string{"--local", "mcp"}, boundless, isolated, true},
		{[]string{"--local", "mcp", "--only", "box"}, boundless, isolated, true},
	} {
		cmd := d.command(t.Context(), test.args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		agent := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := agent.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
		require.NoError(t, err, "%v", test.args)
		text := session.InitializeResult().Instructions
		assert.NoError(t, session.Close())
		assert.Contains(t, text, test.says, "%v", test.args)
		assert.NotContains(t, text, test.not, "%v", test.args)
		assert.Equal(t, test.warned, strings.Contains(stderr.String(), "not isolated from it"), "%v: %s", test.args, stderr.String())
	}
}

// TestAgentsMistakes: an invalid line gets an answer, and the next one is read.
func TestAgentsMistakes(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	const hello = `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	cmd := d.command(t.Context(), "mcp")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	answers := bufio.NewScanner(out)
	for _, row := range [][2]string{
		{"garbage", `"code":-32700`}, {"{", `"code":-32700`}, {"42", `"code":-32600`}, {`{"a":1}`, `"code":-32600`}, {"[]", `"code":-32600`}, {"[1]", `"code":-32600`},
		{"\r\n" + hello, `"id":7,"result"`},
	} {
		_, err := io.WriteString(in, row[0]+"\n")
		require.NoError(t, err)
		require.True(t, answers.Scan(), row[0])
		assert.Contains(t, answers.Text(), row[1], row[0])
	}
	require.NoError(t, in.Close())
	assert.False(t, answers.Scan())
	assert.NoError(t, answers.Err())
	assert.NoError(t, cmd.Wait())
}

// connectAgent connects an agent to the program's server.
func connectAgent(t *testing.T, d *workspace, args ...string) *mcp.ClientSession {
	t.Helper()
	agent := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := agent.Connect(t.Context(), &mcp.CommandTransport{Command: d.command(context.WithoutCancel(t.Context()), args...)}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })
	return session
}

// callTool calls a tool and returns what the agent sees.
func callTool(t *testing.T, session *mcp.ClientSession, tool string, args map[string]any) (text string, failed bool) {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	require.Len(t, result.Content, 1)
	content, ok := result.Content[0].(*mcp.TextContent)
	require.True(t, ok)
	return content.Text, result.IsError
}

// TestAgentsTools: an agent creates a sandbox and works in it.
func TestAgentsTools(t *testing.T) {
	t.Parallel()
	session := connectAgent(t, newWorkspace(t, nil), "mcp")
	ok := func(tool string, args map[string]any) string {
		text, failed := callTool(t, session, tool, args)
		require.False(t, failed, "%s: %s", tool, text)
		return text
	}
	ok("create_sandbox", map[string]any{"name": "a1", "timeout_minutes": 60})
	ok("write_file", map[string]any{"sandbox": "a1", "path": "x.sh", "content": "echo hi; exit 3\n"})
	assert.Equal(t, "Exit code 3.\n<sandbox-data>\nhi\n</sandbox-data>", ok("bash", map[string]any{"sandbox": "a1", "command": "sh x.sh"}))
	assert.Contains(t, ok("list_sandboxes", nil), "a1 (running")
	ok("remove_sandbox", map[string]any{"sandbox": "a1"})
}

// TestOneSandbox confines an agent to one sandbox.
func TestOneSandbox(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	session := connectAgent(t, d, "mcp", "--only", "mine")
	listed, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	for _, tool := range listed.Tools {
		assert.NotContains(t, []string{"create_sandbox", "list_sandboxes", "remove_sandbox"}, tool.Name)
	}
	text, failed := callTool(t, session, "bash", map[string]any{"sandbox": "other", "command": "true"})
	assert.True(t, failed)
	assert.Contains(t, text, `There is no argument "sandbox".`)
	_, err = d.server.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "mine", Timeout: time.Hour})
	require.NoError(t, err)
	text, failed = callTool(t, session, "bash", map[string]any{"command": "echo hi"})
	assert.False(t, failed, text)
}

// TestAgentsWithoutCredentials: without credentials each call says why it fails, and the
// server continues.
func TestAgentsWithoutCredentials(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.unset("VERCEL_AUTH_TOKEN")
	session := connectAgent(t, d, "mcp")
	for range 2 {
		text, failed := callTool(t, session, "list_sandboxes", nil)
		assert.True(t, failed)
		assert.Contains(t, text, "login")
		assert.Contains(t, text, "start this server again")
	}
}
