package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/tarball"
)

// execTarget is what a Cmd runs on: a Sandbox, a Session or a User.
type execTarget interface {
	target
	// onSession performs the steps of a start, on one session where the target
	// is a sandbox that may be resumed meanwhile.
	onSession(ctx context.Context, fn func(target) (*Command, error)) (*Command, error)
}

func (s *Sandbox) onSession(ctx context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return withResume(ctx, s, func(cur *Session) (*Command, error) { return fn(cur) })
}

func (s *Session) onSession(_ context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return fn(s)
}

func (u *User) onSession(_ context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return fn(u)
}

// input is a command's standard input with its length known.
type input struct {
	content
	close func()
}

// lookFirst is the length of an input from which on the program is looked for
// before the upload, not meanwhile: it would be long for nothing.
const lookFirst = 32 << 20

// believed is the smallest size of a file that is trusted. A smaller file is
// read instead: those of /proc and /sys report any size.
const believed = 64 << 10

// knownInput returns the input if its length is known without waiting for
// anything, and nil otherwise.
func knownInput(r io.Reader) (*input, error) {
	if b, ok := r.(*bytes.Buffer); ok {
		r = bytes.NewReader(b.Next(b.Len()))
	}
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return nil, err
		}
		if info.Size() < believed {
			data, err := io.ReadAll(io.LimitReader(f, believed))
			if err != nil {
				return nil, fmt.Errorf("sandbox: reading standard input: %w", err)
			}
			if len(data) == believed { // it has grown, or reported a wrong size
				_, err := f.Seek(-believed, io.SeekCurrent)
				return nil, err
			}
			r = bytes.NewReader(data)
		}
	}
	if s, ok := r.(io.ReadSeeker); ok {
		if c, err := contentOf(s); err == nil {
			return &input{content: c, close: func() {}}, nil
		}
	}
	return nil, nil
}

// startWithInput starts a command with its input in a file. Meanwhile the
// program is looked for: the start that follows is that of a shell. Each attempt
// uploads to a new name; the files of attempts that did not start the command are
// removed. When ctx ends, nothing more is begun.
func startWithInput(ctx context.Context, on execTarget, in *input, name string, o *CommandOptions, begin func(target) (*Command, error)) (*Command, error) {
	return on.onSession(ctx, func(t target) (cmd *Command, err error) {
		found := make(chan error, 1)
		go func() { found <- findProgram(ctx, t, name, o) }()
		if in.size >= lookFirst {
			if err := <-found; err != nil {
				return nil, err
			}
			found <- nil
		}
		var files []string
		err = send(ctx, t, func(string) (iter.Seq2[tarball.Entry, error], error) {
			o.input = "/tmp/.stdin-" + rand.Text()
			files = append(files, o.input)
			return alone(tarball.Entry{Name: o.input[1:], Mode: 0o600, Size: in.size, ModTime: time.Now(), Open: in.open}), nil
		}, nil)
		if err = cmp.Or(err, <-found, ctx.Err()); err == nil {
			if cmd, err = begin(t); err == nil {
				files = files[:len(files)-1]
			}
		}
		(&FileSystem{t: t}).discard(ctx, files...)
		return cmd, err
	})
}

// feed copies the input to the command.
func (r *execRun) feed(ctx context.Context) error {
	w := r.remote.Stdin(ctx)
	to := &inputWriter{Writer: w}
	_, err := io.Copy(to, r.stdin)
	if r.stdinPipe != nil {
		err = nil // a pipe of ours fails only because Wait has closed it
	}
	closeErr := w.Close()
	if to.err == nil && err == nil {
		to.err = closeErr
	}
	_, gone := errors.AsType[closedPipeError](to.err)
	switch {
	case to.err == nil:
		return err // of the reader, which counts also if the command has gone meanwhile
	case gone || ctx.Err() != nil:
		return nil // like os/exec, which ignores EPIPE
	}
	return &engine.InputError{Err: fmt.Errorf("sandbox: delivering standard input: %w", to.err)}
}

// inputWriter keeps a writer's error apart from a reader's.
type inputWriter struct {
	io.Writer
	err error
}

func (w *inputWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}
