// Eino lets an agent of CloudWeGo's Eino work in a sandbox with the tools of
// package agent. sandboxTool is the adapter. A function stands in for a chat model,
// such as one of github.com/cloudwego/eino-ext.
//
//	go build -C examples/modules/eino -o /tmp/eino . && go run ./cmd/sandbox-emulator /tmp/eino
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	"github.com/eino-contrib/jsonschema"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	tools := agent.New(sb, &agent.Options{Limits: agent.Limits{Calls: 50}})
	defer tools.Close()
	answer, err := solve(ctx, script(sum), tools, "What is the sum of 1 to 10?")
	fmt.Println(answer)
	return err
}

// solve lets a model work with the tools until it answers. If a call fails with an error
// that the model can't fix, such as that of a deleted sandbox, solve returns an error
// that matches it.
func solve(ctx context.Context, chat model.ToolCallingChatModel, tools *agent.Toolset, task string) (string, error) {
	var offered []tool.BaseTool
	for _, described := range tools.Tools() {
		offered = append(offered, &sandboxTool{described, tools})
	}
	a, err := react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: chat,
		ToolsConfig:      compose.ToolsNodeConfig{Tools: offered},
		MaxStep:          100, // let agent.Limits.Calls be the limit; the default allows only six calls
	})
	if err != nil {
		return "", err
	}
	answer, err := a.Generate(ctx, []*schema.Message{schema.SystemMessage(tools.Instructions()), schema.UserMessage(task)})
	if err != nil {
		return "", err
	}
	return answer.Content, nil
}

// sandboxTool is a tool of package agent in the form that Eino expects.
type sandboxTool struct {
	agent.Tool
	tools *agent.Toolset
}

// Info describes the tool to the model.
func (t *sandboxTool) Info(context.Context) (*schema.ToolInfo, error) {
	var input jsonschema.Schema
	err := json.Unmarshal(t.InputSchema, &input)
	return &schema.ToolInfo{Name: t.Name, Desc: t.Description, ParamsOneOf: schema.NewParamsOneOfByJSONSchema(&input)}, err
}

// InvokableRun calls the tool.
func (t *sandboxTool) InvokableRun(ctx context.Context, args string, _ ...tool.Option) (string, error) {
	result, err := t.tools.Call(ctx, t.Name, json.RawMessage(args))
	return result.Text, err
}

// script is a function that stands in for a chat model.
type script func(messages []*schema.Message) *schema.Message

func (s script) Generate(_ context.Context, messages []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	return s(messages), nil
}

func (s script) Stream(_ context.Context, messages []*schema.Message, _ ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	return schema.StreamReaderFromArray([]*schema.Message{s(messages)}), nil
}

func (s script) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return s, nil }

func sum(messages []*schema.Message) *schema.Message {
	if last := messages[len(messages)-1]; last.Role == schema.Tool {
		return schema.AssistantMessage("The shell says:\n"+last.Content, nil)
	}
	call := schema.FunctionCall{Name: "bash", Arguments: `{"command": "echo $(($(seq -s + 10)))"}`}
	return schema.AssistantMessage("", []schema.ToolCall{{ID: "1", Function: call}})
}
