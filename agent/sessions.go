package agent

import (
	"context"

	"github.com/go-vercel/sandbox"
)

// Sessions provides the sandboxes of conversations. [Conversations] implements it, and
// finds the sandbox of a conversation by its name, from any process.
type Sessions interface {
	// Acquire returns the sandbox of a conversation. It creates or starts the sandbox
	// if necessary. The caller calls release once when it no longer uses the sandbox.
	// If there is an error, release is nil. Acquire must be safe for concurrent use.
	Acquire(ctx context.Context, conversation string) (sb *sandbox.Sandbox, release func(), err error)
}

// SessionsFunc is a function that finds a conversation's sandbox.
type SessionsFunc func(ctx context.Context, conversation string) (*sandbox.Sandbox, error)

// Acquire calls the function.
func (f SessionsFunc) Acquire(ctx context.Context, conversation string) (*sandbox.Sandbox, func(), error) {
	sb, err := f(ctx, conversation)
	if err != nil {
		return nil, nil, err
	}
	return sb, func() {}, nil
}
