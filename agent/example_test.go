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
