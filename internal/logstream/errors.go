package logstream

import (
	"errors"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Codes of errors that are detected here, not reported by the server.
const (
	CodeEndedEarly    = "stream_ended_early"
	CodeInvalidRecord = "invalid_record"
	CodeLost          = "stream_lost"
)

// Error reports a stream that failed and could not be resumed. Code is the
// server's or one of this package. Errors of the context, and those of a first
// attempt that a retry would not fix, are returned unchanged.
type Error struct {
	Code, Message string
	Err           error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// invalid returns the error of a stream with a line that another reading would
// find again; false if err is no such line's.
func invalid(err error) (*Error, bool) {
	if _, ok := errors.AsType[*wire.LineError](err); !ok {
		return nil, false
	}
	return &Error{Code: CodeInvalidRecord, Message: "the stream holds a line that is not a log record", Err: err}, true
}

// verdict is the meaning of a failed request, or of a broken stream, for a repair.
type verdict int

const (
	passing verdict = iota // may succeed if retried
	refusal                // unlikely to succeed, but may come from a proxy
	final                  // the API says that the command is out of reach
)

func judge(err error) verdict {
	if _, ok := err.(*api.AuthError); ok {
		return refusal // nothing was sent
	}
	f, ok := err.(*api.Failure)
	switch {
	case !ok:
		return passing // of the stream
	case f.Kind == api.Foreign:
		return refusal
	case f.Kind.Passing():
		return passing
	}
	return final
}
