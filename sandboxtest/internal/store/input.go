package store

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

const (
	// stdinTimeout is how long a write waits, by the server's clock, for the command to
	// read.
	stdinTimeout = 30 * time.Second
)

// inputPipe receives the input of a command.
type inputPipe interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// commandInput is the open standard input of a command.
type commandInput struct {
	pipe inputPipe

	mu      sync.Mutex // held during a write, so that writes don't mix
	written int64
	closed  bool

	deadlineMu sync.Mutex // guards attempt and the pipe's deadline
	attempt    int
}

// beginAttempt starts an attempt to write. expire ends this attempt, but no later one.
func (in *commandInput) beginAttempt() (expire func()) {
	in.deadlineMu.Lock()
	defer in.deadlineMu.Unlock()
	in.attempt++
	attempt := in.attempt
	_ = in.pipe.SetWriteDeadline(time.Time{}) // Windows has no deadlines: a write may take forever
	return func() {
		in.deadlineMu.Lock()
		defer in.deadlineMu.Unlock()
		if in.attempt == attempt {
			_ = in.pipe.SetWriteDeadline(time.Unix(1, 0)) // see above
		}
	}
}

var ErrStdinUnavailable = reply.Fail(http.StatusBadRequest, "command_stdin_unavailable", "The command's standard input is not available.")

// write writes the part of data that was not written before, and returns how much was
// written in total.
func (in *commandInput) write(clock *Clock, data []byte, offset *int64, closeAfter bool) (int64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if offset != nil {
		known := in.written - *offset
		if known < 0 {
			return in.written, reply.Fail(http.StatusConflict, "conflict", "The offset %d is beyond the %d bytes that were written.", *offset, in.written)
		}
		data = data[min(known, int64(len(data))):]
	}
	if len(data) > 0 {
		if in.closed {
			return in.written, ErrStdinUnavailable
		}
		timeout := clock.AfterFunc(stdinTimeout, in.beginAttempt())
		n, err := in.pipe.Write(data)
		timeout.Stop()
		in.written += int64(n)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return in.written, reply.Fail(http.StatusGatewayTimeout, "gateway_timeout", "The command did not read its standard input in time.")
		case err != nil:
			return in.written, err
		}
	}
	if closeAfter && !in.closed {
		in.closed = true
		_ = in.pipe.Close() // the process may have ended
	}
	return in.written, nil
}

// WriteStdin writes to the command's input the part of data that was not written before. It
// returns how much was written in total.
func (cmd *Command) WriteStdin(data []byte, offset *int64, closeAfter bool) (written int64, err error) {
	return cmd.input.write(cmd.sess.sb.st.Clock, data, offset, closeAfter)
}

// HasStdin reports whether the command was started with an open standard input.
func (cmd *Command) HasStdin() bool { return cmd.input != nil }
