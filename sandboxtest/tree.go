package sandboxtest

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/go-vercel/sandbox/internal/wire"
)

// maxSiblings is how many siblings of a snapshot are shown; of more there is
// only a count.
const maxSiblings = 50

// snapshotTree handles GET /v2/sandboxes/snapshots/tree: the ancestors of a
// snapshot, nearest first, or its descendants, of which the newest child is
// followed and the others are its siblings. The cursor of the next page is the
// ID of the last snapshot of this one.
func (c *call) snapshotTree() error {
	q := c.r.URL.Query()
	id := q.Get("snapshotId")
	if id == "" {
		return invalid("missing required property `snapshotId`.")
	}
	q.Del("cursor")
	page, err := parsePage(q, "tree", wire.MaxTreePage)
	if err != nil {
		return err
	}
	if !q.Has("limit") {
		page.limit = wire.MaxTreePage
	}
	resp := wire.SnapshotTreePage{Snapshots: []wire.SnapshotTreeNode{}}
	st := c.s.store
	st.mu.Lock()
	anchor := st.snapshots[id]
	if anchor != nil && (q.Get("project") == "" || anchor.key.project == q.Get("project")) {
		resp.Anchor = new(st.treeNodeLocked(anchor))
		step := st.newestChild
		if page.desc {
			step = func(sn *snapshot) *snapshot { return st.snapshots[sn.parent] }
		}
		at := step(anchor)
		for ; at != nil && len(resp.Snapshots) < page.limit; at = step(at) {
			resp.Snapshots = append(resp.Snapshots, st.treeNodeLocked(at))
		}
		if n := len(resp.Snapshots); at != nil {
			resp.Pagination.Next = new(resp.Snapshots[n-1].Snapshot.ID)
		}
	}
	st.mu.Unlock()
	resp.Pagination.Count = len(resp.Snapshots)
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

// children gives the snapshots made of sessions that began with parent, oldest
// first. Those without a parent are not siblings of each other.
func (st *store) children(parent string) []*snapshot {
	if parent == "" {
		return nil
	}
	var out []*snapshot
	for _, sn := range st.snapshots {
		if sn.parent == parent && sn.status != snapshotFailed {
			out = append(out, sn)
		}
	}
	slices.SortFunc(out, func(a, b *snapshot) int {
		return compareKeys(sortKey{timeKey(wire.At(a.createdAt)), a.id}, sortKey{timeKey(wire.At(b.createdAt)), b.id})
	})
	return out
}

func (st *store) newestChild(sn *snapshot) *snapshot {
	children := st.children(sn.id)
	if len(children) == 0 {
		return nil
	}
	return children[len(children)-1]
}

// treeNodeLocked is a snapshot with its siblings. The count includes itself, and
// ends in "+" when there are more than are shown.
func (st *store) treeNodeLocked(sn *snapshot) wire.SnapshotTreeNode {
	node := wire.SnapshotTreeNode{Snapshot: sn.wireLocked(), Siblings: []wire.Snapshot{}}
	more := ""
	for _, other := range st.children(sn.parent) {
		switch {
		case other == sn:
		case len(node.Siblings) >= maxSiblings:
			more = "+"
		default:
			node.Siblings = append(node.Siblings, other.wireLocked())
		}
	}
	node.Count = strconv.Itoa(len(node.Siblings)+1) + more
	return node
}
