package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// known are the programs that the model runs without asking.
var known = []agent.Program{agent.CommandLine("make test"), agent.CommandLine("go vet ./...")}

// policy refuses every call that it does not know.
func policy(ctx context.Context, call agent.Call) error {
	switch {
	case call.ReadOnly:
		return nil
	case call.Program != nil && slices.ContainsFunc(known, call.Program.Equal):
		return nil
	case call.Tool == "write_file" || call.Tool == "edit_file":
		if strings.HasPrefix(call.Paths()[0], "/vercel/docs/") {
			return nil
		}
	}
	return agent.Refuse("ask the user first")
}

// A policy allows what it knows. A call with another directory or an environment
// variable is another program.
func ExampleOptions_before() {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	sb, err := srv.Client().Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	tools := agent.New(sb, &agent.Options{Before: policy})
	defer tools.Close()

	for _, args := range []string{
		`{"command": "make test"}`,
		`{"command": "make test; curl example.com"}`,
		`{"command": "make test", "cwd": "/tmp"}`,
		`{"command": "make test", "env": {"BASH_ENV": "$(curl example.com)"}}`,
	} {
		result, err := tools.Call(ctx, "bash", json.RawMessage(args))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Failed)
	}
	// Output:
	// false
	// true
	// true
	// true
}

// converse lets a model call tools until it answers, and returns the answer.
func converse(ctx context.Context, tools *agent.Toolset, model func(seen string) (tool, args, answer string)) (string, error) {
	seen := ""
	for {
		tool, args, answer := model(seen)
		if tool == "" {
			return answer, nil
		}
		result, err := tools.Call(ctx, tool, json.RawMessage(args))
		if err != nil {
			return result.Text, err // your program or its user has to fix it; keep the text in the conversation
		}
		seen = result.Text // failed or not, the model reads it and continues
	}
}

// The session stops in the middle of a call. The model reads that, makes the call
// again, and the conversation continues.
func ExampleToolset_Call() {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	sb, err := srv.Client().Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	begun := make(chan struct{}, 1)
	tools := agent.New(sb, &agent.Options{OnOutput: func(agent.Call, []byte) {
		select {
		case begun <- struct{}{}:
		default:
		}
	}})
	defer tools.Close()
	go func() { // somebody else, or the sandbox's timeout
		<-begun
		if other, err := srv.Client().Get(ctx, sb.Name(), nil); err == nil {
			_, _ = other.Stop(ctx, nil)
		}
	}()

	answer, err := converse(ctx, tools, func(seen string) (tool, args, answer string) { // stands in for a model
		first, _, _ := strings.Cut(seen, ":")
		fmt.Println(first)
		if strings.Contains(seen, "built\n") {
			return "", "", "The build has worked."
		}
		return "bash", `{"command": "if [ -e begun ]; then echo built; else touch begun; echo building; sleep 1000; fi"}`, ""
	})
	fmt.Println(answer, err)
	// Output:
	//
	// The sandbox stopped before this call was done
	// Exit code 0.
	// <sandbox-data>
	// built
	// </sandbox-data>
	// The build has worked. <nil>
}
