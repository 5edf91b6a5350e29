package sandbox_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/testkit"
)

// TestListOptionsElsewhere: an option that a listing does not have is refused by
// its iterator and by its page, as is an order that there is not, and nothing is
// sent.
func TestListOptionsElsewhere(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	c, ctx := srv.Client(), t.Context()
	fields := map[string]sandbox.ListOptions{
		"Cursor": {Cursor: "c"}, "SortBy": {SortBy: "name"}, "NamePrefix": {NamePrefix: "a"},
		"Tags": {Tags: map[string]string{"a": "b"}}, "Sandbox": {Sandbox: "a"},
		"SortOrder": {SortOrder: "ascending"},
	}
	before := len(srv.Requests())
	for listing, l := range map[string]struct {
		has  []string
		page func(*sandbox.ListOptions) error
		all  func(*sandbox.ListOptions) error
	}{
		"List": {[]string{"Cursor", "SortBy", "NamePrefix", "Tags"}, func(o *sandbox.ListOptions) error {
			_, err := c.ListPage(ctx, o)
			return err
		}, func(o *sandbox.ListOptions) error { _, err := sandbox.Collect(c.List(ctx, o)); return err }},
		"ListDrives": {[]string{"Cursor", "SortBy", "NamePrefix"}, func(o *sandbox.ListOptions) error {
			_, err := c.ListDrivesPage(ctx, o)
			return err
		}, func(o *sandbox.ListOptions) error { _, err := sandbox.Collect(c.ListDrives(ctx, o)); return err }},
		"ListSnapshots": {[]string{"Cursor", "Sandbox"}, func(o *sandbox.ListOptions) error {
			_, err := c.ListSnapshotsPage(ctx, o)
			return err
		}, func(o *sandbox.ListOptions) error { _, err := sandbox.Collect(c.ListSnapshots(ctx, o)); return err }},
		"SnapshotTree": {nil, func(o *sandbox.ListOptions) error {
			_, err := c.SnapshotTreePage(ctx, "snap_1", o)
			return err
		}, func(o *sandbox.ListOptions) error {
			_, err := sandbox.Collect(c.SnapshotTree(ctx, "snap_1", o))
			return err
		}},
		"Sandbox.ListSnapshots": {[]string{"Cursor"}, func(o *sandbox.ListOptions) error {
			_, err := sandbox.Collect(sb.ListSnapshots(ctx, o))
			return err
		}, func(o *sandbox.ListOptions) error { _, err := sandbox.Collect(sb.ListSnapshots(ctx, o)); return err }},
		"Sandbox.ListSessions": {[]string{"Cursor"}, func(o *sandbox.ListOptions) error {
			_, err := sb.ListSessionsPage(ctx, o)
			return err
		}, func(o *sandbox.ListOptions) error { _, err := sandbox.Collect(sb.ListSessions(ctx, o)); return err }},
	} {
		for name, o := range fields {
			if slices.Contains(l.has, name) {
				continue
			}
			for _, call := range []func(*sandbox.ListOptions) error{l.page, l.all} {
				err := call(&o)
				require.ErrorIs(t, err, sandbox.ErrInvalid, "%s of %s", name, listing)
				assert.ErrorContains(t, err, name)
			}
		}
	}
	assert.Len(t, srv.Requests(), before)
}
