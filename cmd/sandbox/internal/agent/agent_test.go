package agent_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/agent"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// connect connects the client of the MCP SDK to a server.
func connect(t *testing.T, server *sandboxtest.Server, opts agent.Options) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	ss, err := agent.NewServer(server.Client(), opts).Connect(t.Context(), there, nil)
	require.NoError(t, err)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, cs.Close())
		assert.NoError(t, ss.Wait())
	})
	return cs
}

// call calls a tool and wants it to succeed.
func call(t *testing.T, cs *mcp.ClientSession, tool string, args map[string]any, out any) {
	t.Helper()
	result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	text, err := json.Marshal(result.Content)
	require.NoError(t, err)
	require.False(t, result.IsError, "%s: %s", tool, text)
	data, err := json.Marshal(result.StructuredContent)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, out))
}

func TestTools(t *testing.T) {
	t.Parallel()
	cs := connect(t, sandboxtest.New(t, nil), agent.Options{Version: "1"})
	var box agent.Info
	call(t, cs, "create_sandbox", map[string]any{"name": "a1", "tags": map[string]any{"k": "v"}}, &box)
	assert.Equal(t, "running", box.Status)
	on := func(more map[string]any) map[string]any {
		more["sandbox"] = "a1"
		return more
	}

	var done agent.Done
	call(t, cs, "write_file", on(map[string]any{"path": "dir/x.sh", "content": "echo \"hi ☃\"; echo oops >&2; exit 3\n", "executable": true}), &done)
	var ran agent.RunOutput
	call(t, cs, "run_command", on(map[string]any{"command": "sh dir/x.sh"}), &ran)
	assert.Equal(t, agent.RunOutput{ExitCode: 3, Stdout: "hi ☃\n", Stderr: "oops\n"}, ran)
	call(t, cs, "run_command", on(map[string]any{"command": "head -c 1000000 /dev/zero | tr '\\0' x; echo end"}), &ran)
	assert.True(t, ran.Truncated)
	assert.Len(t, ran.Stdout, 256<<10)
	assert.Contains(t, ran.Stdout[len(ran.Stdout)-10:], "xend\n")

	var file agent.FileOutput
	call(t, cs, "read_file", on(map[string]any{"path": "dir/x.sh"}), &file)
	assert.Contains(t, file.Content, "hi ☃")
	var entries agent.Entries
	call(t, cs, "list_files", on(map[string]any{"path": "dir"}), &entries)
	require.Len(t, entries.Entries, 1)
	assert.Equal(t, "x.sh", entries.Entries[0].Name)

	var started agent.Started
	call(t, cs, "start_command", on(map[string]any{"command": "echo begun; exec sleep 1000"}), &started)
	var output agent.Output
	require.Eventually(t, func() bool { // a second may pass before it writes
		output = agent.Output{}
		call(t, cs, "read_output", on(map[string]any{"commandId": started.CommandID}), &output)
		return output.Stdout != ""
	}, 5*time.Minute, time.Millisecond)
	assert.Equal(t, agent.Output{Stdout: "begun\n"}, output)
	call(t, cs, "kill_command", on(map[string]any{"commandId": started.CommandID}), &done)
	call(t, cs, "read_output", on(map[string]any{"commandId": started.CommandID, "waitSeconds": 60}), &output)
	assert.True(t, output.Ended)
	assert.Equal(t, 137, *output.ExitCode)

	var address agent.URL
	call(t, cs, "port_url", on(map[string]any{"port": 3000}), &address)
	assert.Contains(t, address.URL, "http")
	var snap agent.Snapshot
	call(t, cs, "create_snapshot", on(map[string]any{}), &snap)
	assert.Contains(t, snap.ID, "snap_")
	call(t, cs, "stop_sandbox", on(map[string]any{}), &done)
	var all agent.List
	call(t, cs, "list_sandboxes", map[string]any{}, &all)
	require.Len(t, all.Sandboxes, 1)
	assert.Equal(t, "stopped", all.Sandboxes[0].Status)
	call(t, cs, "remove_sandbox", on(map[string]any{}), &done)
	call(t, cs, "list_sandboxes", map[string]any{}, &all)
	assert.Empty(t, all.Sandboxes)
}

// TestOneSandbox confines an agent to one sandbox.
func TestOneSandbox(t *testing.T) {
	t.Parallel()
	server := sandboxtest.New(t, nil)
	cs := connect(t, server, agent.Options{Sandbox: "mine"})
	listed, err := cs.ListTools(t.Context(), nil)
	require.NoError(t, err)
	for _, tool := range listed.Tools {
		assert.False(t, slices.Contains([]string{"create_sandbox", "list_sandboxes", "remove_sandbox"}, tool.Name), tool.Name)
	}
	for tool, args := range map[string]map[string]any{
		"run_command":  {"sandbox": "other", "command": "true"},
		"stop_sandbox": {"sandbox": "other"},
	} {
		result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		require.NoError(t, err)
		assert.True(t, result.IsError, tool)
	}
	assert.Empty(t, server.Requests())
}
