package mcptools_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/agent/mcptools"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/scripted"
)

// TestTypeScript: the scripted model gets the same results through the official TypeScript
// client, over HTTP, as without it.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "node")
	modules := os.Getenv("SANDBOX_JS_MODULES")
	if _, err := os.Stat(filepath.Join(modules, "@modelcontextprotocol", "sdk")); modules == "" || err != nil {
		needs.Missing(t, "in SANDBOX_JS_MODULES a node_modules folder of testdata/npm, with @modelcontextprotocol/sdk")
	}
	m, tools := scripted.Start(t)
	server := mcptools.NewServer(tools, &mcp.Implementation{Name: "test", Version: "1"})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(srv.Close)

	dir := t.TempDir()
	source, err := os.ReadFile("testdata/client.mjs")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "client.mjs"), source, 0o600))
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	cmd := exec.CommandContext(t.Context(), "node", "client.mjs", srv.URL)
	cmd.Dir, cmd.Stderr = dir, t.Output()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	calls, results := json.NewEncoder(stdin), json.NewDecoder(bufio.NewReader(stdout))
	m.Play(func(tool string, args json.RawMessage) string {
		require.NoError(t, calls.Encode(map[string]any{"name": tool, "arguments": args}))
		var result struct {
			Content []struct{ Type, Text string }
			IsError bool
		}
		require.NoError(t, results.Decode(&result))
		require.Len(t, result.Content, 1)
		assert.Equal(t, "text", result.Content[0].Type)
		assert.False(t, result.IsError, result.Content[0].Text)
		return result.Content[0].Text
	})
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
	assert.Equal(t, scripted.Directly(t), m.Transcript())
}
