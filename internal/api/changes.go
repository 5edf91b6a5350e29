package api

import "context"

type quietKey struct{}

// Quiet returns a context whose operations do not count as changes.
func Quiet(ctx context.Context) context.Context { return context.WithValue(ctx, quietKey{}, true) }

// Changes counts what may have changed something in a sandbox: an operation
// that begins or ends, or the end of a command becoming known. What was read at
// one count may be out of date at another.
func (c *Client) Changes() uint64 { return c.changes.Load() }

func (c *Client) changed(ctx context.Context, req *Request) {
	if req.Op != ReadFile && ctx.Value(quietKey{}) == nil {
		c.changes.Add(1)
	}
}
