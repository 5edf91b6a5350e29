// Agent is the loop of a coding agent: a model asks for files to be written and
// commands to be run, sees the output, and continues until the task is done.
// Between tasks the sandbox is stopped; the next one finds it as it was.
//
//	go run ./examples/agent
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
)

// maxSteps ends a task that a model does not complete.
const maxSteps = 20

// maxSeen is how much of the end of a command's output the model sees.
const maxSeen = 4 << 10

func main() {
	idle := flag.Duration("idle", 2*time.Second, "stop the sandbox when there was no task for this `time`")
	pause := flag.Duration("pause", 4*time.Second, "the `time` between the tasks of this example")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *idle, newUser(ctx, *pause)); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, idle time.Duration, user *user) (err error) {
	sb, err := sandbox.GetOrCreate(ctx, "agent-example", &sandbox.CreateOptions{
		Runtime:       "python3.13",
		Timeout:       time.Hour,
		NetworkPolicy: sandbox.DenyAll(),
		OnResume: func(context.Context, *sandbox.Sandbox) error {
			fmt.Println("-- back, with all files")
			return nil
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()

	for {
		select {
		case task, more := <-user.tasks:
			if !more {
				return list(ctx, sb)
			}
			if err := solve(ctx, sb, scripted{}, task); err != nil {
				return err
			}
			user.answers <- "done"
		case <-time.After(idle):
			if sb.Status() != sandbox.StatusStopped {
				fmt.Println("-- idle: stopping")
				if err := sb.Close(); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// solve lets the model work on a task until it is done.
func solve(ctx context.Context, sb *sandbox.Sandbox, m model, task string) error {
	fmt.Printf("\n== %s\n", task)
	var seen []observation
	for range maxSteps {
		next, ok := m.Next(task, seen)
		if !ok {
			return nil
		}
		saw, err := act(ctx, sb, next)
		if err != nil {
			return err
		}
		seen = append(seen, saw)
	}
	return fmt.Errorf("not done after %d steps", maxSteps)
}

// act performs an action. A failure inside the sandbox is shown to the model;
// an error is a failure of the sandbox itself.
func act(ctx context.Context, sb *sandbox.Sandbox, a action) (observation, error) {
	if a.Path != "" {
		fmt.Println(">> write", a.Path)
		return observation{}, sb.FS().WriteFile(ctx, a.Path, []byte(a.Text), 0o644)
	}
	fmt.Println("$", a.Command)
	var out tail
	both := io.MultiWriter(os.Stdout, &out) // shown as it comes
	done, err := sb.RunCommand(ctx, "bash", []string{"-c", a.Command}, &sandbox.CommandOptions{
		Stdout:       both,
		Stderr:       both,
		Timeout:      time.Minute, // a model may well write an endless loop
		KillOnCancel: true,
	})
	if err != nil {
		return observation{}, err
	}
	return observation{ExitCode: done.ExitCode, Output: string(out)}, nil
}

// list shows the files that the agent leaves behind.
func list(ctx context.Context, sb *sandbox.Sandbox) error {
	fmt.Println("\nThe files:")
	return sb.FS().WalkDir(ctx, sb.Cwd(), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Printf("  %s, %d bytes\n", name, info.Size())
		return nil
	})
}

// tail keeps the last of what is written to it.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if len(*t) > maxSeen {
		*t = append((*t)[:0], (*t)[len(*t)-maxSeen:]...)
	}
	return len(p), nil
}
