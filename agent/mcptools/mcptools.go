// Package mcptools serves the tools of package agent over the Model Context Protocol, using
// the official Go SDK.
package mcptools

import (
	"context"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/go-vercel/sandbox/agent"
)

// NewServer returns a server that offers the tools and their instructions. Close the Toolset
// when the server has ended.
func NewServer(tools *agent.Toolset, impl *mcp.Implementation) *mcp.Server {
	s := mcp.NewServer(impl, &mcp.ServerOptions{Instructions: tools.Instructions()})
	Add(s, tools)
	return s
}

// FactsKey is the key of [agent.Result].Data in the _meta of a result. The data is not
// structured content, because some clients show that to the model instead of the text.
const FactsKey = "go-vercel.github.io/facts"

// withProgress reports the progress of a call to a client that has sent a progress token.
func withProgress(ctx context.Context, req *mcp.CallToolRequest) context.Context {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx
	}
	begun := time.Now()
	return agent.WithProgress(ctx, func(line string) {
		// An error means that the client is gone.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: time.Since(begun).Seconds(), Message: line})
	})
}

// facts converts the data of a result for JSON.
func facts(data map[string]any) map[string]any {
	all := maps.Clone(data)
	for name, v := range all {
		if d, ok := v.(time.Duration); ok {
			all[name] = d.String()
		}
	}
	return all
}

// Add adds the tools to a server that has other tools. The server's instructions should
// include those of the Toolset. If a call returns an error, the client gets the text for the
// model, and [agent.Options].OnError gets the error. The data of a result is at
// [FactsKey]. A client that sends a progress token gets the last line of the tool bash's output
// each second.
func Add(s *mcp.Server, tools *agent.Toolset) {
	for _, tool := range tools.Tools() {
		s.AddTool(&mcp.Tool{
			Name: tool.Name, Description: tool.Description, InputSchema: tool.InputSchema,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: tool.ReadOnly, DestructiveHint: &tool.Destructive},
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, _ := tools.Call(withProgress(ctx, req), tool.Name, req.Params.Arguments) // OnError gets the error
			r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: result.Text}}, IsError: result.Failed}
			if len(result.Data) > 0 {
				r.Meta = mcp.Meta{FactsKey: facts(result.Data)}
			}
			return r, nil
		})
	}
}
