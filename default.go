package sandbox

import (
	"context"
	"iter"
)

// Create creates a sandbox with the default client; see [Client.Create].
func Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Create(ctx, opts) })
}

// Get returns a sandbox by name, using the default client; see [Client.Get].
func Get(ctx context.Context, name string, opts *GetOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Get(ctx, name, opts) })
}

// GetOrCreate returns the sandbox with the given name, creating it if
// necessary, using the default client; see [Client.GetOrCreate].
func GetOrCreate(ctx context.Context, name string, opts *CreateOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.GetOrCreate(ctx, name, opts) })
}

// Fork creates a sandbox from another with the default client; see
// [Client.Fork].
func Fork(ctx context.Context, source string, opts *ForkOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Fork(ctx, source, opts) })
}

// List iterates over the project's sandboxes with the default client; see
// [Client.List].
func List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		c, err := clientOf(ctx)
		if err != nil {
			yield(Info{}, err)
			return
		}
		c.List(ctx, opts)(yield)
	}
}

func with[T any](ctx context.Context, fn func(*Client) (T, error)) (T, error) {
	c, err := clientOf(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	return fn(c)
}
