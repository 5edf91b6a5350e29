// Package agent is an agent's loop as a workflow: each turn asks a model what to
// do and runs it in a sandbox. Model calls are activities, and so are commands: a
// crash repeats the one that was under way and none before it, and no command
// ever runs twice.
package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// Turn is what happened in one turn, as the model sees it.
type Turn struct {
	Command  string
	Output   string
	ExitCode int
}

// Move is what a model wants to do: run a command, or give its answer.
type Move struct {
	Command string
	Answer  string
}

// Model decides the next move from the task and the turns so far. A real one asks
// a language model; it is called from an activity, so it may be repeated.
type Model func(ctx context.Context, task string, turns []Turn) (Move, error)

// maxTurns ends loops that lead nowhere.
const maxTurns = 20

// Solve works on a task until the model gives an answer.
func Solve(ctx workflow.Context, task string) (answer string, err error) {
	sb, err := durable.Open(ctx, &durable.Options{})
	if err != nil {
		return "", err
	}
	defer sb.Close(ctx) // the lease ends it otherwise
	thinking := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 2 * time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 5},
	})
	var turns []Turn
	for range maxTurns {
		var move Move
		if err := workflow.ExecuteActivity(thinking, "model", task, turns).Get(ctx, &move); err != nil {
			return "", err
		}
		if move.Answer != "" {
			return move.Answer, nil
		}
		res, err := sb.Run(ctx, "bash", []string{"-c", move.Command}, nil)
		if err != nil {
			return "", err
		}
		if res.Outcome == durable.Lost {
			turns = append(turns, Turn{move.Command, "the machine ended meanwhile; files are as of its last snapshot", -1})
			continue
		}
		turns = append(turns, Turn{move.Command, res.Tail, res.ExitCode})
	}
	return "", fmt.Errorf("no answer after %d turns", maxTurns)
}

// Scripted is a model that needs no account: it writes a test, sees it fail, and
// mends the program.
func Scripted(_ context.Context, _ string, turns []Turn) (Move, error) {
	script := []string{
		`printf 'echo $(($1 - $2))\n' > add.sh; printf '[ "$(sh add.sh 2 3)" = 5 ] && echo passed || { echo failed; exit 1; }\n' > test.sh`,
		`sh test.sh`,
		`sed -i 's/-/+/' add.sh; sh test.sh`,
	}
	if len(turns) < len(script) {
		return Move{Command: script[len(turns)]}, nil
	}
	last := turns[len(turns)-1]
	return Move{Answer: fmt.Sprintf("The test %s after %d turns.", strings.TrimSpace(last.Output), len(turns))}, nil
}
