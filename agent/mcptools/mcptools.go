// Package mcptools serves the tools of package agent by the Model Context
// Protocol, with the protocol's own Go SDK.
package mcptools

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/go-vercel/sandbox/agent"
)

// NewServer returns a server that offers the tools and their instructions. It
// lives as long as they do.
func NewServer(tools *agent.Toolset, impl *mcp.Implementation) *mcp.Server {
	s := mcp.NewServer(impl, &mcp.ServerOptions{Instructions: tools.Instructions()})
	Add(s, tools)
	return s
}

// Add adds the tools to a server that has others, whose instructions should
// include those of the tools. A client reads errors of the program in the
// words for the model; [agent.Options].OnError has the errors themselves.
func Add(s *mcp.Server, tools *agent.Toolset) {
	for _, tool := range tools.Tools() {
		s.AddTool(&mcp.Tool{
			Name: tool.Name, Description: tool.Description, InputSchema: tool.InputSchema,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: tool.ReadOnly, DestructiveHint: &tool.Destructive},
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, _ := tools.Call(ctx, tool.Name, req.Params.Arguments) // the error is for OnError
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: result.Text}}, IsError: result.Failed}, nil
		})
	}
}
