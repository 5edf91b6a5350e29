package mcptools_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/agent/mcptools"
	"github.com/go-vercel/sandbox/internal/test/scripted"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// connect connects a client of the MCP SDK to a server with the tools.
func connect(t *testing.T, tools *agent.Toolset) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	ss, err := mcptools.NewServer(tools, &mcp.Implementation{Name: "test", Version: "1"}).Connect(t.Context(), there, nil)
	require.NoError(t, err)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, cs.Close())
		assert.NoError(t, ss.Wait())
	})
	return cs
}

func text(t *testing.T, result *mcp.CallToolResult) string {
	t.Helper()
	require.Len(t, result.Content, 1)
	require.Nil(t, result.StructuredContent, "a result is sent once")
	content, ok := result.Content[0].(*mcp.TextContent)
	require.True(t, ok)
	return content.Text
}

// TestScript: the scripted model gets the same results through MCP as without it.
func TestScript(t *testing.T) {
	t.Parallel()
	m, tools := scripted.Start(t)
	cs := connect(t, tools)
	m.Play(func(tool string, args json.RawMessage) string {
		result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		require.NoError(t, err)
		assert.False(t, result.IsError, tool)
		return text(t, result)
	})
	assert.Equal(t, scripted.Directly(t), m.Transcript())
}

// TestProgress: a client with a progress token gets the progress of a call, and the data of its
// result.
func TestProgress(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, nil)
	tools := agent.New(sb, nil)
	defer tools.Close()
	here, there := mcp.NewInMemoryTransports()
	ss, err := mcptools.NewServer(tools, &mcp.Implementation{Name: "test", Version: "1"}).Connect(t.Context(), there, nil)
	require.NoError(t, err)
	heard := make(chan string, 100)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { heard <- req.Params.Message },
	}).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, cs.Close())
		assert.NoError(t, ss.Wait())
	}()
	params := &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "echo first; printf 'second\\033\\n'; until [ -e go ]; do sleep .1; done; exit 3"}}
	params.SetProgressToken("p")
	ended := make(chan *mcp.CallToolResult, 1)
	go func() {
		result, err := cs.CallTool(t.Context(), params)
		assert.NoError(t, err)
		ended <- result
	}()
	for <-heard != `second\x1b` {
	}
	require.NoError(t, sb.FS().WriteFile(t.Context(), "go", nil, 0o644))
	result := <-ended
	facts, ok := result.Meta[mcptools.FactsKey].(map[string]any)
	require.True(t, ok, "%v", result.Meta)
	assert.EqualValues(t, 3, facts["exit_code"])
	assert.Contains(t, text(t, result), "Exit code 3.")
}

// TestErrors: errors reach the client as failed results.
func TestErrors(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, nil)
	var reported []error
	tools := agent.New(sb, &agent.Options{Limits: agent.Limits{Calls: 1}, OnError: func(_ agent.Call, err error) { reported = append(reported, err) }})
	defer tools.Close()
	cs := connect(t, tools)
	assert.Equal(t, tools.Instructions(), cs.InitializeResult().Instructions)
	listed, err := cs.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, listed.Tools, len(tools.Tools()))
	for _, tool := range listed.Tools {
		assert.Equal(t, tool.Name == "bash", tool.Annotations.DestructiveHint != nil && *tool.Annotations.DestructiveHint && tool.Name == "bash", tool.Name)
		assert.Equal(t, tool.Name == "grep", tool.Annotations.ReadOnlyHint && tool.Name == "grep", tool.Name)
	}
	for _, want := range []string{"file does not exist", "The budget for these tools is used up."} {
		result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_file", Arguments: map[string]any{"path": "none"}})
		require.NoError(t, err)
		assert.True(t, result.IsError)
		assert.Contains(t, text(t, result), want)
	}
	require.Len(t, reported, 1)
	assert.ErrorIs(t, reported[0], agent.ErrLimit)
}
