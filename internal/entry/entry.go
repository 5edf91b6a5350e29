// Package entry checks the handles and arguments of calls in the packages other than the
// client.
package entry

import (
	"cmp"
	"fmt"

	"github.com/go-vercel/sandbox"
)

// Made refuses a handle that is nil or was not made by its package. The error looks like
// those of the client's own handles.
func Made(made bool, pkg, what string) error {
	if !made {
		return fmt.Errorf("%s: %w: %s is nil, or was not made by this module", pkg, sandbox.ErrInvalid, what)
	}
	return nil
}

// Invalid returns the error for an argument or option, with its name and what is wrong
// with its value.
func Invalid(pkg, field, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s: %s", pkg, sandbox.ErrInvalid, field, fmt.Sprintf(format, args...))
}

// Range refuses a value outside least to most.
func Range[T cmp.Ordered](pkg, field string, v, least, most T) error {
	if v < least || v > most {
		return Invalid(pkg, field, "%v is outside %v to %v", v, least, most)
	}
	return nil
}

// NotNegative refuses a number or duration that is negative.
func NotNegative[T cmp.Ordered](pkg, field string, v T) error {
	if v < *new(T) {
		return Invalid(pkg, field, "%v is negative", v)
	}
	return nil
}

// Check is Made for a call with a context, which must not be nil.
func Check(ctx any, made bool, pkg, what string) error {
	if err := Made(made, pkg, what); err != nil || ctx != nil {
		return err
	}
	return Invalid(pkg, "ctx", "is nil; context.Background is the one that never ends")
}
