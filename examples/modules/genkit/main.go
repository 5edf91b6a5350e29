// Genkit lets a model of Google's Genkit work in a sandbox with the tools of
// package agent. defineTools is the adapter. A function stands in for the model of a
// plugin.
//
//	go build -C examples/modules/genkit -o /tmp/genkit . && go run ./cmd/sandbox-emulator /tmp/genkit
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"

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
	answer, err := solve(ctx, sum, tools, "What is the sum of 1 to 10?")
	fmt.Println(answer)
	return err
}

// solve lets a model work with the tools until it answers. If a call fails with an error
// that the model can't fix, such as that of a deleted sandbox, solve returns an error
// that matches it.
func solve(ctx context.Context, model ai.ModelFunc, tools *agent.Toolset, task string) (string, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	g := genkit.Init(ctx)
	refs, err := defineTools(g, tools, fail)
	if err != nil {
		return "", err
	}
	supports := &ai.ModelSupports{Multiturn: true, Tools: true, SystemRole: true}
	answer, err := genkit.GenerateText(ctx, g,
		ai.WithModel(genkit.DefineModel(g, "example/scripted", &ai.ModelOptions{Supports: supports}, model)),
		ai.WithSystem("%s", tools.Instructions()),
		ai.WithPrompt("%s", task),
		ai.WithTools(refs...),
		ai.WithMaxTurns(100), // let agent.Limits.Calls be the limit; the default allows only five calls
	)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return answer, err
}

// defineTools registers the tools with Genkit. It also passes errors to fail, because
// Genkit returns only their text.
func defineTools(g *genkit.Genkit, tools *agent.Toolset, fail func(error)) ([]ai.ToolRef, error) {
	var refs []ai.ToolRef
	for _, described := range tools.Tools() {
		var input map[string]any
		if err := json.Unmarshal(described.InputSchema, &input); err != nil {
			return nil, err
		}
		refs = append(refs, genkit.DefineTool(g, described.Name, described.Description, func(ctx *ai.ToolContext, args any) (string, error) {
			text, err := json.Marshal(args)
			if err != nil {
				return "", err
			}
			result, err := tools.Call(ctx, described.Name, text)
			if err != nil {
				fail(err)
			}
			return result.Text, err
		}, ai.WithInputSchema(input)))
	}
	return refs, nil
}

// sum stands in for a model.
func sum(_ context.Context, req *ai.ModelRequest, _ ai.ModelStreamCallback) (*ai.ModelResponse, error) {
	part := ai.NewToolRequestPart(&ai.ToolRequest{Ref: "1", Name: "bash", Input: map[string]any{"command": "echo $(($(seq -s + 10)))"}})
	if last := req.Messages[len(req.Messages)-1]; last.Role == ai.RoleTool {
		part = ai.NewTextPart(fmt.Sprintf("The shell says:\n%v", last.Content[0].ToolResponse.Output))
	}
	return &ai.ModelResponse{Request: req, Message: ai.NewModelMessage(part), FinishReason: ai.FinishReasonStop}, nil
}
