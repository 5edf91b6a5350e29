// Repl keeps a Python interpreter open in a sandbox across the turns of an
// agent. A turn can use what an earlier one defined, and gets the output of its
// own code only.
//
//	go run ./cmd/sandbox-emulator go run ./examples/repl 'x = 6 * 7' 'x' # needs python3
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
)

func main() {
	turns := os.Args[1:]
	if len(turns) == 0 {
		turns = []string{"numbers = [n * n for n in range(5)]", "numbers", "for n in numbers:\n    print(n, end=' ')\n", "numbers / 2"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, turns)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, turns []string) (err error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true, Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()
	python, err := newREPL(ctx, sb)
	if err != nil {
		return err
	}
	for _, program := range turns {
		printed, err := python.ask(program)
		if err != nil {
			return err
		}
		fmt.Printf(">>> %s\n%q\n", program, printed)
	}
	return python.close()
}

//go:embed repl.py
var driver string

// repl is an interpreter that runs in a sandbox.
type repl struct {
	cmd   *sandbox.Cmd
	stdin io.WriteCloser
	in    *json.Encoder
	out   *json.Decoder
}

func newREPL(ctx context.Context, sb *sandbox.Sandbox) (*repl, error) {
	cmd := sb.CommandContext(ctx, "python3", "-u", "-c", driver)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &repl{cmd, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}, nil
}

// ask runs a program and returns its output.
func (r *repl) ask(program string) (string, error) {
	if err := r.in.Encode(program); err != nil {
		return "", err
	}
	var printed string
	err := r.out.Decode(&printed)
	return printed, err
}

// close ends the interpreter by ending its input.
func (r *repl) close() error { return errors.Join(r.stdin.Close(), r.cmd.Wait()) }
