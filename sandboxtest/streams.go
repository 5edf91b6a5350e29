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

// start sends the header at once, so that the client learns that the command runs even if
// the command writes nothing.
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

// fail reports err in the last record of the stream, because the status was already sent.
// It sends nothing if err is nil or the client has gone. It always returns nil: the
// response is complete.
func (s *stream) fail(err error) error {
	switch {
	case err == nil, s.c.r.Context().Err() != nil: // the client has gone
		return nil
	case err == context.Canceled:
		_ = s.errorRecord(streamClosed, "The emulator is closing.")
	case err == store.ErrLogGone, err == errSessionEnded:
		_ = s.errorRecord(streamClosed, "Sandbox stream was closed and is not accepting commands.")
	default:
		_ = s.errorRecord("internal_server_error", err.Error())
	}
	return nil
}

// errorRecord sends a record with an error.
func (s *stream) errorRecord(code, message string) error {
	return s.record(map[string]any{"stream": "error", "data": map[string]string{"code": code, "message": message}})
}

// streamClosed is the error code of a stream that ends before its command because the
// session has ended.
const streamClosed = "sandbox_stream_closed"

// errSessionEnded ends a stream when its session ends.
var errSessionEnded = errors.New("the session is ending")
