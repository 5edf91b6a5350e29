// Quickstart creates a sandbox, runs a program in it with its output on this
// terminal, stops the sandbox, gets it again by name, shows that its files
// still exist, and deletes it.
//
// It runs unchanged against Vercel, with credentials in the environment, and
// against the emulator:
//
//	go run ./cmd/sandbox-emulator go run ./examples/quickstart
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/go-vercel/sandbox"
)

const (
	name    = "quickstart"
	program = `echo "Hello from $(hostname), run $(wc -l < runs.txt | tr -d ' ')"
for i in 1 2 3; do
	echo "step $i"
	sleep 0.3
done
echo "all done" >&2
`
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
	fmt.Println("Creating the sandbox…")
	sb, err := sandbox.GetOrCreate(ctx, name, nil)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("Deleting the sandbox…")
		// Ignore the cancellation of ctx, to delete the sandbox after Ctrl-C too.
		err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil))
	}()

	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "program.sh", Content: []byte(program)}}, nil); err != nil {
		return err
	}
	if err := runProgram(ctx, sb); err != nil {
		return err
	}

	fmt.Println("Stopping the sandbox…")
	if _, err := sb.Stop(ctx, nil); err != nil {
		return err
	}

	// Another process needs only the name to get the sandbox with its files.
	again, err := sandbox.Get(ctx, name, nil)
	if err != nil {
		return err
	}
	fmt.Printf("Back in %s, with the same files:\n", again.Name())
	return runProgram(ctx, again)
}

// runProgram counts the run and shows the program's output as it arrives.
func runProgram(ctx context.Context, sb *sandbox.Sandbox) error {
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", "date >> runs.txt && sh program.sh"}, &sandbox.CommandOptions{
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	if err != nil {
		return err
	}
	fmt.Printf("It exited with %d after %v.\n", done.ExitCode, done.Duration)
	return nil
}
