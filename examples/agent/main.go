// Agent lets a model work in a sandbox with the tools of package agent: the model
// writes a program, runs it, reads the error and fixes it. The sandbox is stopped
// between tasks, and the next task finds its files.
//
//	go run ./cmd/sandbox-emulator go run ./examples/agent # needs python3
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
)

// conversation is the ID that your program gives to a conversation.
const conversation = "user-7/chat-3"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	client, err := sandbox.DefaultClient()
	if err != nil {
		return err
	}
	conversations := agent.NewConversations(client, &agent.ConversationsOptions{
		Idle: 5 * time.Minute,
		Create: func(string) *sandbox.CreateOptions {
			return &sandbox.CreateOptions{
				Timeout: time.Hour, NetworkPolicy: sandbox.DenyAll(),
				OnResume: func(context.Context, *sandbox.Sandbox) error {
					fmt.Println("-- back, with all files")
					return nil
				},
			}
		},
	})
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, conversations.Delete(ctx, conversation), conversations.Close(ctx))
	}()
	tools := agent.ForConversation(conversations, conversation, &agent.Options{
		Limits: agent.Limits{Calls: 50},
		Before: func(_ context.Context, call agent.Call) error {
			shown := string(call.Arguments)
			if len(shown) > 70 {
				shown = shown[:70] + "…"
			}
			fmt.Println(">>", call.Tool, shown)
			for _, name := range call.Paths() {
				if !call.ReadOnly && !strings.HasPrefix(name, "/vercel/") {
					return agent.Refuse("files are written in /vercel here")
				}
			}
			return nil
		},
	})
	defer tools.Close()
	for _, next := range []model{writeProgram, useProgram} {
		if err := solve(ctx, tools, next); err != nil {
			return err
		}
		fmt.Println("-- no question for a while: stopping")
		if err := conversations.Stop(ctx, conversation); err != nil {
			return err
		}
	}
	return nil
}

// solve lets the model make calls until it is done. A failed call is a result that the
// model reads, also if the session stopped during the call. An error ends the loop.
func solve(ctx context.Context, tools *agent.Toolset, next model) error {
	for step, seen := 0, ""; ; step++ {
		name, args := next(step, seen)
		if name == "" {
			return nil
		}
		text, err := json.Marshal(args)
		if err != nil {
			return err
		}
		result, err := tools.Call(ctx, name, text)
		if err != nil { // the model can't fix it
			return err
		}
		fmt.Println(result.Text)
		seen = result.Text // the model reads it, whether the call failed or not
	}
}

// model stands in for a language model: it returns the next call, or no tool if it is
// done. agent/mcptools, agent/adktools and agent/anthropictools connect real models.
type model func(step int, seen string) (tool string, args map[string]any)

func writeProgram(step int, seen string) (string, map[string]any) {
	switch {
	case step == 0:
		return "write_file", map[string]any{"path": "sum.py", "content": "import sys\nprint('sum:', sum(sys.argv[1:]))\n"}
	case step == 1, strings.HasPrefix(seen, "Replaced"), stopped(seen):
		return "bash", map[string]any{"command": "python3 sum.py 20 22"}
	case strings.Contains(seen, "TypeError"):
		return "edit_file", map[string]any{"path": "sum.py", "old_string": "sum(sys.argv[1:])", "new_string": "sum(map(int, sys.argv[1:]))"}
	}
	return "", nil
}

func useProgram(step int, seen string) (string, map[string]any) {
	if step > 0 && !stopped(seen) {
		return "", nil
	}
	return "bash", map[string]any{"command": "python3 sum.py $(seq 10)"}
}

// stopped reports whether the call must be repeated because the session ended.
func stopped(seen string) bool { return strings.Contains(seen, "before this call was done") }
