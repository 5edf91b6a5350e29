package sandboxtest

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// stream is a response of NDJSON records.
type stream struct {
	c   *call
	ctl *http.ResponseController
}

func (c *call) stream() *stream {
	return &stream{c, http.NewResponseController(c.w)}
}

// start sends the header, so that the client learns that the command runs before it
// writes anything.
func (s *stream) start() error {
	// Don't add a charset: the official client compares the whole value.
	s.c.w.Header().Set("Content-Type", "application/x-ndjson")
	s.c.w.WriteHeader(http.StatusOK)
	return s.flush()
}

func (s *stream) flush() error { return s.ctl.Flush() }

// record sends one record.
func (s *stream) record(v any) error {
	if s.c.w.Header().Get("Content-Type") == "" {
		if err := s.start(); err != nil {
			return err
		}
	}
	data, err := reply.Encode(v)
	if err != nil {
		return err
	}
	if _, err := s.c.w.Write(append(data, '\n')); err != nil {
		return err
	}
	return s.flush()
}

// broken ends a stream that can't continue with a record of the protocol: the status was
// already sent.
func (s *stream) broken(err error) error {
	switch {
	case err == nil, s.c.r.Context().Err() != nil: // the client has gone
		return nil
	case err == context.Canceled:
		_ = s.failure(streamClosed, "The emulator is closing.")
	case err == store.ErrLogGone, err == errSessionEnded:
		_ = s.failure(streamClosed, "Sandbox stream was closed and is not accepting commands.")
	default:
		_ = s.failure("internal_server_error", err.Error())
	}
	return nil
}

func (s *stream) failure(code, message string) error {
	return s.record(map[string]any{"stream": "error", "data": map[string]string{"code": code, "message": message}})
}

// streamClosed is the code of a stream that ended before its command because the session
// did.
const streamClosed = "sandbox_stream_closed"

// errSessionEnded ends a stream when its session ends.
var errSessionEnded = errors.New("the session is ending")
