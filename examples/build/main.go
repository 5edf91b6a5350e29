// Build clones a repository into a throwaway sandbox, runs a command there with
// its output on this terminal, and exits with its exit code: a CI job.
//
//	go run ./examples/build -repo https://github.com/expressjs/cors 'npm install && npm test'
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
)

func main() {
	repo := flag.String("repo", "https://github.com/expressjs/cors", "the `URL` of a git repository that the sandbox can reach")
	revision := flag.String("revision", "", "a branch, tag or commit; empty for the default branch")
	runtime := flag.String("runtime", "node24", "the runtime to build with")
	flag.Parse()
	command := strings.Join(flag.Args(), " ")
	if command == "" {
		command = "npm install && npm test"
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code, err := build(ctx, *repo, *revision, *runtime, command)
	stop()
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// build returns the exit code of the command.
func build(ctx context.Context, repo, revision, runtime, command string) (int, error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Source:    sandbox.GitSource{URL: repo, Revision: revision, Depth: 1},
		Runtime:   runtime,
		Timeout:   20 * time.Minute,
		Ephemeral: true,
		Env:       map[string]string{"CI": "true"},
	})
	if err != nil {
		return 0, err
	}
	defer sb.Close()

	head, err := sb.RunCommand(ctx, "git", []string{"log", "-1", "--format=%h %s"}, nil)
	if err != nil {
		return 0, err
	}
	commit, err := head.Stdout(ctx)
	if err != nil {
		return 0, err
	}
	fmt.Printf("Building %s", commit)

	// A build may run for longer than any connection lasts: its output and exit
	// code are complete nevertheless.
	done, err := sb.RunCommand(ctx, "bash", []string{"-c", command}, &sandbox.CommandOptions{
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	if err != nil {
		return 0, err
	}
	fmt.Printf("Exit code %d after %v\n", done.ExitCode, done.Duration.Round(time.Millisecond))
	return done.ExitCode, nil
}
