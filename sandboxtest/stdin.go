package sandboxtest

import (
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

type stdinParams struct {
	Data   *string `json:"data"`
	Offset *int64  `json:"offset"`
	Close  bool    `json:"close"`
}

// writeStdin handles POST …/cmd/{id}/stdin.
func (c *call) writeStdin() error {
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
	switch {
	case cmd.Exited():
		return reply.ErrCommandGone
	case !cmd.HasStdin():
		return store.ErrStdinUnavailable
	}
	written, err := cmd.WriteStdin(data, p.Offset, p.Close)
	if err == nil {
		return c.respond(http.StatusOK, wire.StdinResponse{Command: cmd.Describe(), BytesWritten: &written}, nil)
	}
	failure, ok := errors.AsType[*reply.Error](err)
	switch {
	case !ok && cmd.Exited():
		return reply.ErrCommandGone
	case !ok: // the command has closed its end
		return store.ErrStdinUnavailable
	}
	withCount := *failure
	withCount.Extra = map[string]any{"bytesWritten": written}
	return &withCount
}
