package store

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// How a snapshot was created: by a stop, or by a request.
const (
	methodAutomatic = "automatic"
	methodManual    = "manual"
)

// The status values of a snapshot.
const (
	snapshotCreated = "created"
	snapshotDeleted = "deleted"
	snapshotFailed  = "failed"
)

// Snapshot is a saved file system. The store's lock guards its fields.
type Snapshot struct {
	st     *Store
	rec    snapshotRecord
	expiry *timer
}

// System describes the system that a snapshot's files are for. It never changes.
type System struct {
	Regions      []string `json:"regions"`
	Runtime      string   `json:"runtime,omitempty"` // of its sandbox
	Architecture string   `json:"architecture"`
	Image        string   `json:"image,omitempty"`
}

// System returns the system that the snapshot's files are for.
func (sn *Snapshot) System() System { return sn.rec.System }

func (sn *Snapshot) describeLocked() wire.Snapshot {
	size := sn.rec.Size
	if sn.rec.Status != snapshotCreated { // its files are gone
		size = 0
	}
	return wire.Snapshot{
		ID: sn.rec.ID, SourceSessionID: sn.rec.Session, Architecture: sn.rec.Architecture, Region: sn.rec.Regions[0], Regions: slices.Clone(sn.rec.Regions),
		Status: sn.rec.Status, SizeBytes: size,
		ExpiresAt: wire.At(sn.rec.ExpiresAt), CreatedAt: wire.At(sn.rec.CreatedAt), UpdatedAt: wire.At(sn.rec.UpdatedAt),
		LastUsedAt: wire.At(sn.rec.LastUsedAt), CreationMethod: sn.rec.Method, ParentID: sn.rec.Parent,
	}
}

// markUsedLocked records that a session was started from the snapshot.
func (sn *Snapshot) markUsedLocked(now time.Time) {
	sn.rec.LastUsedAt = now
	sn.expireAfterLocked(sn.rec.TTL)
}

// expireAfterLocked sets how long after its last use the snapshot expires. Zero means
// never.
func (sn *Snapshot) expireAfterLocked(ttl time.Duration) {
	if sn.rec.TTL = ttl; ttl > 0 {
		sn.expireAtLocked(sn.rec.LastUsedAt.Add(ttl))
	} else {
		sn.expireAtLocked(time.Time{})
	}
}

// expireAtLocked sets when the snapshot expires. The zero time means never.
func (sn *Snapshot) expireAtLocked(at time.Time) {
	sn.expiry.Stop()
	sn.rec.ExpiresAt = at
	if !at.IsZero() {
		sn.expiry = sn.st.Clock.AfterFunc(at.Sub(sn.st.Clock.Now()), func() { sn.st.RemoveSnapshot(sn) })
	}
}

// frozen is the result of freezing a machine's files.
type frozen struct {
	layer backend.LayerID
	size  int64 // of the files written in this session
	err   error
}

// freeze makes a layer of the stopped machine's files, once.
func (sess *Session) freeze() frozen {
	st := sess.sb.st
	st.mu.Lock()
	machine, done := sess.machine, sess.frozen
	st.mu.Unlock()
	switch {
	case done != nil:
		return *done
	case machine == nil:
		return frozen{}
	}
	var f frozen
	f.layer, f.size, f.err = machine.Freeze()
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.frozen = &f
	return f
}

// takeSnapshot makes a snapshot of the stopped machine's files, as planned. It returns
// false if that has failed.
func (sess *Session) takeSnapshot() bool {
	st := sess.sb.st
	st.mu.Lock()
	machine, plan := sess.machine, sess.plan
	var from backend.LayerID
	if sn := st.snapshots[sess.rec.SourceSnapshot]; sn != nil {
		from = sn.rec.Layer
	}
	st.mu.Unlock()
	if machine == nil {
		return true
	}
	files := sess.freeze()
	st.mu.Lock()
	now := st.Clock.Now()
	set := &sess.sb.rec.Settings
	sn := &Snapshot{st: st, rec: snapshotRecord{
		Key: sess.sb.rec.Key, ID: newSnapshotID(), Session: sess.rec.ID, Parent: sess.rec.SourceSnapshot,
		Method: plan.method, Layer: files.layer, Size: files.size, Status: snapshotCreated,
		CreatedAt: now, UpdatedAt: now, LastUsedAt: now,
		System: System{Regions: []string{sess.rec.Region}, Runtime: sess.rec.Runtime, Image: set.Image, Architecture: set.Architecture},
	}}
	st.snapshots[sn.rec.ID] = sn
	sess.taken, sess.rec.Taken = sn, sn.rec.ID
	sess.wakeLocked()
	if sess.rec.SnapshottedAt.IsZero() {
		sess.rec.SnapshottedAt = now
	}
	if files.err != nil {
		st.opts.Log.Error("snapshot", "session", sess.rec.ID, "error", files.err)
		sn.rec.Status, sess.saveErr = snapshotFailed, files.err
		st.changedLocked()
		st.mu.Unlock()
		return false
	}
	if from != "" {
		// The API's size covers all files, not only the layer.
		if parent := st.snapshots[sess.rec.SourceSnapshot]; parent != nil && st.Host.Mode() == box.Namespace {
			sn.rec.Size += parent.rec.Size
		}
	}
	sess.sb.rec.CurrentSnapshot = sn.rec.ID
	evicted := sess.sb.applyRetentionLocked(sn, plan.expiration)
	st.changedLocked()
	st.mu.Unlock()
	for _, old := range evicted {
		st.RemoveSnapshot(old)
	}
	return true
}

// snapshotRetry is how long a session continues if its files could not be saved at its
// timeout. It is then stopped again.
const snapshotRetry = time.Minute

// continueUnsaved lets a session continue after its snapshot has failed, for example
// because the disk is full. Its files exist nowhere else. Its commands have ended.
func (sess *Session) continueUnsaved() bool {
	st := sess.sb.st
	st.mu.Lock()
	machine := sess.machine
	st.mu.Unlock()
	if machine == nil {
		return false
	}
	if err := machine.Restart(); err != nil {
		st.opts.Log.Error("continuing without a snapshot", "session", sess.rec.ID, "error", err)
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.plan, sess.frozen = nil, nil
	sess.rec.RequestedStopAt, sess.rec.SnapshottedAt = time.Time{}, time.Time{}
	sess.setStatusLocked(StatusRunning)
	if over := sess.timeoutStartLocked().Add(sess.rec.Timeout); !over.After(st.Clock.Now()) {
		sess.rec.Timeout += st.Clock.Now().Sub(over) + snapshotRetry
	}
	sess.scheduleExpiryLocked()
	st.changedLocked()
	return true
}

// notSavedLocked reports whether the session continues because its last snapshot failed.
func (sess *Session) notSavedLocked() bool {
	return sess.liveLocked() && sess.taken != nil && sess.taken.rec.Status == snapshotFailed
}

// errNotSaved returns the error for a save that has failed with err.
func errNotSaved(err error) *reply.Error {
	return reply.Internal(err, "The snapshot could not be created, for example because the disk is full. The sandbox continues with its files.")
}

// applyRetentionLocked sets the expiry of a new snapshot, and applies the sandbox's
// retention policy. It returns the snapshots to delete.
func (sb *Sandbox) applyRetentionLocked(sn *Snapshot, expiration *time.Duration) (evicted []*Snapshot) {
	keep := sb.rec.Settings.KeepLast
	if expiration == nil && keep != nil && keep.Expiration != nil {
		expiration = keep.Expiration.Std()
	}
	expiration = cmp.Or(expiration, sb.rec.Settings.SnapshotExpiration, new(defaultExpiration))
	sn.expireAfterLocked(*expiration)
	if keep == nil {
		return nil
	}
	var mine []*Snapshot
	for _, other := range sb.st.snapshots {
		if other.rec.Key == sb.rec.Key && other.rec.Status == snapshotCreated {
			mine = append(mine, other)
		}
	}
	slices.SortFunc(mine, func(a, b *Snapshot) int { return b.rec.CreatedAt.Compare(a.rec.CreatedAt) })
	for _, old := range mine[min(len(mine), keep.Count):] {
		if old == sn {
			continue
		}
		if keep.DeleteEvicted == nil || *keep.DeleteEvicted {
			evicted = append(evicted, old)
			continue
		}
		d := defaultExpiration
		if e := sb.rec.Settings.SnapshotExpiration; e != nil {
			d = *e
		}
		old.expireAfterLocked(d)
	}
	return evicted
}

// RemoveSnapshot deletes a snapshot. Files that other snapshots need stay. It returns false
// if the snapshot no longer exists.
func (st *Store) RemoveSnapshot(sn *Snapshot) bool {
	st.mu.Lock()
	if sn.rec.Status != snapshotCreated {
		st.mu.Unlock()
		return false
	}
	sn.rec.Status = snapshotDeleted
	sn.expiry.Stop()
	st.saver.removals = append(st.saver.removals, func() error { return sn.st.Host.RemoveLayer(sn.rec.Layer) })
	st.changedLocked()
	st.mu.Unlock()
	_ = st.Flush() // it logs a failure; the handler saves again before it responds
	return true
}

// Snapshot returns the snapshot with an ID, or nil.
func (st *Store) Snapshot(id string) *Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.snapshots[id]
}

// Describe returns the snapshot as the API shows it.
func (sn *Snapshot) Describe() wire.Snapshot {
	sn.st.mu.Lock()
	defer sn.st.mu.Unlock()
	return sn.describeLocked()
}

// ListSnapshots returns the snapshots of a project and of a sandbox. An empty argument
// means all.
func (st *Store) ListSnapshots(project, name string) []wire.Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	items := []wire.Snapshot{}
	for _, sn := range st.snapshots {
		if (project == "" || sn.rec.Key.Project == project) && (name == "" || sn.rec.Key.Name == name) {
			items = append(items, sn.describeLocked())
		}
	}
	return items
}

// StopWithSnapshot makes a snapshot, which ends the session.
func (sess *Session) StopWithSnapshot(ctx context.Context, expiration *time.Duration) (resp wire.SnapshotResponse, err error) {
	if _, err := sess.Use(ctx); err != nil {
		return resp, err
	}
	if !sess.stop(&snapshotPlan{method: methodManual, expiration: expiration}) {
		_, err := sess.Use(ctx)
		return resp, err
	}
	st := sess.sb.st
	if st.opts.Realistic {
		if err := sess.await(ctx, func() bool { return sess.taken != nil }); err != nil {
			return resp, err
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.notSavedLocked() {
		return resp, errNotSaved(sess.saveErr)
	}
	if sess.taken == nil || sess.taken.rec.Status == snapshotFailed {
		return resp, reply.Internal(sess.saveErr, "The snapshot could not be created.")
	}
	// The response shows the session at the moment of the snapshot, which ends it.
	w := sess.describeLocked()
	w.Status, w.StoppedAt, w.Duration, w.ActiveCPUDurationMs, w.NetworkTransfer = statusSnapshotting, wire.Time{}, nil, nil, nil
	return wire.SnapshotResponse{Snapshot: sess.taken.describeLocked(), Session: &w}, nil
}

// maxSiblings limits how many siblings of a snapshot are shown. Beyond it only their
// number is shown.
const maxSiblings = 50

// children returns the snapshots of sessions that started from parent, oldest first. If
// parent is empty, it returns none: snapshots without a parent are unrelated.
func (st *Store) children(parent string) []*Snapshot {
	if parent == "" {
		return nil
	}
	var out []*Snapshot
	for _, sn := range st.snapshots {
		if sn.rec.Parent == parent && sn.rec.Status != snapshotFailed {
			out = append(out, sn)
		}
	}
	slices.SortFunc(out, func(a, b *Snapshot) int {
		return cmp.Or(a.rec.CreatedAt.Truncate(time.Microsecond).Compare(b.rec.CreatedAt.Truncate(time.Microsecond)), cmp.Compare(a.rec.ID, b.rec.ID))
	})
	return out
}

func (st *Store) newestChild(sn *Snapshot) *Snapshot {
	children := st.children(sn.rec.ID)
	if len(children) == 0 {
		return nil
	}
	return children[len(children)-1]
}

// treeNodeLocked returns a snapshot with its siblings. Its count includes the snapshot
// itself, and ends in "+" if not all siblings are shown.
func (st *Store) treeNodeLocked(sn *Snapshot) wire.SnapshotTreeNode {
	node := wire.SnapshotTreeNode{Snapshot: sn.describeLocked(), Siblings: []wire.Snapshot{}}
	more := ""
	for _, other := range st.children(sn.rec.Parent) {
		switch {
		case other == sn:
		case len(node.Siblings) >= maxSiblings:
			more = "+"
		default:
			node.Siblings = append(node.Siblings, other.describeLocked())
		}
	}
	node.Count = strconv.Itoa(len(node.Siblings)+1) + more
	return node
}

// Tree returns a page of a snapshot's ancestors, nearest first, if up is set. Otherwise it
// returns a page of the descendants, and follows the newest child of each.
func (st *Store) Tree(project, id string, up bool, limit int) wire.SnapshotTreePage {
	resp := wire.SnapshotTreePage{Snapshots: []wire.SnapshotTreeNode{}}
	st.mu.Lock()
	defer st.mu.Unlock()
	anchor := st.snapshots[id]
	if anchor == nil || project != "" && anchor.rec.Key.Project != project {
		return resp
	}
	resp.Anchor = new(st.treeNodeLocked(anchor))
	step := st.newestChild
	if up {
		step = func(sn *Snapshot) *Snapshot { return st.snapshots[sn.rec.Parent] }
	}
	at := step(anchor)
	for ; at != nil && len(resp.Snapshots) < limit; at = step(at) {
		resp.Snapshots = append(resp.Snapshots, st.treeNodeLocked(at))
	}
	if n := len(resp.Snapshots); at != nil {
		resp.Pagination.Next = new(resp.Snapshots[n-1].Snapshot.ID)
	}
	return resp
}

// Project returns the project of the sandbox that the snapshot was taken from.
func (sn *Snapshot) Project() string { return sn.rec.Key.Project }
