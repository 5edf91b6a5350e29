// Package own runs the programs of a sandbox that packages beside the client need
// for themselves.
package own

import (
	"cmp"
	"context"
	"io"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/clean"
)

// Runner is a sandbox, a session or a user.
type Runner interface {
	RunCommand(ctx context.Context, name string, args []string, opts *sandbox.CommandOptions) (*sandbox.CommandResult, error)
}

// Run is RunCommand for a program that this module runs for itself: in an
// environment of its own, which that of the sandbox and Env do not change. Output
// without a writer is dropped. The error of a program that is not there is an
// [*exec.Error].
func Run(ctx context.Context, on Runner, opts *sandbox.CommandOptions, name string, args ...string) (done *sandbox.CommandResult, err error) {
	var o sandbox.CommandOptions
	if opts != nil {
		o = *opts
	}
	o.Stdout = cmp.Or(o.Stdout, io.Discard)
	said := &beginning{to: cmp.Or(o.Stderr, io.Discard)}
	err = clean.Run(name, args, func(name string, args []string) (int, string, error) {
		said.held = nil // of a first attempt that env has refused
		o.Stderr = said
		if done, err = on.RunCommand(ctx, name, args, &o); err != nil {
			return 0, "", err
		}
		return done.ExitCode, string(said.held), nil
	})
	if flushErr := said.flush(); err == nil {
		err = flushErr
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}

// beginning keeps what is written first until it is known whether it is what env
// says.
type beginning struct {
	to     io.Writer
	held   []byte
	passed bool
}

// maxHeld is more than any env says of an option that it does not know.
const maxHeld = 4 << 10

func (b *beginning) Write(p []byte) (int, error) {
	if b.passed {
		return b.to.Write(p)
	}
	if b.held = append(b.held, p...); len(b.held) <= maxHeld {
		return len(p), nil
	}
	return len(p), b.flush()
}

func (b *beginning) flush() error {
	if b.passed || len(b.held) == 0 {
		return nil
	}
	b.passed = true
	_, err := b.to.Write(b.held)
	return err
}
