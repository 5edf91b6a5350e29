// Package entry is how calls begin in the packages beside the client.
package entry

import (
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

// Check is Made for a call with a context, of whatever kind, which may not be nil.
func Check(ctx any, made bool, pkg, what string) error {
	if err := Made(made, pkg, what); err != nil || ctx != nil {
		return err
	}
	return fmt.Errorf("%s: %w: ctx: is nil; context.Background is the one that never ends", pkg, sandbox.ErrInvalid)
}
