// Package mcptools serves the tools of package agent by the Model Context
// Protocol, with the protocol's own Go SDK.
package mcptools

import (
	"context"
	"maps"
	"time"

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

// FactsKey is where the _meta of a result has [agent.Result].Data, for programs. It is
// no structured content: some clients give that to the model in the text's place.
const FactsKey = "go-vercel.github.io/facts"

// withProgress lets a client that has given a token hear how a call goes on.
func withProgress(ctx context.Context, req *mcp.CallToolRequest) context.Context {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx
	}
	begun := time.Now()
	return agent.WithProgress(ctx, func(line string) {
		// A client that has gone gets no result either.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: time.Since(begun).Seconds(), Message: line})
	})
}

// facts are the facts of a result as JSON has them.
func facts(data map[string]any) map[string]any {
	all := maps.Clone(data)
	for name, v := range all {
		if d, ok := v.(time.Duration); ok {
			all[name] = d.String()
		}
	}
	return all
}

// Add adds the tools to a server that has others, whose instructions should
// include those of the tools. A client reads errors of the program in the
// words for the model; [agent.Options].OnError has the errors themselves. It gets the
// facts of a result by [FactsKey] and, if it has given a progress token, each second
// the last line of the output of bash.
func Add(s *mcp.Server, tools *agent.Toolset) {
	for _, tool := range tools.Tools() {
		s.AddTool(&mcp.Tool{
			Name: tool.Name, Description: tool.Description, InputSchema: tool.InputSchema,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: tool.ReadOnly, DestructiveHint: &tool.Destructive},
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, _ := tools.Call(withProgress(ctx, req), tool.Name, req.Params.Arguments) // the error is for OnError
			r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: result.Text}}, IsError: result.Failed}
			if len(result.Data) > 0 {
				r.Meta = mcp.Meta{FactsKey: facts(result.Data)}
			}
			return r, nil
		})
	}
}
