package sandbox

import (
	"context"
	"iter"
)

// Create makes a sandbox with the default client; see [Client.Create].
func Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	return withDefault(func(c *Client) (*Sandbox, error) { return c.Create(ctx, opts) })
}

// Get looks a sandbox up with the default client; see [Client.Get].
func Get(ctx context.Context, name string, opts *GetOptions) (*Sandbox, error) {
	return withDefault(func(c *Client) (*Sandbox, error) { return c.Get(ctx, name, opts) })
}

// GetOrCreate returns the sandbox of a name, made if need be, with the default
// client; see [Client.GetOrCreate].
func GetOrCreate(ctx context.Context, name string, opts *GetOrCreateOptions) (*Sandbox, error) {
	return withDefault(func(c *Client) (*Sandbox, error) { return c.GetOrCreate(ctx, name, opts) })
}

// Fork makes a sandbox from another with the default client; see [Client.Fork].
func Fork(ctx context.Context, source string, opts *ForkOptions) (*Sandbox, error) {
	return withDefault(func(c *Client) (*Sandbox, error) { return c.Fork(ctx, source, opts) })
}

// List iterates over the project's sandboxes with the default client; see
// [Client.List].
func List(ctx context.Context, opts *ListOptions) iter.Seq2[SandboxInfo, error] {
	return listDefault(func(c *Client) iter.Seq2[SandboxInfo, error] { return c.List(ctx, opts) })
}

// ListPage returns one page of [List] with the default client; see
// [Client.ListPage].
func ListPage(ctx context.Context, opts *ListOptions) (*Page[SandboxInfo], error) {
	return withDefault(func(c *Client) (*Page[SandboxInfo], error) { return c.ListPage(ctx, opts) })
}

// Delete deletes a sandbox by its name with the default client; see
// [Client.Delete].
func Delete(ctx context.Context, name string) error {
	c, err := DefaultClient()
	if err != nil {
		return err
	}
	return c.Delete(ctx, name)
}

// GetSnapshot looks a snapshot up with the default client; see
// [Client.GetSnapshot].
func GetSnapshot(ctx context.Context, id string) (*Snapshot, error) {
	return withDefault(func(c *Client) (*Snapshot, error) { return c.GetSnapshot(ctx, id) })
}

// ListSnapshots iterates over the project's snapshots with the default client;
// see [Client.ListSnapshots].
func ListSnapshots(ctx context.Context, opts *ListSnapshotsOptions) iter.Seq2[SnapshotInfo, error] {
	return listDefault(func(c *Client) iter.Seq2[SnapshotInfo, error] { return c.ListSnapshots(ctx, opts) })
}

// SnapshotTree walks a snapshot's relatives with the default client; see
// [Client.SnapshotTree].
func SnapshotTree(ctx context.Context, id string, opts *SnapshotTreeOptions) iter.Seq2[SnapshotTreeNode, error] {
	return listDefault(func(c *Client) iter.Seq2[SnapshotTreeNode, error] { return c.SnapshotTree(ctx, id, opts) })
}

func withDefault[T any](fn func(*Client) (T, error)) (T, error) {
	c, err := DefaultClient()
	if err != nil {
		var zero T
		return zero, err
	}
	return fn(c)
}

func listDefault[T any](fn func(*Client) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		c, err := DefaultClient()
		if err != nil {
			var zero T
			yield(zero, err)
			return
		}
		fn(c)(yield)
	}
}
