package sandbox

import (
	"context"
	"iter"
	"strconv"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// SnapshotTreeOptions says how a snapshot's relatives are walked.
type SnapshotTreeOptions struct {
	// Limit is how many a page has at the most; zero means the API's default.
	Limit int
	// SortOrder is the direction: [Descending] walks the ancestors, [Ascending]
	// the descendants. Empty means the API's default.
	SortOrder SortOrder
}

// SnapshotTreeNode is a snapshot with those that have the same parent.
type SnapshotTreeNode struct {
	Snapshot SnapshotInfo
	// Siblings are some of the snapshots that share the parent.
	Siblings []SnapshotInfo
	// Count is how many siblings there are in all.
	Count int
}

// SnapshotTreePage is a page of a snapshot's ancestors or descendants.
type SnapshotTreePage struct {
	Page[SnapshotTreeNode]
	// Anchor is the snapshot that the walk started from; nil when the API left
	// it out.
	Anchor *SnapshotTreeNode
}

// SnapshotTree walks the ancestors or descendants of a snapshot, as
// [Client.List] does over sandboxes.
func (c *Client) SnapshotTree(ctx context.Context, id string, opts *SnapshotTreeOptions) iter.Seq2[SnapshotTreeNode, error] {
	return listAll(ctx, func() (*Page[SnapshotTreeNode], error) {
		page, err := c.SnapshotTreePage(ctx, id, opts)
		if err != nil {
			return nil, err
		}
		return &page.Page, nil
	})
}

// SnapshotTreePage returns one page of [Client.SnapshotTree].
func (c *Client) SnapshotTreePage(ctx context.Context, id string, opts *SnapshotTreeOptions) (*SnapshotTreePage, error) {
	var o SnapshotTreeOptions
	if opts != nil {
		o = *opts
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	var anchor *SnapshotTreeNode
	q := listQuery{Project: project, SnapshotID: id, Limit: o.Limit, SortOrder: o.SortOrder}
	page, err := fetchPage(ctx, c, api.SnapshotTree, q, func(a *wire.SnapshotTreePage) ([]SnapshotTreeNode, wire.Pagination) {
		if a.Anchor != nil && anchor == nil {
			anchor = new(snapshotTreeNode(a.Anchor))
		}
		return convertAll(a.Snapshots, snapshotTreeNode), a.Pagination
	})
	if err != nil {
		return nil, err
	}
	return &SnapshotTreePage{Page: *page, Anchor: anchor}, nil
}

func snapshotTreeNode(w *wire.SnapshotTreeNode) SnapshotTreeNode {
	// The API sends the count as text; one that is no number is left at the
	// number of siblings that came along.
	count, err := strconv.Atoi(w.Count)
	if err != nil {
		count = len(w.Siblings)
	}
	return SnapshotTreeNode{Snapshot: snapshotInfo(&w.Snapshot), Siblings: convertAll(w.Siblings, snapshotInfo), Count: count}
}
