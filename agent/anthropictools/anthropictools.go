// Package anthropictools gives the tools of package agent to Claude, using Anthropic's Go
// SDK.
package anthropictools

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/entry"
)

// Tools describes the tools to the Messages API.
func Tools(tools *agent.Toolset) ([]anthropic.ToolUnionParam, error) {
	var list []anthropic.ToolUnionParam
	for _, tool := range tools.Tools() {
		var schema anthropic.ToolInputSchemaParam
		if err := json.Unmarshal(tool.InputSchema, &schema); err != nil {
			return nil, err
		}
		list = append(list, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
			Name: tool.Name, Description: anthropic.String(tool.Description), InputSchema: schema,
		}})
	}
	return list, nil
}

// Run lets Claude call the tools until it ends its turn, and returns its last message. Run
// adds the tools and their instructions to params. It stops at an error for the program, such
// as a deleted sandbox, and returns it with the message that made the call.
// [agent.Limits].Calls limits the number of calls.
func Run(ctx context.Context, client *anthropic.Client, params anthropic.MessageNewParams, tools *agent.Toolset) (*anthropic.Message, error) {
	if err := entry.Check(ctx, client != nil && tools != nil, "anthropictools", "the client, or the Toolset,"); err != nil {
		return nil, err
	}
	offered, err := Tools(tools)
	if err != nil {
		return nil, err
	}
	params.Tools = slices.Concat(params.Tools, offered)
	params.System = append(slices.Clone(params.System), anthropic.TextBlockParam{Text: tools.Instructions()})
	for {
		message, err := client.Messages.New(ctx, params)
		if err != nil || message.StopReason != anthropic.StopReasonToolUse {
			return message, err
		}
		var results []anthropic.ContentBlockParamUnion
		for _, block := range message.Content {
			if use, ok := block.AsAny().(anthropic.ToolUseBlock); ok {
				result, err := tools.Call(ctx, use.Name, use.Input)
				if err != nil {
					return message, err
				}
				results = append(results, anthropic.NewToolResultBlock(use.ID, result.Text, result.Failed))
			}
		}
		params.Messages = append(slices.Clip(params.Messages), message.ToParam(), anthropic.NewUserMessage(results...))
	}
}
