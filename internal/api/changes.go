package api

import (
	"context"
	"io"
)

type quietKey struct{}

// Quiet marks the context of operations that change nothing in a sandbox,
// whatever they are.
func Quiet(ctx context.Context) context.Context { return context.WithValue(ctx, quietKey{}, true) }

// Changes counts what may have changed something in a sandbox: an operation that
// begins or ends, or a command of which this is learnt. What was read at one count
// may be out of date at another.
func (c *Client) Changes() uint64 { return c.changes.Load() }

func (c *Client) changed(ctx context.Context, req *Request) {
	if req.Op != ReadFile && ctx.Value(quietKey{}) == nil {
		c.changes.Add(1)
	}
}

// changingBody notes the end of a stream, which may be that of a command.
type changingBody struct {
	io.ReadCloser
	ended func()
}

func (b *changingBody) Close() error {
	defer b.ended()
	return b.ReadCloser.Close()
}
