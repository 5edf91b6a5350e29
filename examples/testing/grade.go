package main

import (
	"context"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
)

// Verdict is the result for an answer.
type Verdict string

const (
	Right   Verdict = "right"
	Wrong   Verdict = "wrong"
	Crashed Verdict = "crashed"
	TooSlow Verdict = "too slow"
)

// timeLimit is how long an answer may run.
const timeLimit = 10 * time.Second

// killed is the exit code of a command that reached its time limit.
const killed = 128 + int(sandbox.SIGKILL)

// Grade runs an answer in a new sandbox without network. A test passes the client
// of an emulator.
func Grade(ctx context.Context, client *sandbox.Client, answer string) (Verdict, error) {
	sb, err := client.Create(ctx, &sandbox.CreateOptions{
		Runtime:       "python3.13",
		Ephemeral:     true,
		NetworkPolicy: sandbox.DenyAll(),
	})
	if err != nil {
		return "", err
	}
	defer sb.Close()
	if err := sb.WriteFiles(ctx, []sandbox.File{
		{Path: "answer.py", Content: []byte(answer)},
		{Path: "input.txt", Content: []byte("3 4 5\n")},
	}, nil); err != nil {
		return "", err
	}
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", "python3 answer.py < input.txt"}, &sandbox.CommandOptions{Timeout: timeLimit})
	if err != nil {
		return "", err
	}
	out, err := done.Stdout(ctx)
	if err != nil {
		return "", err
	}
	switch {
	case done.ExitCode == killed:
		return TooSlow, nil
	case done.ExitCode != 0:
		return Crashed, nil
	case strings.TrimSpace(out) != "12":
		return Wrong, nil
	}
	return Right, nil
}
