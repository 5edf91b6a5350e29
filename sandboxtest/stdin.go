package sandboxtest

import (
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
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

type stdinParams struct {
	Data   *string `json:"data"`
	Offset *int64  `json:"offset"`
	Close  bool    `json:"close"`
}

// writeStdin handles POST …/cmd/{id}/stdin.
func (c *call) writeStdin() error {
	if c.s.opts.Stdin == NoStdin {
		return reply.NotFound("Not Found")
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
			return reply.Invalid("`data` should match format \"base64\".")
		}
	}
	if p.Offset != nil && *p.Offset < 0 {
		return reply.Invalid("`offset` should be >= 0.")
	}
	if c.s.opts.Stdin == StdinWithoutOffsets {
		p.Offset = nil
	}
	switch {
	case cmd.Exited():
		return reply.ErrCommandGone
	case !cmd.HasStdin():
		return store.ErrStdinUnavailable
	}
	written, err := cmd.WriteStdin(data, p.Offset, p.Close)
	resp := wire.StdinResponse{Command: cmd.Describe(), BytesWritten: &written}
	if c.s.opts.Stdin == StdinWithoutOffsets {
		resp.BytesWritten = nil
	}
	if err == nil {
		reply.WriteJSON(c.w, http.StatusOK, resp)
		return nil
	}
	failure, ok := errors.AsType[*reply.Error](err)
	switch {
	case !ok && cmd.Exited():
		return reply.ErrCommandGone
	case !ok: // the command has closed its end
		return store.ErrStdinUnavailable
	case resp.BytesWritten != nil:
		told := *failure
		told.Extra = map[string]any{"bytesWritten": written}
		failure = &told
	}
	return failure
}
