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
	return &causeError{cause, err}
}

// causeError is a context's cause that does not match the context's error itself.
type causeError struct{ cause, err error }

func (e *causeError) Error() string   { return e.cause.Error() }
func (e *causeError) Unwrap() []error { return []error{e.cause, e.err} }
