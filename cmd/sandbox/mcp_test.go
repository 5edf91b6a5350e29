package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAgentsAreTold wants agents and their users to learn from the server
// whether its sandboxes are isolated, which those of --local are not.
func TestAgentsAreTold(t *testing.T) {
	t.Parallel()
	const isolated, boundless = "Isolated Linux machines", "NOT isolated"
	d := newDesk(t, nil)
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
