// Package own runs helper programs in the sandbox for packages other than the client.
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

// Run is RunCommand for a helper program of this module. It runs in a separate
// environment, which neither the sandbox's environment nor Env changes. Output without a
// writer is dropped. If the program does not exist, the error is an [*exec.Error].
func Run(ctx context.Context, on Runner, opts *sandbox.CommandOptions, name string, args ...string) (done *sandbox.CommandResult, err error) {
	o := *cmp.Or(opts, new(sandbox.CommandOptions))
	o.Stdout = cmp.Or(o.Stdout, io.Discard)
	stderr := &heldWriter{to: cmp.Or(o.Stderr, io.Discard)}
	err = clean.Run(name, args, func(name string, args []string) (int, string, error) {
		stderr.held = nil // drop the message of env about a first attempt that it refused
		o.Stderr = stderr
		if done, err = on.RunCommand(ctx, name, args, &o); err != nil {
			return 0, "", err
		}
		return done.ExitCode, string(stderr.held), nil
	})
	if flushErr := stderr.flush(); err == nil {
		err = flushErr
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}

// heldWriter holds the first output, because env may have written it. flush passes it on
// to the writer.
type heldWriter struct {
	to     io.Writer
	held   []byte
	passed bool // the held output was passed on
}

// maxHeld is longer than any message of env about an unknown option.
const maxHeld = 4 << 10

func (b *heldWriter) Write(p []byte) (int, error) {
	if b.passed {
		return b.to.Write(p)
	}
	if b.held = append(b.held, p...); len(b.held) <= maxHeld {
		return len(p), nil
	}
	return len(p), b.flush()
}

func (b *heldWriter) flush() error {
	if b.passed || len(b.held) == 0 {
		return nil
	}
	b.passed = true
	_, err := b.to.Write(b.held)
	return err
}
