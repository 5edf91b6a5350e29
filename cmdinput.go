package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/go-vercel/sandbox/internal/accounts"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/tarball"
)

// execTarget is what a Cmd runs on: a Sandbox, a Session or a User.
type execTarget interface {
	target
	// onSession performs the steps of a start, on one session where the target
	// is a sandbox that may be resumed meanwhile.
	onSession(ctx context.Context, fn func(target) (*Command, error)) (*Command, error)
	// giveFile makes a file readable for the commands of the target.
	giveFile(ctx context.Context, path string) error
}

var (
	_ execTarget = (*Sandbox)(nil)
	_ execTarget = (*Session)(nil)
	_ execTarget = (*User)(nil)
)

func (s *Sandbox) onSession(ctx context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return withResume(ctx, s, func(cur *Session) (*Command, error) { return fn(cur) })
}

func (s *Session) onSession(_ context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return fn(s)
}

func (u *User) onSession(_ context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return fn(u)
}

func (u *User) giveFile(ctx context.Context, path string) error {
	return u.accountSteps(ctx, u.accountNames(), accounts.Chown(accounts.Plain, u.username, path))
}

func (s *Sandbox) giveFile(context.Context, string) error { return nil }
func (s *Session) giveFile(context.Context, string) error { return nil }

// input is a command's standard input with its length known.
type input struct {
	content
	close func()
}

// believed is the smallest size of a file that is trusted. A smaller file is
// read instead: those of /proc and /sys report any size.
const believed = 64 << 10

// knownInput returns the input if its length is known without waiting for
// anything.
func knownInput(r io.Reader) (*input, bool, error) {
	switch r := r.(type) {
	case *bytes.Buffer:
		return inputOf(bytes.NewReader(r.Next(r.Len())))
	case *os.File:
		info, err := r.Stat()
		if err != nil {
			return nil, false, err
		}
		if !info.Mode().IsRegular() {
			return nil, false, nil
		}
		if info.Size() < believed {
			data, err := io.ReadAll(io.LimitReader(r, believed))
			if err != nil {
				return nil, false, fmt.Errorf("sandbox: reading standard input: %w", err)
			}
			if len(data) == believed { // it has grown, or reported a wrong size
				_, err := r.Seek(-believed, io.SeekCurrent)
				return nil, false, err
			}
			return inputOf(bytes.NewReader(data))
		}
		return inputOf(r)
	case io.ReadSeeker:
		return inputOf(r)
	}
	return nil, false, nil
}

// inputOf returns the input from a reader that can seek, unless it can't.
func inputOf(r io.ReadSeeker) (*input, bool, error) {
	c, err := contentOf(r)
	if err != nil {
		return nil, false, nil
	}
	return &input{content: c, close: func() {}}, true, nil
}

// spool copies an input into a local temporary file, so that an input of any
// length takes no memory. If ctx ends it returns at once; the copying stops
// after the pending Read.
func spool(ctx context.Context, r io.Reader) (*input, error) {
	f, err := os.CreateTemp("", "sandbox-stdin-")
	if err != nil {
		return nil, fmt.Errorf("sandbox: keeping standard input: %w", err)
	}
	os.Remove(f.Name()) // where the system allows it, so that nothing is left behind by a crash
	discard := func() {
		f.Close()
		os.Remove(f.Name())
	}
	copied := make(chan error)
	go func() {
		_, err := io.Copy(f, r)
		select {
		case copied <- err:
		case <-ctx.Done():
			discard()
		}
	}()
	select {
	case <-ctx.Done():
		return nil, api.ContextError(ctx)
	case err := <-copied:
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		in := &input{close: discard}
		if err == nil {
			in.content, err = contentOf(f)
		}
		if err != nil {
			discard()
			return nil, fmt.Errorf("sandbox: reading standard input: %w", err)
		}
		return in, nil
	}
}

// withInput opens the file, removes it and becomes the command, so that the
// file is gone when the command begins. PATH may be the command's own.
const withInput = `exec <"$1" || exit 126; /bin/rm -f -- "$1" 2>/dev/null || rm -f -- "$1"; shift; exec "$@"`

// startWithInput starts a command with its input in a file. Each attempt
// uploads to a new name; the files of attempts that did not start the command
// are removed. When ctx ends, nothing more is begun.
func startWithInput(ctx context.Context, on execTarget, in *input, name string, args []string, begin func(t target, name string, args []string) (*Command, error)) (*Command, error) {
	return on.onSession(ctx, func(t target) (*Command, error) {
		var files []string
		err := send(ctx, t, func(string) (iter.Seq2[tarball.Entry, error], error) {
			file := "/tmp/.stdin-" + rand.Text()
			files = append(files, file)
			return alone(tarball.Entry{Name: file[1:], Mode: 0o600, Size: in.size, ModTime: time.Now(), Open: in.open}), nil
		}, nil)
		if err == nil {
			err = on.giveFile(ctx, files[len(files)-1])
		}
		if err == nil {
			err = ctx.Err()
		}
		var cmd *Command
		if err == nil {
			cmd, err = begin(t, "/bin/sh", append([]string{"-c", withInput, "sh", files[len(files)-1], name}, args...))
		}
		if err == nil {
			files = files[:len(files)-1]
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
