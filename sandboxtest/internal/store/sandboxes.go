package store

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// Sandbox is a sandbox.
type Sandbox struct {
	st *Store
	// op serializes the operations that start or end sessions. It is locked before the
	// store's lock.
	op sync.Mutex

	rec     sandboxRecord
	current *Session // rec.CurrentSession is its ID
	routes  []*route
	// creating is set until the first session has a machine. Until then requests find the
	// sandbox, but those that change it wait, and it is not saved.
	creating bool
	deleted  bool
}

// setCurrentLocked makes a session the current one.
func (sb *Sandbox) setCurrentLocked(sess *Session) {
	sb.current, sb.rec.CurrentSession = sess, sess.rec.ID
}

// usage is the resource usage of one or more sessions.
type usage struct {
	CPU      time.Duration `json:"cpu"`
	Duration time.Duration `json:"duration"`
	Ingress  int64         `json:"ingress"`
	Egress   int64         `json:"egress"`
}

func (u *usage) add(v usage) {
	u.CPU += v.CPU
	u.Duration += v.Duration
	u.Ingress += v.Ingress
	u.Egress += v.Egress
}

// terminalPort is the port of terminals that sessions report. The emulator serves them at
// another address.
const terminalPort = 26661

// describeLocked describes a sandbox.
func (sb *Sandbox) describeLocked() wire.Sandbox {
	set := sb.rec.Settings
	total := sb.rec.Past // without the usage of a running session
	cur := sb.current
	w := wire.Sandbox{
		Name: sb.rec.Key.Name, Persistent: set.Persistent, Region: set.Region, FailoverRegions: append([]string{}, set.FailoverRegions...),
		VCPUs: set.VCPUs, Memory: set.VCPUs * wire.MemoryPerVCPU, Runtime: set.Runtime, Architecture: set.Architecture, Image: set.Image,
		Timeout: wire.Duration(set.Timeout), NetworkPolicy: set.Policy, NetworkID: set.NetworkID, Mounts: maps.Clone(set.Mounts),
		TotalEgressBytes: new(total.Egress), TotalIngressBytes: new(total.Ingress),
		TotalActiveCPUDurationMs: new(wholeMillis(total.CPU)),
		TotalDurationMs:          new(wholeMillis(total.Duration)),
		CreatedAt:                wire.At(sb.rec.CreatedAt), UpdatedAt: wire.At(sb.rec.UpdatedAt),
		CurrentSessionID: cur.rec.ID, CurrentSnapshotID: sb.rec.CurrentSnapshot,
		Status: cur.sandboxStatusLocked(), StatusUpdatedAt: wire.At(sb.rec.StatusUpdatedAt), Cwd: set.account().WorkDir,
		Tags:               maps.Clone(set.Tags),
		SnapshotExpiration: wire.DurationPtr(set.SnapshotExpiration),
		KeepLastSnapshots:  set.KeepLast,
	}
	if cur.liveLocked() {
		w.ExpiresAt = wire.At(cur.timeoutStartLocked().Add(cur.rec.Timeout))
	}
	return w
}

// wholeMillis truncates a duration to the API's precision.
func wholeMillis(d time.Duration) wire.Duration { return wire.Duration(d.Truncate(time.Millisecond)) }

func (sb *Sandbox) describeRoutesLocked() []wire.Route {
	routes := make([]wire.Route, 0, len(sb.routes))
	for _, r := range sb.routes {
		routes = append(routes, r.describe())
	}
	return routes
}

// lock locks the sandbox for a change of its sessions. It fails if the sandbox was
// deleted in the meantime.
func (sb *Sandbox) lock() error {
	sb.op.Lock()
	sb.st.mu.Lock()
	deleted := sb.deleted
	sb.st.mu.Unlock()
	if deleted {
		sb.op.Unlock()
		return reply.SandboxNotFound(sb.rec.Key.Name)
	}
	return nil
}

// orphansLocked returns the snapshots of a deleted sandbox from which no other sandbox
// starts.
func (st *Store) orphansLocked(key Key) (out []*Snapshot) {
	needed := make(map[string]bool)
	for _, sb := range st.sandboxes {
		needed[sb.rec.CurrentSnapshot] = true
		needed[sb.current.rec.SourceSnapshot] = true
	}
	for _, sn := range st.snapshots {
		if sn.rec.Key == key && sn.rec.Status == snapshotCreated && !needed[sn.rec.ID] {
			out = append(out, sn)
		}
	}
	return out
}

// Describe returns the sandbox with its current session.
func (sb *Sandbox) Describe() wire.SandboxResponse {
	sb.st.mu.Lock()
	defer sb.st.mu.Unlock()
	return wire.SandboxResponse{Sandbox: sb.describeLocked(), Session: sb.current.describeLocked(), Routes: sb.describeRoutesLocked()}
}

// ListSandboxes returns the sandboxes of a project, or of all if it is empty.
func (st *Store) ListSandboxes(project string) []wire.Sandbox {
	st.mu.Lock()
	defer st.mu.Unlock()
	items := []wire.Sandbox{}
	for key, sb := range st.sandboxes {
		if project == "" || key.Project == project {
			items = append(items, sb.describeLocked())
		}
	}
	return items
}

// Resume starts a session unless one is running, and reports whether it is new.
func (sb *Sandbox) Resume(ctx context.Context) (bool, error) {
	if err := sb.lock(); err != nil {
		return false, err
	}
	defer sb.op.Unlock()
	return sb.resumeInOp(ctx)
}

// Origin returns the settings with which a fork starts, and the snapshot with its files.
func (sb *Sandbox) Origin() (set Settings, snapshotID string) {
	sb.st.mu.Lock()
	defer sb.st.mu.Unlock()
	return sb.rec.Settings.clone(), sb.rec.CurrentSnapshot
}

// Update changes the settings for later sessions. If it names another snapshot, that
// becomes the current one.
func (sb *Sandbox) Update(ctx context.Context, change func(*Settings) error, snapshotID string, resume bool) (resp wire.UpdateResponse, err error) {
	if err := sb.lock(); err != nil {
		return resp, err
	}
	defer sb.op.Unlock()
	st := sb.st
	set, _ := sb.Origin()
	if err := change(&set); err != nil {
		return resp, err
	}
	if snapshotID != "" {
		if _, err := st.Usable(sb.rec.Key.Project, snapshotID); err != nil {
			return resp, reply.NotFound("Snapshot '%.100s' not found", snapshotID)
		}
	}
	if err := set.CheckPlace(); err != nil {
		return resp, err
	}
	if err := st.checkMounts(sb.rec.Key.Project, &set); err != nil {
		return resp, err
	}
	if err := sb.setPortsInOp(set.Ports); err != nil {
		return resp, err
	}
	st.mu.Lock()
	sb.rec.Settings, sb.rec.UpdatedAt = set, st.Clock.Now()
	if snapshotID != "" {
		sb.rec.CurrentSnapshot = snapshotID
	}
	st.changedLocked()
	st.mu.Unlock()
	if resume {
		if _, err := sb.resumeInOp(ctx); err != nil {
			return resp, err
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return wire.UpdateResponse{Sandbox: sb.describeLocked(), Routes: sb.describeRoutesLocked()}, nil
}

// Delete deletes the sandbox. If orphans is set, it also deletes the sandbox's snapshots
// from which no other sandbox starts.
func (sb *Sandbox) Delete(orphans bool) (resp wire.UpdateResponse, err error) {
	if err := sb.lock(); err != nil {
		return resp, err
	}
	defer sb.op.Unlock()
	st := sb.st
	st.mu.Lock()
	current := sb.current
	st.mu.Unlock()
	current.awaitSignals()
	current.kill(StatusStopped)
	sb.closeRoutesInOp()
	st.mu.Lock()
	sb.deleted = true
	delete(st.sandboxes, sb.rec.Key)
	resp = wire.UpdateResponse{Sandbox: sb.describeLocked()}
	var gone []*Snapshot
	if orphans {
		gone = st.orphansLocked(sb.rec.Key)
	}
	st.changedLocked()
	st.mu.Unlock()
	for _, sn := range gone {
		st.RemoveSnapshot(sn)
	}
	return resp, nil
}

// Usable returns a snapshot if a sandbox of the project can start from it.
func (st *Store) Usable(project, id string) (*Snapshot, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	sn := st.snapshots[id]
	switch {
	case sn == nil || sn.rec.Key.Project != project || sn.rec.Status == snapshotFailed:
		return nil, reply.ErrSnapshotNotFound
	case sn.rec.Status != snapshotCreated:
		return nil, reply.ErrSourceGone
	}
	return sn, nil
}

// addInOp adds a sandbox whose machine is about to be created. A client that wants the same
// name gets an error, and then finds this sandbox with a pending session.
func (st *Store) addInOp(sb *Sandbox, from *Snapshot) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sandboxes[sb.rec.Key] != nil {
		return reply.BadRequest("A sandbox with the name '%s' already exists for this project.", sb.rec.Key.Name)
	}
	st.sandboxes[sb.rec.Key] = sb
	sb.setCurrentLocked(sb.newSessionLocked(from))
	// CreatedAt must not be before the first session's time: clients compare the two to
	// recognize that session.
	sb.rec.CreatedAt = sb.current.rec.RequestedAt
	sb.rec.UpdatedAt, sb.rec.StatusUpdatedAt = sb.rec.CreatedAt, sb.rec.CreatedAt
	st.sessions[sb.current.rec.ID] = sb.current
	return nil
}

// removeFailedInOp removes a sandbox that could not be created. Requests that wait for it
// respond that it does not exist.
func (sb *Sandbox) removeFailedInOp() {
	sb.closeRoutesInOp()
	st := sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	sb.deleted, sb.creating = true, false
	delete(st.sandboxes, sb.rec.Key)
	delete(st.sessions, sb.current.rec.ID)
	sb.current.setStatusLocked(statusFailed)
}

// Create creates a sandbox with its first session.
func (st *Store) Create(ctx context.Context, key Key, set Settings, from *Snapshot, fill func(context.Context, *box.Box) error) (resp wire.SandboxResponse, err error) {
	if err := st.checkMounts(key.Project, &set); err != nil {
		return resp, err
	}
	sb := &Sandbox{st: st, rec: sandboxRecord{Key: key, Settings: set}, creating: true}
	if from != nil {
		sb.rec.CurrentSnapshot = from.rec.ID
	}
	sb.op.Lock()
	defer sb.op.Unlock()
	if err := sb.setPortsInOp(set.Ports); err != nil {
		return resp, err
	}
	if err := st.addInOp(sb, from); err != nil {
		sb.closeRoutesInOp()
		return resp, err
	}
	if err := sb.bootInOp(ctx, sb.current, from, fill); err != nil {
		sb.removeFailedInOp()
		return resp, err
	}
	return sb.Describe(), nil
}

// Project returns the project of the sandbox.
func (sb *Sandbox) Project() string { return sb.rec.Key.Project }
