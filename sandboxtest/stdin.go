package sandboxtest

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// StdinSupport is how the service supports the standard input of commands. The
// hosted service learned it in steps, and a sandbox supports what was known
// when it was created.
type StdinSupport string

const (
	// StdinWithOffsets is full support. It is the default.
	StdinWithOffsets StdinSupport = ""
	// StdinWithoutOffsets ignores the offset of a write and does not report how
	// much was written, so that no write can safely be retried.
	StdinWithoutOffsets StdinSupport = "without offsets"
	// NoStdin refuses to start a command with an open standard input, and has
	// no endpoint to write to it.
	NoStdin StdinSupport = "none"
)

const (
	// stdinTimeout is how long a write waits, by the server's clock, for the
	// command to read.
	stdinTimeout = 30 * time.Second
)

// inputPipe is where the input of a command is written to.
type inputPipe interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// commandInput is the open standard input of a command.
type commandInput struct {
	pipe inputPipe

	mu      sync.Mutex // held while a write lasts: they are applied one by one
	written int64
	closed  bool

	waiting sync.Mutex // guards what follows and the pipe's deadline
	attempt int
}

// await starts an attempt to write, which expire ends.
func (in *commandInput) await() (expire func()) {
	in.waiting.Lock()
	defer in.waiting.Unlock()
	in.attempt++
	attempt := in.attempt
	_ = in.pipe.SetWriteDeadline(time.Time{}) // Windows has none, and waits
	return func() {
		in.waiting.Lock()
		defer in.waiting.Unlock()
		if in.attempt == attempt {
			_ = in.pipe.SetWriteDeadline(time.Unix(1, 0)) // as above
		}
	}
}

var errStdinUnavailable = fail(http.StatusBadRequest, "command_stdin_unavailable", "The command's standard input is not available.")

type stdinParams struct {
	Data   *string `json:"data"`
	Offset *int64  `json:"offset"`
	Close  bool    `json:"close"`
}

// writeStdin handles POST …/cmd/{id}/stdin.
func (c *call) writeStdin() error {
	if c.s.opts.Stdin == NoStdin {
		return notFound("Not Found")
	}
	cmd, err := c.liveCommand()
	if err != nil {
		return err
	}
	var p stdinParams
	if err := c.decodeUpTo(wire.MaxStdin, &p); err != nil {
		return err
	}
	var data []byte
	if p.Data != nil {
		if data, err = base64.StdEncoding.DecodeString(*p.Data); err != nil {
			return invalid("`data` should match format \"base64\".")
		}
	}
	if p.Offset != nil && *p.Offset < 0 {
		return invalid("`offset` should be >= 0.")
	}
	if c.s.opts.Stdin == StdinWithoutOffsets {
		p.Offset = nil
	}
	switch {
	case cmd.exited():
		return errCommandGone
	case cmd.input == nil:
		return errStdinUnavailable
	}
	written, err := cmd.input.write(c.s.clock, data, p.Offset, p.Close)
	resp := wire.StdinResponse{Command: cmd.wire(), BytesWritten: &written}
	if c.s.opts.Stdin == StdinWithoutOffsets {
		resp.BytesWritten = nil
	}
	if err == nil {
		writeJSON(c.w, http.StatusOK, resp)
		return nil
	}
	failure, ok := errors.AsType[*apiError](err)
	switch {
	case !ok && cmd.exited():
		return errCommandGone
	case !ok: // the command has closed its end
		return errStdinUnavailable
	case resp.BytesWritten != nil:
		told := *failure
		told.extra = map[string]any{"bytesWritten": written}
		failure = &told
	}
	return failure
}

// write writes what of data was not written before, and gives how much was
// written in all.
func (in *commandInput) write(clock *clock, data []byte, offset *int64, closeAfter bool) (int64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if offset != nil {
		known := in.written - *offset
		if known < 0 {
			return in.written, fail(http.StatusConflict, "conflict", "The offset %d is beyond the %d bytes that were written.", *offset, in.written)
		}
		data = data[min(known, int64(len(data))):]
	}
	if len(data) > 0 {
		if in.closed {
			return in.written, errStdinUnavailable
		}
		late := clock.AfterFunc(stdinTimeout, in.await())
		n, err := in.pipe.Write(data)
		late.Stop()
		in.written += int64(n)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return in.written, fail(http.StatusGatewayTimeout, "gateway_timeout", "The command did not read its standard input in time.")
		case err != nil:
			return in.written, err
		}
	}
	if closeAfter && !in.closed {
		in.closed = true
		_ = in.pipe.Close() // no one is left to tell
	}
	return in.written, nil
}
