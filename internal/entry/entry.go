// Package entry is how calls begin in the packages beside the client.
package entry

import (
	"cmp"
	"fmt"

	"github.com/go-vercel/sandbox"
)

// Made refuses a handle that is nil, or that its package has not made, in the
// words that the client has for its own.
func Made(made bool, pkg, what string) error {
	if !made {
		return fmt.Errorf("%s: %w: %s is nil, or was not made by this module", pkg, sandbox.ErrInvalid, what)
	}
	return nil
}

// Invalid refuses an argument or an option by its name, and says what is wrong with
// its value.
func Invalid(pkg, field, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s: %s", pkg, sandbox.ErrInvalid, field, fmt.Sprintf(format, args...))
}

// Range refuses a value that is outside of least to most.
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

// Check is Made for a call with a context, of whatever kind, which may not be nil.
func Check(ctx any, made bool, pkg, what string) error {
	if err := Made(made, pkg, what); err != nil || ctx != nil {
		return err
	}
	return Invalid(pkg, "ctx", "is nil; context.Background is the one that never ends")
}
