package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/google/go-querystring/query"
)

// Page is one page of a listing.
type Page[T any] struct {
	// Items are the page's items.
	Items []T
	// Next is the cursor of the next page, for the Cursor field of the listing's
	// options. It is empty on the last page.
	Next string
	// Anchor is experimental: the snapshot that [Client.SnapshotTreePage] was asked
	// for; nil for other listings, and if the API omitted it.
	Anchor *T
	// fetch returns the page after a cursor.
	fetch func(ctx context.Context, cursor string) (*Page[T], error)
}

// listAll iterates over the items of all pages. Each use of the iterator fetches the first
// page again.
func listAll[T any](ctx context.Context, first func() (*Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		page, err := first()
		for seen := map[string]bool{}; ; page, err = page.fetch(ctx, page.Next) {
			if err == nil {
				err = api.ContextError(ctx)
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			if seen[page.Next] {
				yield(none, fmt.Errorf("sandbox: the listing does not end: the API gave the cursor %q twice", page.Next))
				return
			}
			seen[page.Next] = true
		}
	}
}

// Collect returns everything that an iterator such as [List] yields. If there
// is an error, it returns that along with the items before it.
func Collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for item, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}

// SortOrder is the direction of a listing. Empty means the API's default.
type SortOrder string

// The directions of a listing.
const (
	Ascending  SortOrder = "asc"
	Descending SortOrder = "desc"
)

// SortBy is what sandboxes are sorted by. Empty means the API's default, or
// [SortByName] if a listing is filtered by a prefix.
type SortBy string

// What sandboxes can be sorted by: the fields of [Info].
const (
	SortByCreatedAt       SortBy = "createdAt"
	SortByName            SortBy = "name"
	SortByStatusUpdatedAt SortBy = "statusUpdatedAt"
	SortByCurrentSnapshot SortBy = "currentSnapshotId" // its ID
)

// DriveSortBy is what drives are sorted by. Empty means the API's default, or
// [DrivesByName] if a listing is filtered by a prefix.
type DriveSortBy string

// What drives can be sorted by.
const (
	DrivesByCreatedAt DriveSortBy = "createdAt"
	DrivesByName      DriveSortBy = "name"
	DrivesByUpdatedAt DriveSortBy = "updatedAt"
)

// ListOptions are the options of [Client.List]. The zero value lists all
// sandboxes in the API's default order.
type ListOptions struct {
	// Limit is the maximum number of items per page, at most 50. Zero means the
	// API's default, 20.
	Limit int
	// Cursor continues a listing: it is the Next of the previous page.
	Cursor string
	// SortBy and SortOrder are the order.
	SortBy    SortBy
	SortOrder SortOrder
	// NamePrefix selects sandboxes whose names begin with it. It can't be
	// combined with a SortBy other than [SortByName].
	NamePrefix string
	// Tags selects sandboxes with this tag. The API filters by at most one.
	Tags map[string]string
	// Status selects sandboxes that are [StatusRunning], [StatusStopping] or
	// [StatusStopped]. It can't be combined with a SortBy other than
	// [SortByCreatedAt], nor with a NamePrefix.
	Status Status
}

func (o *ListOptions) query() listQuery {
	if o == nil {
		return listQuery{}
	}
	q := listQuery{
		Limit: o.Limit, Cursor: o.Cursor, SortBy: string(o.SortBy), SortOrder: o.SortOrder,
		NamePrefix: o.NamePrefix, Status: o.Status,
	}
	for _, k := range slices.Sorted(maps.Keys(o.Tags)) {
		q.Tags = append(q.Tags, k+":"+o.Tags[k])
	}
	return q
}

// PageOptions are the options of listings that have no others. The zero value
// lists everything in the API's default order.
type PageOptions struct {
	// Limit is the maximum number of items per page, at most 50. Zero means the
	// API's default, 20.
	Limit int
	// Cursor continues a listing: it is the Next of the previous page.
	Cursor string
	// SortOrder is the order, by age.
	SortOrder SortOrder
}

func (o *PageOptions) query() listQuery {
	if o == nil {
		return listQuery{}
	}
	return listQuery{Limit: o.Limit, Cursor: o.Cursor, SortOrder: o.SortOrder}
}

// listQuery is the query of all listings.
type listQuery struct {
	Project    string    `url:"project,omitempty"`
	ProjectID  string    `url:"projectId,omitempty"` // the project in listings of drives
	SnapshotID string    `url:"snapshotId,omitempty"`
	Name       string    `url:"name,omitempty"`
	Limit      int       `url:"limit,omitempty"`
	SortBy     string    `url:"sortBy,omitempty"`
	SortOrder  SortOrder `url:"sortOrder,omitempty"`
	NamePrefix string    `url:"namePrefix,omitempty"`
	Status     Status    `url:"status,omitempty"`
	Cursor     string    `url:"cursor,omitempty"`
	Tags       []string  `url:"tags,omitempty"`
}

// maxLimit returns the maximum number of items in a page of the listing.
func (q *listQuery) maxLimit() int {
	if q.SnapshotID != "" {
		return wire.MaxTreePage
	}
	return wire.MaxPage
}

func (q listQuery) values() (url.Values, error) {
	switch {
	case q.Limit < 0:
		return nil, invalid("Limit", "%d is negative", q.Limit)
	case q.Limit > q.maxLimit():
		return nil, invalid("Limit", "%d is above %d, the maximum for a page", q.Limit, q.maxLimit())
	case len(q.Tags) > 1:
		return nil, invalid("Tags", "has %d tags; listings can be filtered by one", len(q.Tags))
	case q.SortOrder != "" && q.SortOrder != Ascending && q.SortOrder != Descending:
		return nil, invalid("SortOrder", "%q is not %q or %q", q.SortOrder, Ascending, Descending)
	case q.Status != "" && q.SortBy != "" && q.SortBy != string(SortByCreatedAt):
		return nil, invalid("Status", "can't be combined with SortBy %q: only a listing that is sorted by age can be filtered by it", q.SortBy)
	case q.Status != "" && q.NamePrefix != "": // the API's own message would name a SortBy that the caller did not set
		return nil, invalid("Status", "can't be combined with NamePrefix: only a listing that is sorted by age can be filtered by it")
	}
	if q.NamePrefix != "" {
		q.SortBy = cmp.Or(q.SortBy, string(SortByName)) // the API requires this order for the filter
	}
	return query.Values(q)
}

// fetchPage fetches one page of a listing.
func fetchPage[A, T any](ctx context.Context, c *Client, op *api.Op, q listQuery, convert func(*A) ([]T, wire.Pagination)) (*Page[T], error) {
	values, err := q.values()
	if err != nil {
		return nil, err
	}
	var resp A
	if err := c.do(ctx, &api.Request{Op: op, Query: values}, &resp); err != nil {
		return nil, err
	}
	list, pagination := convert(&resp)
	page := &Page[T]{Items: list}
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

// List returns an iterator over the project's sandboxes. Pages are fetched as
// needed, one request each; each use of the iterator starts over, and breaking
// out of the loop stops the requests. An error is yielded last. A nil opts
// lists all sandboxes.
func (c *Client) List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	return listAll(ctx, func() (*Page[Info], error) { return c.ListPage(ctx, opts) })
}

// ListPage returns one page of [Client.List]. Set Cursor to the page's Next to get the
// next page.
func (c *Client) ListPage(ctx context.Context, opts *ListOptions) (*Page[Info], error) {
	q := opts.query()
	var err error
	if q.Project, err = c.projectID(ctx); err != nil {
		return nil, err
	}
	return fetchPage(ctx, c, api.ListSandboxes, q, func(a *wire.SandboxesPage) ([]Info, wire.Pagination) {
		return convertAll(a.Sandboxes, sandboxInfo), a.Pagination
	})
}

// ListSessions returns an iterator over the sandbox's sessions, past and
// present, like [Client.List] for sandboxes.
func (s *Sandbox) ListSessions(ctx context.Context, opts *PageOptions) iter.Seq2[SessionInfo, error] {
	return listAll(ctx, func() (*Page[SessionInfo], error) { return s.ListSessionsPage(ctx, opts) })
}

// ListSessionsPage returns one page of [Sandbox.ListSessions].
func (s *Sandbox) ListSessionsPage(ctx context.Context, opts *PageOptions) (*Page[SessionInfo], error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	q := opts.query()
	q.Project, q.Name = s.st.project, s.Name()
	return fetchPage(ctx, c, api.ListSessions, q, func(a *wire.SessionsPage) ([]SessionInfo, wire.Pagination) {
		return convertAll(a.Sessions, sessionInfo), a.Pagination
	})
}
