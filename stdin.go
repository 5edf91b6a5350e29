package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/go-vercel/sandbox/internal/tarball"

	"github.com/go-vercel/sandbox/internal/api"
)

// execTarget is what a Cmd runs on.
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
	return u.sandbox.chown(ctx, u.username, path)
}

func (s *Sandbox) giveFile(context.Context, string) error { return nil }
func (s *Session) giveFile(context.Context, string) error { return nil }

// input is a command's standard input with its length known.
type input struct {
	size int64
	// open may be called again, for another attempt.
	open  func() (io.ReadCloser, error)
	close func()
}

// knownInput returns the input if its length can be told without reading it.
func knownInput(r io.Reader) (*input, bool) {
	switch r := r.(type) {
	case *bytes.Buffer:
		data := r.Next(r.Len())
		return &input{
			size: int64(len(data)), close: func() {},
			open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		}, true
	case io.ReadSeeker:
		start, err := r.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, false
		}
		end, err := r.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, false
		}
		return &input{size: max(0, end-start), close: func() {}, open: func() (io.ReadCloser, error) {
			_, err := r.Seek(start, io.SeekStart)
			return io.NopCloser(r), err
		}}, true
	}
	return nil, false
}

// spool reads an input to its end into a local file, so that it needs no memory
// however long it is. When ctx ends it returns at once; the reading ends with
// the reader's Read.
func spool(ctx context.Context, r io.Reader) (*input, error) {
	f, err := os.CreateTemp("", "sandbox-stdin-")
	if err != nil {
		return nil, fmt.Errorf("sandbox: keeping standard input: %w", err)
	}
	discard := func() {
		f.Close()
		os.Remove(f.Name())
	}
	type result struct {
		n   int64
		err error
	}
	copied := make(chan result)
	go func() {
		n, err := io.Copy(f, r)
		select {
		case copied <- result{n, err}:
		case <-ctx.Done():
			discard()
		}
	}()
	select {
	case <-ctx.Done():
		return nil, api.ContextError(ctx)
	case res := <-copied:
		if res.err != nil {
			discard()
			return nil, fmt.Errorf("sandbox: reading standard input: %w", res.err)
		}
		return &input{size: res.n, close: discard, open: func() (io.ReadCloser, error) {
			_, err := f.Seek(0, io.SeekStart)
			return io.NopCloser(f), err
		}}, nil
	}
}

// withInput opens the file, removes it and becomes the command, so that the
// file is gone from the moment on at which the command begins.
const withInput = `exec <"$1" || exit 126; rm -f -- "$1"; shift; exec "$@"`

// startWithInput starts a command with its input in a file. Where the command
// does not begin, the file is removed.
func startWithInput(ctx context.Context, on execTarget, in *input, name string, args []string, o *CommandOptions) (*Command, error) {
	return on.onSession(ctx, func(t target) (*Command, error) {
		file := "/tmp/.stdin-" + rand.Text()
		open := tarball.Opener(ctx, func() iter.Seq2[tarball.Entry, error] {
			return func(yield func(tarball.Entry, error) bool) {
				yield(tarball.Entry{Name: file[1:], Mode: 0o600, Size: in.size, ModTime: time.Now(), Open: in.open}, nil)
			}
		})
		err := t.uploadTarGz(ctx, func(string) (io.ReadCloser, error) { return open() })
		if err == nil {
			err = on.giveFile(ctx, file)
		}
		var cmd *Command
		if err == nil {
			cmd, err = t.StartCommand(ctx, "sh", append([]string{"-c", withInput, "sh", file, name}, args...), o)
		}
		if err != nil {
			removeFile(ctx, t, file)
			if e, ok := err.(*APIError); ok && e.refused {
				return nil, e // as it is: nothing has begun on this session
			}
			return nil, fmt.Errorf("carrying standard input: %w", err)
		}
		return cmd, nil
	})
}

// removeFile removes a file of a command that did not begin. If even that fails
// the caller has the first error, which tells more.
func removeFile(ctx context.Context, t target, file string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	_, _ = t.RunCommand(ctx, "rm", []string{"-f", "--", file}, nil)
}
