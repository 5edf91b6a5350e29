package api

import (
	"context"
	"errors"
)

// ContextError returns the error of a context that has ended. It matches both
// its cause and its Err.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return cause
	}
	return &endedError{cause, err}
}

// endedError is a context's cause, which does not itself match the context's
// error.
type endedError struct{ cause, err error }

func (e *endedError) Error() string   { return e.cause.Error() }
func (e *endedError) Unwrap() []error { return []error{e.cause, e.err} }
