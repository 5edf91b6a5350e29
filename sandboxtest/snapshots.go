package sandboxtest

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
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

// snapshot is a saved state. Its fields are guarded by the store's lock.
type snapshot struct {
	s            *Server
	id           string
	key          sandboxKey // of the sandbox that it was made of
	session      string
	parent       string
	method       string
	regions      []string
	runtime      string // of its sandbox
	image        string
	architecture string
	layer        box.LayerID
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

func (sn *snapshot) wireLocked() wire.Snapshot {
	size := sn.size
	if sn.status != snapshotCreated { // what is left is a tombstone
		size = 0
	}
	return wire.Snapshot{
		ID: sn.id, SourceSessionID: sn.session, Architecture: sn.architecture, Region: sn.regions[0], Regions: slices.Clone(sn.regions),
		Status: sn.status, SizeBytes: size,
		ExpiresAt: wire.At(sn.expiresAt), CreatedAt: wire.At(sn.createdAt), UpdatedAt: wire.At(sn.updatedAt),
		LastUsedAt: wire.At(sn.lastUsedAt), CreationMethod: sn.method, ParentID: sn.parent,
	}
}

// useLocked notes that a session was started from the snapshot.
func (sn *snapshot) useLocked(now time.Time) {
	sn.lastUsedAt = now
	sn.expireAfterLocked(sn.ttl)
}

// expireAfterLocked sets how long after its last use the snapshot expires; zero is
// never.
func (sn *snapshot) expireAfterLocked(ttl time.Duration) {
	if sn.ttl = ttl; ttl > 0 {
		sn.expireAtLocked(sn.lastUsedAt.Add(ttl))
	} else {
		sn.expireAtLocked(time.Time{})
	}
}

// expireAtLocked sets when the snapshot expires; the zero time is never.
func (sn *snapshot) expireAtLocked(at time.Time) {
	sn.expiry.Stop()
	sn.expiresAt = at
	sn.s.store.touchedLocked(sn)
	if !at.IsZero() {
		sn.expiry = sn.s.clock.AfterFunc(at.Sub(sn.s.clock.Now()), func() { sn.s.store.removeSnapshot(sn) })
	}
}

// frozen is what has become of the files of a machine.
type frozen struct {
	layer box.LayerID
	size  int64 // of what was written in this session
	err   error
}

// freeze makes the files of the stopped machine a layer, once.
func (sess *session) freeze() frozen {
	st := sess.sb.s.store
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
func (sess *session) takeSnapshot() bool {
	s, st := sess.sb.s, sess.sb.s.store
	st.mu.Lock()
	machine, plan := sess.machine, sess.plan
	var from box.LayerID
	if sn := st.snapshots[sess.sourceSnapshot]; sn != nil {
		from = sn.layer
	}
	st.mu.Unlock()
	if machine == nil {
		return true
	}
	files := sess.freeze()
	st.mu.Lock()
	now := s.clock.Now()
	set := &sess.sb.settings
	sn := &snapshot{
		regions: []string{sess.region}, runtime: sess.runtime, image: set.Image, architecture: cmp.Or(set.Architecture, architecture),
		s: s, id: newSnapshotID(), key: sess.sb.key, session: sess.id, parent: sess.sourceSnapshot,
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
		s.opts.Logger.Error("snapshot", "session", sess.id, "error", files.err)
		sn.status, sess.saveErr = snapshotFailed, files.err
		st.changedLocked(sn, sess)
		st.mu.Unlock()
		return false
	}
	if from != "" {
		// What the API calls the size is that of the whole, not of the layer.
		if parent := st.snapshots[sess.sourceSnapshot]; parent != nil && s.Mode() == Namespace {
			sn.size += parent.size
		}
	}
	sess.sb.currentSnapshot = sn.id
	evicted := sess.sb.keepLocked(sn, plan.expiration)
	st.changedLocked(sn, sess, sess.sb)
	st.mu.Unlock()
	for _, old := range evicted {
		st.removeSnapshot(old)
	}
	return true
}

// snapshotRetry is when a session whose time is over, and whose files could not
// be saved, is stopped again.
const snapshotRetry = time.Minute

// goOn lets a session whose snapshot has failed, for example because the disk is
// full, run on with its files: they are nowhere else. Its commands have ended.
func (sess *session) goOn() bool {
	s, st := sess.sb.s, sess.sb.s.store
	st.mu.Lock()
	machine := sess.machine
	st.mu.Unlock()
	if machine == nil {
		return false
	}
	if err := machine.Restart(context.Background()); err != nil {
		s.opts.Logger.Error("continuing without a snapshot", "session", sess.id, "error", err)
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.plan, sess.frozen = nil, nil
	sess.requestedStopAt, sess.snapshottedAt = time.Time{}, time.Time{}
	sess.setStatusLocked(statusRunning)
	if over := sess.beganLocked().Add(sess.timeout); !over.After(s.clock.Now()) {
		sess.timeout += s.clock.Now().Sub(over) + snapshotRetry
	}
	sess.scheduleExpiryLocked()
	st.changedLocked(sess, sess.sb)
	return true
}

// notSavedLocked reports whether the session runs on since its last snapshot failed.
func (sess *session) notSavedLocked() bool {
	return sess.liveLocked() && sess.taken != nil && sess.taken.status == snapshotFailed
}

// errNotSaved says so, of a save that has failed with err.
func errNotSaved(err error) *apiError {
	return internal(err, "The snapshot could not be created, for example because the disk is full. The sandbox runs on with its files.")
}

// keepLocked sets the expiry of a new snapshot, and applies the retention policy of
// the sandbox. It gives the snapshots that have to go.
func (sb *namedSandbox) keepLocked(sn *snapshot, expiration *time.Duration) (evicted []*snapshot) {
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
	var mine []*snapshot
	for _, other := range sb.s.store.snapshots {
		if other.key == sb.key && other.status == snapshotCreated {
			mine = append(mine, other)
		}
	}
	slices.SortFunc(mine, func(a, b *snapshot) int { return b.createdAt.Compare(a.createdAt) })
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

// removeSnapshot deletes a snapshot. What stands on it stays.
func (st *store) removeSnapshot(sn *snapshot) bool {
	st.mu.Lock()
	if sn.status != snapshotCreated {
		st.mu.Unlock()
		return false
	}
	sn.status = snapshotDeleted
	sn.expiry.Stop()
	st.saver.doomed = append(st.saver.doomed, func() error { return sn.s.host.RemoveLayer(sn.layer) })
	st.changedLocked(sn)
	st.mu.Unlock()
	_ = st.flush() // which the response waits for as well
	return true
}

// snapshot gives the snapshot with that ID.
func (c *call) snapshot() (*snapshot, error) {
	id := c.values[0]
	if !wire.PlainName(id, wire.MaxName) {
		return nil, invalid("`snapshotId` should match pattern \"%s\".", namePattern)
	}
	st := c.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sn := st.snapshots[id]
	if sn == nil {
		return nil, errSnapshotNotFound
	}
	if failure := wrongTeam(c.r, sn.key.project); failure != nil {
		return nil, failure
	}
	return sn, nil
}

func (c *call) getSnapshot() error {
	sn, err := c.snapshot()
	if err != nil {
		return err
	}
	return c.respondSnapshot(sn)
}

func (c *call) deleteSnapshot() error {
	sn, err := c.snapshot()
	if err != nil {
		return err
	}
	if !c.s.store.removeSnapshot(sn) {
		return badRequest("Snapshot is already deleted.")
	}
	return c.respondSnapshot(sn)
}

func (c *call) respondSnapshot(sn *snapshot) error {
	c.s.store.mu.Lock()
	w := sn.wireLocked()
	c.s.store.mu.Unlock()
	writeJSON(c.w, http.StatusOK, wire.SnapshotResponse{Snapshot: w})
	return nil
}

type snapshotParams struct {
	Expiration *wire.Duration `json:"expiration"`
}

// createSnapshot handles POST …/snapshot.
func (c *call) createSnapshot() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	var p snapshotParams
	if err := c.decode(&p); err != nil {
		return err
	}
	plan := &snapshotPlan{method: methodManual, expiration: p.Expiration.Std()}
	if plan.expiration != nil {
		if err := checkExpiration("expiration", *plan.expiration); err != nil {
			return err
		}
	}
	if c.version >= 3 && plan.expiration == nil {
		plan.expiration = new(shortExpiration)
	}
	if _, err := sess.use(c.ctx); err != nil {
		return err
	}
	if !sess.stop(plan) {
		_, err := sess.use(c.ctx)
		return err
	}
	if c.s.opts.Realistic {
		if err := sess.await(c.ctx, func() bool { return sess.taken != nil }); err != nil {
			return err
		}
	}
	st := c.s.store
	st.mu.Lock()
	w, taken, notSaved, why := sess.wireLocked(), sess.taken, sess.notSavedLocked(), sess.saveErr
	var sn wire.Snapshot
	if taken != nil {
		sn = taken.wireLocked()
	}
	st.mu.Unlock()
	if notSaved {
		return errNotSaved(why)
	}
	// The response shows the moment of the snapshot, with which the session ends.
	w.Status, w.StoppedAt, w.Duration, w.ActiveCPUDurationMs, w.NetworkTransfer = statusSnapshotting, wire.Time{}, nil, nil, nil
	if taken == nil || sn.Status == snapshotFailed {
		return internal(why, "The snapshot could not be created.")
	}
	writeJSON(c.w, http.StatusCreated, wire.SnapshotResponse{Snapshot: sn, Session: &w})
	return nil
}

func (c *call) listSnapshots() error {
	q := c.r.URL.Query()
	page, err := parsePage(q, "snapshots", wire.MaxPage)
	if err != nil {
		return err
	}
	project, name := q.Get("project"), q.Get("name")
	items := []wire.Snapshot{}
	st := c.s.store
	st.mu.Lock()
	for _, sn := range st.snapshots {
		if (project == "" || sn.key.project == project) && (name == "" || sn.key.name == name) {
			items = append(items, sn.wireLocked())
		}
	}
	st.mu.Unlock()
	items, pagination := cut(page, "snapshots", items, func(s wire.Snapshot) sortKey { return sortKey{timeKey(s.CreatedAt), s.ID} })
	writeJSON(c.w, http.StatusOK, wire.SnapshotsPage{Snapshots: items, Pagination: pagination})
	return nil
}
