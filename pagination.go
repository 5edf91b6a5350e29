package sandbox

import (
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

// maxPageSize is the API's limit.
const maxPageSize = 50

// Page is one page of a listing.
type Page[T any] struct {
	// Items are the page's items.
	Items []T
	// Next is the cursor of the next page, for the Cursor field of the listing's
	// options. It is empty on the last page.
	Next string
	// Anchor is where a tree of snapshots was walked from; nil for other
	// listings, and if the API omitted it.
	Anchor *T
	// fetch returns the page after a cursor.
	fetch func(ctx context.Context, cursor string) (*Page[T], error)
}

// listAll iterates over all items from a first page, which is fetched by each
// use of the iterator.
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

// ListOptions filters a listing. The zero value lists everything in the API's
// default order. Fields that a listing does not have are refused.
type ListOptions struct {
	// Limit is the maximum number of items per page, at most 50. Zero means the
	// API's default, 20.
	Limit int
	// Cursor continues a listing after the page whose Next it is. A tree of
	// snapshots has none: walk it from another snapshot.
	Cursor string
	// SortOrder is "asc" or "desc", by age unless SortBy says otherwise; empty
	// means the API's default. In a tree of snapshots "desc" is for ancestors
	// and "asc" for descendants.
	SortOrder string
	// SortBy is what sandboxes and drives are sorted by: "createdAt", "name",
	// "statusUpdatedAt" or, for drives only, "updatedAt". Empty means the API's
	// default.
	SortBy string
	// NamePrefix selects sandboxes or drives whose names begin with it. It
	// requires a SortBy of "name", which is then the default.
	NamePrefix string
	// Tags selects sandboxes with this tag. The API filters by at most one.
	Tags map[string]string
	// Sandbox selects the snapshots of the sandbox of that name.
	Sandbox string
}

// The fields of ListOptions that not all listings have.
const (
	withCursor = 1 << iota
	withSortBy
	withNamePrefix
	withTags
	withSandbox
)

// query checks the options of a listing that has the given fields, and returns
// its query.
func (o *ListOptions) query(has int) (listQuery, error) {
	if o == nil {
		return listQuery{}, nil
	}
	for _, f := range []struct {
		name string
		bit  int
		set  bool
	}{
		{"Cursor", withCursor, o.Cursor != ""}, {"SortBy", withSortBy, o.SortBy != ""}, {"NamePrefix", withNamePrefix, o.NamePrefix != ""},
		{"Tags", withTags, len(o.Tags) > 0}, {"Sandbox", withSandbox, o.Sandbox != ""},
	} {
		if f.set && has&f.bit == 0 {
			return listQuery{}, invalid(f.name, "is not an option of this listing")
		}
	}
	switch o.SortOrder {
	case "", "asc", "desc":
	default:
		return listQuery{}, invalid("SortOrder", `%q is not "asc" or "desc"`, o.SortOrder)
	}
	q := listQuery{Name: o.Sandbox, Limit: o.Limit, SortBy: o.SortBy, SortOrder: o.SortOrder, NamePrefix: o.NamePrefix, Cursor: o.Cursor}
	for _, k := range slices.Sorted(maps.Keys(o.Tags)) {
		q.Tags = append(q.Tags, k+":"+o.Tags[k])
	}
	return q, nil
}

// listQuery is the query of all listings.
type listQuery struct {
	Project    string   `url:"project,omitempty"`
	ProjectID  string   `url:"projectId,omitempty"` // the name of project in listings of drives
	SnapshotID string   `url:"snapshotId,omitempty"`
	Name       string   `url:"name,omitempty"`
	Limit      int      `url:"limit,omitempty"`
	SortBy     string   `url:"sortBy,omitempty"`
	SortOrder  string   `url:"sortOrder,omitempty"`
	NamePrefix string   `url:"namePrefix,omitempty"`
	Cursor     string   `url:"cursor,omitempty"`
	Tags       []string `url:"tags,omitempty"`
}

// byName is the order of a listing that can be filtered by a prefix.
const byName = "name"

func (q listQuery) values() (url.Values, error) {
	switch {
	case q.Limit < 0:
		return nil, invalid("Limit", "%d is negative", q.Limit)
	case q.Limit > maxPageSize:
		return nil, invalid("Limit", "%d is above %d, the maximum for a page", q.Limit, maxPageSize)
	case len(q.Tags) > 1:
		return nil, invalid("Tags", "has %d tags; listings can be filtered by one", len(q.Tags))
	}
	if q.NamePrefix != "" {
		switch q.SortBy {
		case "":
			q.SortBy = byName
		case byName:
		default:
			return nil, invalid("NamePrefix", "can't be combined with SortBy %q: only a listing that is sorted by name can be filtered by it", q.SortBy)
		}
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

// ListPage returns one page of [Client.List], which continues it from the page's
// Next as Cursor.
func (c *Client) ListPage(ctx context.Context, opts *ListOptions) (*Page[Info], error) {
	q, err := opts.query(withCursor | withSortBy | withNamePrefix | withTags)
	if err != nil {
		return nil, err
	}
	if q.Project, err = c.projectID(ctx); err != nil {
		return nil, err
	}
	return fetchPage(ctx, c, api.ListSandboxes, q, func(a *wire.SandboxesPage) ([]Info, wire.Pagination) {
		return convertAll(a.Sandboxes, sandboxInfo), a.Pagination
	})
}

// ListSessions returns an iterator over the sandbox's sessions, past and
// present, like [Client.List] for sandboxes.
func (s *Sandbox) ListSessions(ctx context.Context, opts *ListOptions) iter.Seq2[SessionInfo, error] {
	return listAll(ctx, func() (*Page[SessionInfo], error) { return s.ListSessionsPage(ctx, opts) })
}

// ListSessionsPage returns one page of [Sandbox.ListSessions].
func (s *Sandbox) ListSessionsPage(ctx context.Context, opts *ListOptions) (*Page[SessionInfo], error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	q, err := opts.query(withCursor)
	if err != nil {
		return nil, err
	}
	q.Project, q.Name = s.st.project, s.Name()
	return fetchPage(ctx, c, api.ListSessions, q, func(a *wire.SessionsPage) ([]SessionInfo, wire.Pagination) {
		return convertAll(a.Sessions, sessionInfo), a.Pagination
	})
}
