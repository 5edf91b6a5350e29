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

// How a snapshot was made: by a stop, or by request.
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

// Snapshot is a saved state. Its fields are guarded by the store's lock.
type Snapshot struct {
	st           *Store
	id           string
	key          Key // of the sandbox that it was made of
	session      string
	parent       string
	method       string
	Regions      []string
	Runtime      string // of its sandbox
	Image        string
	Architecture string
	layer        backend.LayerID
	size         int64
	status       string
	createdAt    time.Time
	updatedAt    time.Time
	lastUsedAt   time.Time
	expiresAt    time.Time
	// ttl is how long it lasts after its last use. Zero is forever.
	ttl    time.Duration
	expiry *timer
}

func (sn *Snapshot) wireLocked() wire.Snapshot {
	size := sn.size
	if sn.status != snapshotCreated { // what is left is a tombstone
		size = 0
	}
	return wire.Snapshot{
		ID: sn.id, SourceSessionID: sn.session, Architecture: sn.Architecture, Region: sn.Regions[0], Regions: slices.Clone(sn.Regions),
		Status: sn.status, SizeBytes: size,
		ExpiresAt: wire.At(sn.expiresAt), CreatedAt: wire.At(sn.createdAt), UpdatedAt: wire.At(sn.updatedAt),
		LastUsedAt: wire.At(sn.lastUsedAt), CreationMethod: sn.method, ParentID: sn.parent,
	}
}

// useLocked notes that a session was started from the snapshot.
func (sn *Snapshot) useLocked(now time.Time) {
	sn.lastUsedAt = now
	sn.expireAfterLocked(sn.ttl)
}

// expireAfterLocked sets how long after its last use the snapshot expires; zero is
// never.
func (sn *Snapshot) expireAfterLocked(ttl time.Duration) {
	if sn.ttl = ttl; ttl > 0 {
		sn.expireAtLocked(sn.lastUsedAt.Add(ttl))
	} else {
		sn.expireAtLocked(time.Time{})
	}
}

// expireAtLocked sets when the snapshot expires; the zero time is never.
func (sn *Snapshot) expireAtLocked(at time.Time) {
	sn.expiry.Stop()
	sn.expiresAt = at
	if !at.IsZero() {
		sn.expiry = sn.st.Clock.AfterFunc(at.Sub(sn.st.Clock.Now()), func() { sn.st.RemoveSnapshot(sn) })
	}
}

// frozen is what has become of the files of a machine.
type frozen struct {
	layer backend.LayerID
	size  int64 // of what was written in this session
	err   error
}

// freeze makes the files of the stopped machine a layer, once.
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
	f.layer, f.size, f.err = machine.Freeze(context.Background())
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.frozen = &f
	return f
}

// takeSnapshot makes the files of the stopped machine a snapshot, as planned. It
// is false when that has failed.
func (sess *Session) takeSnapshot() bool {
	st := sess.sb.st
	st.mu.Lock()
	machine, plan := sess.machine, sess.plan
	var from backend.LayerID
	if sn := st.snapshots[sess.sourceSnapshot]; sn != nil {
		from = sn.layer
	}
	st.mu.Unlock()
	if machine == nil {
		return true
	}
	files := sess.freeze()
	st.mu.Lock()
	now := st.Clock.Now()
	set := &sess.sb.settings
	sn := &Snapshot{
		Regions: []string{sess.region}, Runtime: sess.runtime, Image: set.Image, Architecture: cmp.Or(set.Architecture, Architecture),
		st: st, id: newSnapshotID(), key: sess.sb.key, session: sess.id, parent: sess.sourceSnapshot,
		method: plan.method, layer: files.layer, size: files.size, status: snapshotCreated,
		createdAt: now, updatedAt: now, lastUsedAt: now,
	}
	st.snapshots[sn.id] = sn
	sess.taken = sn
	sess.wakeLocked()
	if sess.snapshottedAt.IsZero() {
		sess.snapshottedAt = now
	}
	if files.err != nil {
		st.opts.Log.Error("snapshot", "session", sess.id, "error", files.err)
		sn.status, sess.saveErr = snapshotFailed, files.err
		st.changedLocked()
		st.mu.Unlock()
		return false
	}
	if from != "" {
		// The API's size is that of all files, not of the layer.
		if parent := st.snapshots[sess.sourceSnapshot]; parent != nil && st.Host.Mode() == box.Namespace {
			sn.size += parent.size
		}
	}
	sess.sb.currentSnapshot = sn.id
	evicted := sess.sb.keepLocked(sn, plan.expiration)
	st.changedLocked()
	st.mu.Unlock()
	for _, old := range evicted {
		st.RemoveSnapshot(old)
	}
	return true
}

// snapshotRetry is when a session whose time is over, and whose files could not
// be saved, is stopped again.
const snapshotRetry = time.Minute

// goOn lets a session whose snapshot has failed, for example because the disk is
// full, run on with its files: they are nowhere else. Its commands have ended.
func (sess *Session) goOn() bool {
	st := sess.sb.st
	st.mu.Lock()
	machine := sess.machine
	st.mu.Unlock()
	if machine == nil {
		return false
	}
	if err := machine.Restart(context.Background()); err != nil {
		st.opts.Log.Error("continuing without a snapshot", "session", sess.id, "error", err)
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.plan, sess.frozen = nil, nil
	sess.requestedStopAt, sess.snapshottedAt = time.Time{}, time.Time{}
	sess.setStatusLocked(StatusRunning)
	if over := sess.beganLocked().Add(sess.timeout); !over.After(st.Clock.Now()) {
		sess.timeout += st.Clock.Now().Sub(over) + snapshotRetry
	}
	sess.scheduleExpiryLocked()
	st.changedLocked()
	return true
}

// notSavedLocked reports whether the session runs on since its last snapshot failed.
func (sess *Session) notSavedLocked() bool {
	return sess.liveLocked() && sess.taken != nil && sess.taken.status == snapshotFailed
}

// errNotSaved says so, of a save that has failed with err.
func errNotSaved(err error) *reply.Error {
	return reply.Internal(err, "The snapshot could not be created, for example because the disk is full. The sandbox runs on with its files.")
}

// keepLocked sets the expiry of a new snapshot, and applies the retention policy of
// the sandbox. It gives the snapshots that have to go.
func (sb *Sandbox) keepLocked(sn *Snapshot, expiration *time.Duration) (evicted []*Snapshot) {
	keep := sb.settings.KeepLast
	if expiration == nil && keep != nil && keep.Expiration != nil {
		expiration = keep.Expiration.Std()
	}
	if expiration == nil {
		expiration = sb.settings.SnapshotExpiration
	}
	if expiration == nil {
		expiration = new(defaultExpiration)
	}
	sn.expireAfterLocked(*expiration)
	if keep == nil {
		return nil
	}
	var mine []*Snapshot
	for _, other := range sb.st.snapshots {
		if other.key == sb.key && other.status == snapshotCreated {
			mine = append(mine, other)
		}
	}
	slices.SortFunc(mine, func(a, b *Snapshot) int { return b.createdAt.Compare(a.createdAt) })
	for _, old := range mine[min(len(mine), keep.Count):] {
		if old == sn {
			continue
		}
		if keep.DeleteEvicted == nil || *keep.DeleteEvicted {
			evicted = append(evicted, old)
			continue
		}
		d := defaultExpiration
		if e := sb.settings.SnapshotExpiration; e != nil {
			d = *e
		}
		old.expireAfterLocked(d)
	}
	return evicted
}

// RemoveSnapshot deletes a snapshot. What stands on it stays.
func (st *Store) RemoveSnapshot(sn *Snapshot) bool {
	st.mu.Lock()
	if sn.status != snapshotCreated {
		st.mu.Unlock()
		return false
	}
	sn.status = snapshotDeleted
	sn.expiry.Stop()
	st.saver.doomed = append(st.saver.doomed, func() error { return sn.st.Host.RemoveLayer(sn.layer) })
	st.changedLocked()
	st.mu.Unlock()
	_ = st.Flush() // which the response waits for as well
	return true
}

// Snapshot gives the snapshot with that ID, nil if there is none.
func (st *Store) Snapshot(id string) *Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.snapshots[id]
}

// Describe gives the snapshot as the API shows it.
func (sn *Snapshot) Describe() wire.Snapshot {
	sn.st.mu.Lock()
	defer sn.st.mu.Unlock()
	return sn.wireLocked()
}

// ListSnapshots gives the snapshots of a project or of all, and of a sandbox or
// of all.
func (st *Store) ListSnapshots(project, name string) []wire.Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	items := []wire.Snapshot{}
	for _, sn := range st.snapshots {
		if (project == "" || sn.key.Project == project) && (name == "" || sn.key.Name == name) {
			items = append(items, sn.wireLocked())
		}
	}
	return items
}

// StopWithSnapshot makes a snapshot, with which the session ends.
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
	if sess.taken == nil || sess.taken.status == snapshotFailed {
		return resp, reply.Internal(sess.saveErr, "The snapshot could not be created.")
	}
	// The response shows the moment of the snapshot, with which the session ends.
	w := sess.wireLocked()
	w.Status, w.StoppedAt, w.Duration, w.ActiveCPUDurationMs, w.NetworkTransfer = statusSnapshotting, wire.Time{}, nil, nil, nil
	return wire.SnapshotResponse{Snapshot: sess.taken.wireLocked(), Session: &w}, nil
}

// maxSiblings is how many siblings of a snapshot are shown; of more there is
// only a count.
const maxSiblings = 50

// children gives the snapshots made of sessions that began with parent, oldest
// first. Those without a parent are not siblings of each other.
func (st *Store) children(parent string) []*Snapshot {
	if parent == "" {
		return nil
	}
	var out []*Snapshot
	for _, sn := range st.snapshots {
		if sn.parent == parent && sn.status != snapshotFailed {
			out = append(out, sn)
		}
	}
	slices.SortFunc(out, func(a, b *Snapshot) int {
		return cmp.Or(a.createdAt.Truncate(time.Microsecond).Compare(b.createdAt.Truncate(time.Microsecond)), cmp.Compare(a.id, b.id))
	})
	return out
}

func (st *Store) newestChild(sn *Snapshot) *Snapshot {
	children := st.children(sn.id)
	if len(children) == 0 {
		return nil
	}
	return children[len(children)-1]
}

// treeNodeLocked is a snapshot with its siblings. The count includes itself, and
// ends in "+" when there are more than are shown.
func (st *Store) treeNodeLocked(sn *Snapshot) wire.SnapshotTreeNode {
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

// Tree gives a page of the ancestors of a snapshot, nearest first, or of its
// descendants, of which the newest child is followed.
func (st *Store) Tree(project, id string, up bool, limit int) wire.SnapshotTreePage {
	resp := wire.SnapshotTreePage{Snapshots: []wire.SnapshotTreeNode{}}
	st.mu.Lock()
	defer st.mu.Unlock()
	anchor := st.snapshots[id]
	if anchor == nil || project != "" && anchor.key.Project != project {
		return resp
	}
	resp.Anchor = new(st.treeNodeLocked(anchor))
	step := st.newestChild
	if up {
		step = func(sn *Snapshot) *Snapshot { return st.snapshots[sn.parent] }
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
func (sn *Snapshot) Project() string { return sn.key.Project }
