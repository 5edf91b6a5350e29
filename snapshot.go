package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Snapshot is a saved state of a sandbox's files. [SnapshotSource] creates new
// sandboxes from it. A Snapshot is safe for concurrent use.
type Snapshot struct {
	bound
	data wire.Snapshot
}

// GetSnapshot returns the snapshot with the given ID. If there is none, the
// error matches [ErrNotFound].
func (c *Client) GetSnapshot(ctx context.Context, id string) (*Snapshot, error) {
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	var resp wire.SnapshotResponse
	if err := c.do(ctx, &api.Request{Op: api.GetSnapshot, Path: []string{id}}, &resp); err != nil {
		return nil, err
	}
	return &Snapshot{bound: bound{c: c}, data: resp.Snapshot}, nil
}

// SnapshotOptions are the options of [Sandbox.Snapshot].
type SnapshotOptions struct {
	// Expiration is how long the snapshot is kept; it may be [Forever]. Zero
	// means the sandbox's default.
	Expiration time.Duration
}

// Snapshot saves the session's files, which stops the session. A nil opts means
// the sandbox's default expiration. It makes one request. If the response is
// lost, the request is not retried, and the error matches [ErrOutcomeUnknown].
func (s *Session) Snapshot(ctx context.Context, opts *SnapshotOptions) (*Snapshot, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	var body any
	if opts != nil && opts.Expiration != 0 {
		if err := checkExpiration("Expiration", opts.Expiration); err != nil {
			return nil, err
		}
		body = struct {
			Expiration *wire.Duration `json:"expiration"`
		}{expirationToWire(opts.Expiration)}
	}
	var response wire.SnapshotResponse
	if err := s.do(ctx, api.CreateSnapshot, body, &response); err != nil {
		return nil, err
	}
	if response.Session != nil {
		s.set(*response.Session, nil)
	}
	return &Snapshot{bound: bound{c: c}, data: response.Snapshot}, nil
}

// Snapshot saves the sandbox's files, which stops the running session. It
// resumes the sandbox first if it is stopped. A nil opts means the sandbox's
// default expiration. See [Session.Snapshot].
func (s *Sandbox) Snapshot(ctx context.Context, opts *SnapshotOptions) (*Snapshot, error) {
	return withResume(ctx, s, func(cur *Session) (*Snapshot, error) { return cur.Snapshot(ctx, opts) })
}

const snapshotDeleted = "deleted"

// ID returns the snapshot's ID.
func (s *Snapshot) ID() string { return s.wire().ID }

// Info returns the snapshot's description from the API's last response. It
// makes no request.
func (s *Snapshot) Info() SnapshotInfo {
	w := s.wire()
	if w.Regions == nil && w.Region != "" {
		w.Regions = []string{w.Region}
	}
	return snapshotInfo(&w)
}

// Format prints the snapshot's ID and status, for every verb.
func (s *Snapshot) Format(f fmt.State, verb rune) {
	w := s.wire()
	redact.String(f, verb, fmt.Sprintf("snapshot %s (%s)", w.ID, w.Status))
}

var errZeroSnapshot = fmt.Errorf("sandbox: %w: the Snapshot was not made by a Sandbox, GetSnapshot or from JSON", ErrInvalid)

func (s *Snapshot) client() (*Client, error) {
	if s.ID() == "" {
		return nil, errZeroSnapshot
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clientLocked()
}

func (s *Snapshot) wire() wire.Snapshot {
	if s == nil {
		return wire.Snapshot{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

// Delete deletes the snapshot. Sandboxes that would resume from it no longer can; see
// [ErrSnapshotNotFound]. If the snapshot does not exist, the error matches [ErrNotFound].
// Deleting a deleted snapshot is not an error. It makes one request, and a second one
// after a refusal, to see whether the snapshot is already deleted.
func (s *Snapshot) Delete(ctx context.Context) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	id := s.ID()
	var resp wire.SnapshotResponse
	if err := c.do(ctx, &api.Request{Op: api.DeleteSnapshot, Path: []string{id}}, &resp); err != nil {
		// The API refuses to delete a deleted snapshot, although it still finds it. This
		// delete may have been sent twice.
		if e, ok := errors.AsType[*APIError](err); !ok || e.errorKind() != api.Refused {
			return err
		}
		gerr := c.do(ctx, &api.Request{Op: api.GetSnapshot, Path: []string{id}}, &resp)
		if gerr != nil || resp.Snapshot.Status != snapshotDeleted {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if resp.Snapshot.ID != "" {
		s.data = resp.Snapshot
	} else {
		s.data.Status = snapshotDeleted
	}
	return nil
}

type serializedSnapshot struct {
	Snapshot wire.Snapshot `json:"snapshot"`
}

// MarshalJSON encodes the handle in the JavaScript SDK's serialized form.
func (s *Snapshot) MarshalJSON() ([]byte, error) {
	if s == nil {
		return nil, errZeroSnapshot
	}
	return json.Marshal(serializedSnapshot{s.wire()})
}

// UnmarshalJSON decodes a handle. It uses [DefaultClient] unless
// [Client.Bind] is called.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	var in serializedSnapshot
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Snapshot.ID == "" {
		return errors.New("sandbox: JSON is not a serialized snapshot: snapshot.id is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c, s.data = nil, in.Snapshot
	return nil
}

// SnapshotTreeNode is experimental: a snapshot along with those that have the same
// parent.
type SnapshotTreeNode struct {
	Snapshot SnapshotInfo
	// Siblings are some of the snapshots with the same parent.
	Siblings []SnapshotInfo
	// Count is the total number of siblings.
	Count int
}

// ListSnapshotsOptions are the options of [Client.ListSnapshots]. The zero value
// lists the snapshots of all sandboxes in the API's default order.
type ListSnapshotsOptions struct {
	// Sandbox selects the snapshots of the sandbox of that name.
	Sandbox string
	// Limit is the maximum number of items per page, at most 50. Zero means the
	// API's default, 20.
	Limit int
	// Cursor continues a listing: it is the Next of the previous page.
	Cursor string
	// SortOrder is the order, by age.
	SortOrder SortOrder
}

// ListSnapshots returns an iterator over the project's snapshots, like
// [Client.List] for sandboxes.
func (c *Client) ListSnapshots(ctx context.Context, opts *ListSnapshotsOptions) iter.Seq2[SnapshotInfo, error] {
	return listAll(ctx, func() (*Page[SnapshotInfo], error) { return c.ListSnapshotsPage(ctx, opts) })
}

// ListSnapshotsPage returns one page of [Client.ListSnapshots].
func (c *Client) ListSnapshotsPage(ctx context.Context, opts *ListSnapshotsOptions) (*Page[SnapshotInfo], error) {
	var q listQuery
	if opts != nil {
		q = listQuery{Name: opts.Sandbox, Limit: opts.Limit, Cursor: opts.Cursor, SortOrder: opts.SortOrder}
	}
	var err error
	if q.Project, err = c.projectID(ctx); err != nil {
		return nil, err
	}
	return listSnapshots(ctx, c, q)
}

func listSnapshots(ctx context.Context, c *Client, q listQuery) (*Page[SnapshotInfo], error) {
	return fetchPage(ctx, c, api.ListSnapshots, q, func(a *wire.SnapshotsPage) ([]SnapshotInfo, wire.Pagination) {
		return convertAll(a.Snapshots, snapshotInfo), a.Pagination
	})
}

// ListSnapshots returns an iterator over the sandbox's snapshots, like
// [Client.ListSnapshots] with its name.
func (s *Sandbox) ListSnapshots(ctx context.Context, opts *PageOptions) iter.Seq2[SnapshotInfo, error] {
	return listAll(ctx, func() (*Page[SnapshotInfo], error) {
		c, err := enter(ctx, s)
		if err != nil {
			return nil, err
		}
		q := opts.query()
		q.Project, q.Name = s.st.project, s.Name()
		return listSnapshots(ctx, c, q)
	})
}

// SnapshotTreeOptions are experimental: the options of [Client.SnapshotTree].
type SnapshotTreeOptions struct {
	// Limit is the maximum number of items per page, at most 10. Zero means the
	// API's default.
	Limit int
	// SortOrder is [Descending] for the snapshot's ancestors and [Ascending] for
	// its descendants. Empty means the API's default.
	SortOrder SortOrder
}

// SnapshotTree is experimental: it returns an iterator over the ancestors of a
// snapshot, or over its descendants if opts says so, like [Client.List] for
// sandboxes.
func (c *Client) SnapshotTree(ctx context.Context, id string, opts *SnapshotTreeOptions) iter.Seq2[SnapshotTreeNode, error] {
	return listAll(ctx, func() (*Page[SnapshotTreeNode], error) { return c.SnapshotTreePage(ctx, id, opts) })
}

// SnapshotTreePage is experimental: it returns one page of [Client.SnapshotTree].
func (c *Client) SnapshotTreePage(ctx context.Context, id string, opts *SnapshotTreeOptions) (*Page[SnapshotTreeNode], error) {
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	var q listQuery
	if opts != nil {
		q = listQuery{Limit: opts.Limit, SortOrder: opts.SortOrder}
	}
	var err error
	if q.Project, err = c.projectID(ctx); err != nil {
		return nil, err
	}
	q.SnapshotID = id
	var anchor *SnapshotTreeNode
	page, err := fetchPage(ctx, c, api.SnapshotTree, q, func(a *wire.SnapshotTreePage) ([]SnapshotTreeNode, wire.Pagination) {
		if a.Anchor != nil && anchor == nil {
			anchor = new(snapshotTreeNode(a.Anchor))
		}
		return convertAll(a.Snapshots, snapshotTreeNode), a.Pagination
	})
	if err == nil {
		page.Anchor = anchor
	}
	return page, err
}

func snapshotTreeNode(w *wire.SnapshotTreeNode) SnapshotTreeNode {
	// The API sends the count as a string. If it is not a number, the number of
	// siblings received is used.
	count, err := strconv.Atoi(w.Count)
	if err != nil {
		count = len(w.Siblings)
	}
	return SnapshotTreeNode{Snapshot: snapshotInfo(&w.Snapshot), Siblings: convertAll(w.Siblings, snapshotInfo), Count: count}
}

// Forever is the expiration of snapshots that are kept until they are deleted.
const Forever time.Duration = -1

// checkExpiration refuses an expiration that no snapshot can have.
func checkExpiration(field string, d time.Duration) error {
	if d == Forever {
		return nil
	}
	if err := checkDuration(field, d); err != nil {
		return err
	}
	if d > 0 && d < wire.MinExpiration {
		return invalid(field, "%v is below %v; use Forever to keep snapshots", d, wire.MinExpiration)
	}
	return nil
}

// expirationToWire converts an expiration to the API's form: nil for zero, and zero for
// [Forever].
func expirationToWire(d time.Duration) *wire.Duration {
	switch {
	case d == 0:
		return nil
	case d == Forever:
		d = 0
	}
	return wire.DurationPtr(&d)
}

func expirationFromWire(w *wire.Duration) time.Duration {
	switch d := w.Std(); {
	case d == nil:
		return 0
	case *d == 0:
		return Forever
	default:
		return *d
	}
}

// KeepLastSnapshots is a retention policy that keeps the last Count snapshots
// of a sandbox.
type KeepLastSnapshots struct {
	// Count is how many snapshots are kept.
	Count int
	// Expiration is how long these snapshots are kept; it may be [Forever]. Zero
	// means the sandbox's default.
	Expiration time.Duration
	// KeepEvicted lets older snapshots expire as usual. By default they are
	// deleted at once.
	KeepEvicted bool
}

func snapshotExpirationToWire(field string, d time.Duration) (*wire.Duration, error) {
	return expirationToWire(d), checkExpiration(field, d)
}

func (k *KeepLastSnapshots) toWire() *wire.KeepLastSnapshots {
	w := &wire.KeepLastSnapshots{Count: k.Count, Expiration: expirationToWire(k.Expiration)}
	if k.KeepEvicted {
		w.DeleteEvicted = new(false)
	}
	return w
}

func retentionToWire(field string, k *KeepLastSnapshots) (*wire.KeepLastSnapshots, error) {
	return k.toWire(), checkRetention(field, k)
}

// retentionUpdateToWire returns the policy for an update: null for the zero value, which
// removes it.
func retentionUpdateToWire(field string, k *KeepLastSnapshots) (any, error) {
	if *k == (KeepLastSnapshots{}) {
		return nil, nil
	}
	// Send all fields, so that they also replace those of an earlier policy.
	w := k.toWire()
	w.DeleteEvicted = new(!k.KeepEvicted)
	return w, checkRetention(field, k)
}

func checkRetention(field string, k *KeepLastSnapshots) error {
	if k.Count < 1 || k.Count > wire.MaxKeptSnapshots {
		return invalid(field+".Count", "%d is outside 1 to %d", k.Count, wire.MaxKeptSnapshots)
	}
	return checkExpiration(field+".Expiration", k.Expiration)
}

func keepLastSnapshotsFromWire(k *wire.KeepLastSnapshots) *KeepLastSnapshots {
	if k == nil {
		return nil
	}
	return &KeepLastSnapshots{Count: k.Count, Expiration: expirationFromWire(k.Expiration), KeepEvicted: k.DeleteEvicted != nil && !*k.DeleteEvicted}
}
