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

// Error reports a stream that failed and could not be resumed. Code comes from the server or
// is one of this package's. Errors of the context, and permanent errors of the first attempt,
// are returned unchanged.
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

// invalidLine returns the error of a stream with an invalid line, which a replay would contain
// too. It returns false for other errors.
func invalidLine(err error) (*Error, bool) {
	if _, ok := errors.AsType[*wire.LineError](err); !ok {
		return nil, false
	}
	return &Error{Code: CodeInvalidRecord, Message: "the stream contains a line that is not a log record", Err: err}, true
}

// verdict is the meaning of a failed request or a broken stream for a repair.
type verdict int

const (
	temporary verdict = iota // may succeed if retried
	refusal                  // unlikely to succeed, but may come from a proxy
	final                    // the API says that the command can't be reached
)

func judge(err error) verdict {
	if _, ok := err.(*api.AuthError); ok {
		return refusal // nothing was sent
	}
	f, ok := err.(*api.Failure)
	switch {
	case !ok:
		return temporary // an error of the stream
	case f.Kind == api.Foreign:
		return refusal
	case f.Kind.Passing():
		return temporary
	}
	return final
}
