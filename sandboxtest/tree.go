package sandboxtest

import (
	"net/http"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// snapshotTree handles GET /v2/sandboxes/snapshots/tree. It lists the ancestors of a
// snapshot, nearest first, or its descendants. For descendants it follows the newest child
// of each, and shows the other children as siblings of that one. The cursor of the next
// page is the ID of the last snapshot of this one.
func (c *call) snapshotTree() error {
	q := c.r.URL.Query()
	id := q.Get("snapshotId")
	if id == "" {
		return reply.Invalid("missing required property `snapshotId`.")
	}
	q.Del("cursor")
	page, err := parsePage(q, "tree", wire.MaxTreePage)
	if err != nil {
		return err
	}
	if !q.Has("limit") {
		page.limit = wire.MaxTreePage
	}
	resp := c.s.store.Tree(q.Get("project"), id, page.desc, page.limit)
	resp.Pagination.Count = len(resp.Snapshots)
	return c.respond(http.StatusOK, resp, nil)
}
