package sandbox

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
)

// commandReader reads the output of a command while it runs, in constant
// memory. It is one goroutine until Close, which ends the command.
type commandReader struct {
	*bufio.Reader
	cancel context.CancelFunc
	pipe   *io.PipeReader
	done   chan struct{}
}

// readCommand starts a command and returns when it has written something or has
// ended. Its failure is an *FSError, at once or at the end of what it wrote.
func readCommand(ctx context.Context, t target, name string, args []string) (*commandReader, error) {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	r := &commandReader{
		Reader: bufio.NewReaderSize(pr, 64<<10),
		cancel: cancel, pipe: pr, done: make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		name, args := carry(name, args)
		var stderr headBuffer
		done, err := t.RunCommand(ctx, name, args, &CommandOptions{Stdout: pw, Stderr: &stderr, KillOnCancel: true})
		if err == nil && done.ExitCode != 0 {
			err = newFSError(name, done.ExitCode, string(stderr.buf))
		}
		pw.CloseWithError(err) // nil is io.EOF
	}()
	if _, err := r.Peek(1); err != nil && err != io.EOF {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the command and waits until nothing of it is left here.
func (r *commandReader) Close() error {
	r.cancel()
	r.pipe.CloseWithError(errors.New("sandbox: read after Close"))
	<-r.done
	return nil
}

// headBuffer keeps the beginning of what is written to it.
type headBuffer struct{ buf []byte }

func (b *headBuffer) Write(p []byte) (int, error) {
	const limit = 64 << 10
	b.buf = append(b.buf, p[:min(len(p), limit-len(b.buf))]...)
	return len(p), nil
}

// openEncoded reads a file through a command's output. That carries only UTF-8,
// so the content comes as base64.
func openEncoded(ctx context.Context, t target, path string) (io.ReadCloser, int64, error) {
	r, err := readCommand(ctx, t, "base64", operands(path))
	if err != nil {
		return nil, -1, err
	}
	return struct {
		io.Reader
		io.Closer
	}{base64.NewDecoder(base64.StdEncoding, r), r}, -1, nil
}
