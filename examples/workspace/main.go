// Workspace keeps a long-lived sandbox with a name: created and set up if it
// does not exist, started if it is stopped, along with its background process.
//
//	go run ./examples/workspace          # any number of times
//	go run ./examples/workspace -delete  # and no more
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
)

func main() {
	name := flag.String("name", "workspace", "the `name` of the sandbox")
	remove := flag.Bool("delete", false, "delete the workspace in the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *name, *remove); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, name string, remove bool) error {
	sb, err := sandbox.GetOrCreate(ctx, name, &sandbox.CreateOptions{
		Timeout: 30 * time.Minute,
		// Old states of a workspace are not needed: keep the last one.
		KeepLastSnapshots: &sandbox.KeepLastSnapshots{Count: 1},
		OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
			fmt.Println("Resumed: starting the worker again")
			return startWorker(ctx, sb)
		},
		// If it fails, the sandbox is deleted and the next call starts over.
		OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
			fmt.Println("Created: setting up")
			if err := sb.FS().MkdirAll(ctx, "notes", 0o755); err != nil {
				return err
			}
			return startWorker(ctx, sb)
		},
	})
	if err != nil {
		return err
	}
	defer sb.Close()

	if err := note(ctx, sb); err != nil {
		return err
	}
	// Nobody needs the machine for the night…
	fmt.Println("Stopping")
	if _, err := sb.Stop(ctx, nil); err != nil {
		return err
	}
	// …and the next call, whichever it is, starts it again.
	if err := note(ctx, sb); err != nil {
		return err
	}
	if remove {
		fmt.Println("Deleting")
		return sb.Delete(ctx, nil)
	}
	return nil
}

// startWorker starts a process that does not outlive a session.
func startWorker(ctx context.Context, sb *sandbox.Sandbox) error {
	_, err := sb.StartCommand(ctx, "sh", []string{"-c", "echo $$ > /tmp/worker.pid; exec sleep 86400"}, nil)
	return err
}

// note creates a file in the workspace, counts the existing ones and checks the
// worker.
func note(ctx context.Context, sb *sandbox.Sandbox) error {
	file := fmt.Sprintf("notes/%d.txt", time.Now().UnixNano())
	if err := sb.FS().WriteFile(ctx, file, []byte("was here\n"), 0o644); err != nil {
		return err
	}
	notes, err := sb.FS().ReadDir(ctx, "notes")
	if err != nil {
		return err
	}
	// The file may still be that of the session before, whose worker is gone.
	worker, err := sb.RunCommand(ctx, "sh", []string{"-c", "until kill -0 $(cat /tmp/worker.pid); do sleep 0.1; done 2>/dev/null"},
		&sandbox.CommandOptions{Timeout: time.Minute})
	if err != nil {
		return err
	}
	fmt.Printf("%s has %d notes, its worker runs: %t\n", sb.Name(), len(notes), worker.ExitCode == 0)
	return nil
}
