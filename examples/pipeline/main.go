// Pipeline runs a list of shell commands in one throwaway sandbox and prints
// the result of each as a line of JSON. It stops at the first command that
// fails, and then fails itself.
//
//	go run ./examples/pipeline 'echo hello > out.txt' 'cat out.txt' 'wc -c < out.txt'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
)

// result is the result of a command.
type result struct {
	Command  string  `json:"command"`
	ExitCode int     `json:"exitCode"`
	Seconds  float64 `json:"seconds"`
	Stdout   string  `json:"stdout"`
	Stderr   string  `json:"stderr"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	commands := os.Args[1:]
	if len(commands) == 0 {
		commands = []string{
			`printf '%s\n' banana apple cherry > fruit.txt`,
			`sort fruit.txt`,
			`echo "checking…" >&2; test "$(wc -l < fruit.txt)" -eq 3`,
		}
	}
	if err := run(ctx, commands); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, commands []string) error {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Ephemeral: true, // nothing is saved, so that nothing has to be cleaned up
		Timeout:   10 * time.Minute,
	})
	if err != nil {
		return err
	}
	defer sb.Close()

	report := json.NewEncoder(os.Stdout)
	report.SetEscapeHTML(false)
	for _, command := range commands {
		done, err := sb.RunCommand(ctx, "bash", []string{"-c", command}, &sandbox.CommandOptions{
			Timeout: time.Minute, // for this command
		})
		if err != nil {
			return err
		}
		stdout, err := done.Stdout(ctx)
		if err != nil {
			return err
		}
		stderr, err := done.Stderr(ctx)
		if err != nil {
			return err
		}
		if err := report.Encode(result{command, done.ExitCode, done.Duration.Seconds(), stdout, stderr}); err != nil {
			return err
		}
		if done.ExitCode != 0 {
			return errors.New("stopped at a command that failed")
		}
	}
	return nil
}
