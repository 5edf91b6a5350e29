package sandbox

import (
	"context"
	"iter"
	"maps"
	"net/url"
	"slices"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/google/go-querystring/query"
)

// SortOrder is the direction of a listing.
type SortOrder string

// The directions of a listing.
const (
	Ascending  SortOrder = "asc"
	Descending SortOrder = "desc"
)

// SortBy is what sandboxes are sorted by.
type SortBy string

// What sandboxes can be sorted by. The API may accept further values.
const (
	SortByCreatedAt       SortBy = "createdAt"
	SortByName            SortBy = "name"
	SortByStatusUpdatedAt SortBy = "statusUpdatedAt"
)

// ListOptions filters a listing of sandboxes. The zero value lists all in the
// API's order.
type ListOptions struct {
	// Limit is how many a page has at the most; zero means the API's default.
	Limit int
	// SortBy and SortOrder choose the order; empty means the API's default.
	SortBy    SortBy
	SortOrder SortOrder
	// NamePrefix keeps those whose names begin with it.
	NamePrefix string
	// Cursor is the Next of an earlier page: the listing goes on behind it.
	Cursor string
	// Tags keeps those that have all of them.
	Tags map[string]string
}

// ListSessionsOptions filters a listing of sessions. The zero value lists all
// in the API's order.
type ListSessionsOptions struct {
	// Limit is how many a page has at the most; zero means the API's default.
	Limit int
	// Cursor is the Next of an earlier page: the listing goes on behind it.
	Cursor string
	// SortOrder sorts by age; empty means the API's default.
	SortOrder SortOrder
}

// ListSnapshotsOptions filters a listing of snapshots. The zero value lists all
// in the API's order.
type ListSnapshotsOptions struct {
	// Name keeps those of the sandbox of that name. [Sandbox.ListSnapshots]
	// sets it.
	Name string
	// Limit is how many a page has at the most; zero means the API's default.
	Limit int
	// Cursor is the Next of an earlier page: the listing goes on behind it.
	Cursor string
	// SortOrder sorts by age; empty means the API's default.
	SortOrder SortOrder
}

// listQuery is the query of every listing.
type listQuery struct {
	Project    string    `url:"project"`
	SnapshotID string    `url:"snapshotId,omitempty"`
	Name       string    `url:"name,omitempty"`
	Limit      int       `url:"limit,omitempty"`
	SortBy     SortBy    `url:"sortBy,omitempty"`
	SortOrder  SortOrder `url:"sortOrder,omitempty"`
	NamePrefix string    `url:"namePrefix,omitempty"`
	Cursor     string    `url:"cursor,omitempty"`
	Tags       []string  `url:"tags,omitempty"`
}

func (q listQuery) values() (url.Values, error) {
	if q.Limit < 0 {
		return nil, invalid("Limit", "%d is negative", q.Limit)
	}
	return query.Values(q)
}

// fetchPage gets one page of a listing.
func fetchPage[A, T any](ctx context.Context, c *Client, op *api.Op, q listQuery, convert func(*A) ([]T, wire.Pagination)) (*Page[T], error) {
	values, err := q.values()
	if err != nil {
		return nil, err
	}
	var answer A
	if err := c.do(ctx, &api.Request{Op: op, Query: values}, &answer); err != nil {
		return nil, err
	}
	list, pagination := convert(&answer)
	page := &Page[T]{Items: list, Count: pagination.Count}
	if pagination.Next != nil {
		page.Next = *pagination.Next
	}
	page.fetch = func(ctx context.Context, cursor string) (*Page[T], error) {
		next := q
		if op == api.SnapshotTree {
			next.SnapshotID = cursor
		} else {
			next.Cursor = cursor
		}
		return fetchPage(ctx, c, op, next, convert)
	}
	return page, nil
}

func convertAll[W, T any](ws []W, convert func(*W) T) []T {
	out := make([]T, len(ws))
	for i := range ws {
		out[i] = convert(&ws[i])
	}
	return out
}

// List iterates over the project's sandboxes. Pages are fetched as they are
// needed; each range starts anew, and breaking out of it stops the requests. An
// error is the last thing that is yielded. A nil opts lists all.
func (c *Client) List(ctx context.Context, opts *ListOptions) iter.Seq2[SandboxInfo, error] {
	return listAll(ctx, func() (*Page[SandboxInfo], error) { return c.ListPage(ctx, opts) })
}

// ListPage returns one page of [Client.List], from which [Page.All] and
// [Page.Pages] go on.
func (c *Client) ListPage(ctx context.Context, opts *ListOptions) (*Page[SandboxInfo], error) {
	var o ListOptions
	if opts != nil {
		o = *opts
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	q := listQuery{
		Project: project, Limit: o.Limit, SortBy: o.SortBy, SortOrder: o.SortOrder, NamePrefix: o.NamePrefix, Cursor: o.Cursor,
	}
	for _, k := range slices.Sorted(maps.Keys(o.Tags)) {
		q.Tags = append(q.Tags, k+":"+o.Tags[k])
	}
	return fetchPage(ctx, c, api.ListSandboxes, q, func(a *wire.SandboxesPage) ([]SandboxInfo, wire.Pagination) {
		return convertAll(a.Sandboxes, sandboxInfo), a.Pagination
	})
}

// ListSnapshots iterates over the project's snapshots, as [Client.List] does
// over sandboxes.
func (c *Client) ListSnapshots(ctx context.Context, opts *ListSnapshotsOptions) iter.Seq2[SnapshotInfo, error] {
	return listAll(ctx, func() (*Page[SnapshotInfo], error) { return c.ListSnapshotsPage(ctx, opts) })
}

// ListSnapshotsPage returns one page of [Client.ListSnapshots].
func (c *Client) ListSnapshotsPage(ctx context.Context, opts *ListSnapshotsOptions) (*Page[SnapshotInfo], error) {
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	return listSnapshots(ctx, c, project, opts)
}

func listSnapshots(ctx context.Context, c *Client, project string, opts *ListSnapshotsOptions) (*Page[SnapshotInfo], error) {
	var o ListSnapshotsOptions
	if opts != nil {
		o = *opts
	}
	q := listQuery{Project: project, Name: o.Name, Limit: o.Limit, Cursor: o.Cursor, SortOrder: o.SortOrder}
	return fetchPage(ctx, c, api.ListSnapshots, q, func(a *wire.SnapshotsPage) ([]SnapshotInfo, wire.Pagination) {
		return convertAll(a.Snapshots, snapshotInfo), a.Pagination
	})
}

// ListSnapshots iterates over the sandbox's snapshots, as [Client.List] does
// over sandboxes.
func (s *Sandbox) ListSnapshots(ctx context.Context, opts *ListSnapshotsOptions) iter.Seq2[SnapshotInfo, error] {
	return listAll(ctx, func() (*Page[SnapshotInfo], error) { return s.ListSnapshotsPage(ctx, opts) })
}

// ListSnapshotsPage returns one page of [Sandbox.ListSnapshots].
func (s *Sandbox) ListSnapshotsPage(ctx context.Context, opts *ListSnapshotsOptions) (*Page[SnapshotInfo], error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	var o ListSnapshotsOptions
	if opts != nil {
		o = *opts
	}
	o.Name = s.Name()
	return listSnapshots(ctx, c, s.st.project, &o)
}

// ListSessions iterates over the sandbox's sessions, past and present, as
// [Client.List] does over sandboxes.
func (s *Sandbox) ListSessions(ctx context.Context, opts *ListSessionsOptions) iter.Seq2[SessionInfo, error] {
	return listAll(ctx, func() (*Page[SessionInfo], error) { return s.ListSessionsPage(ctx, opts) })
}

// ListSessionsPage returns one page of [Sandbox.ListSessions].
func (s *Sandbox) ListSessionsPage(ctx context.Context, opts *ListSessionsOptions) (*Page[SessionInfo], error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	var o ListSessionsOptions
	if opts != nil {
		o = *opts
	}
	q := listQuery{Project: s.st.project, Name: s.Name(), Limit: o.Limit, Cursor: o.Cursor, SortOrder: o.SortOrder}
	return fetchPage(ctx, c, api.ListSessions, q, func(a *wire.SessionsPage) ([]SessionInfo, wire.Pagination) {
		return convertAll(a.Sessions, sessionInfo), a.Pagination
	})
}
