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
	// op serializes what starts and ends sessions. It is locked before the store's lock.
	op sync.Mutex

	rec     sandboxRecord
	current *Session // as in rec
	routes  []*route
	// making says that the first session has no machine yet. Requests find the sandbox,
	// but those that change it wait, and it is not saved.
	making  bool
	deleted bool
}

// setCurrentLocked makes a session the current one.
func (sb *Sandbox) setCurrentLocked(sess *Session) {
	sb.current, sb.rec.CurrentSession = sess, sess.rec.ID
}

// usage is what sessions have used.
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

// wireLocked describes a sandbox.
func (sb *Sandbox) wireLocked() wire.Sandbox {
	set := sb.rec.Settings
	total := sb.rec.Past // without what the session that runs has used
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
		w.ExpiresAt = wire.At(cur.beganLocked().Add(cur.rec.Timeout))
	}
	return w
}

// wholeMillis truncates a duration to the API's precision.
func wholeMillis(d time.Duration) wire.Duration { return wire.Duration(d.Truncate(time.Millisecond)) }

func (sb *Sandbox) wireRoutesLocked() []wire.Route {
	routes := make([]wire.Route, 0, len(sb.routes))
	for _, r := range sb.routes {
		routes = append(routes, r.wire())
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
	return wire.SandboxResponse{Sandbox: sb.wireLocked(), Session: sb.current.wireLocked(), Routes: sb.wireRoutesLocked()}
}

// ListSandboxes returns the sandboxes of a project, or of all if it is empty.
func (st *Store) ListSandboxes(project string) []wire.Sandbox {
	st.mu.Lock()
	defer st.mu.Unlock()
	items := []wire.Sandbox{}
	for key, sb := range st.sandboxes {
		if project == "" || key.Project == project {
			items = append(items, sb.wireLocked())
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

// Origin returns what a fork starts with: the settings, and the snapshot with the files.
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
	return wire.UpdateResponse{Sandbox: sb.wireLocked(), Routes: sb.wireRoutesLocked()}, nil
}

// Delete deletes the sandbox. With orphans it also deletes the snapshots from which no
// other sandbox starts.
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
	resp = wire.UpdateResponse{Sandbox: sb.wireLocked()}
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

// addInOp adds a sandbox whose machine is about to be created: a client that is told that
// the name is taken finds it, with a pending session.
func (st *Store) addInOp(sb *Sandbox, from *Snapshot) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sandboxes[sb.rec.Key] != nil {
		return reply.BadRequest("A sandbox with the name '%s' already exists for this project.", sb.rec.Key.Name)
	}
	st.sandboxes[sb.rec.Key] = sb
	sb.setCurrentLocked(sb.newSessionLocked(from))
	// It must not be before the first session: clients compare these times to recognize
	// the first session.
	sb.rec.CreatedAt = sb.current.rec.RequestedAt
	sb.rec.UpdatedAt, sb.rec.StatusUpdatedAt = sb.rec.CreatedAt, sb.rec.CreatedAt
	st.sessions[sb.current.rec.ID] = sb.current
	return nil
}

// giveUpInOp removes a sandbox that could not be created. Requests that wait for it find
// that it is gone.
func (sb *Sandbox) giveUpInOp() {
	sb.closeRoutesInOp()
	st := sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	sb.deleted, sb.making = true, false
	delete(st.sandboxes, sb.rec.Key)
	delete(st.sessions, sb.current.rec.ID)
	sb.current.setStatusLocked(statusFailed)
}

// Create creates a sandbox with its first session.
func (st *Store) Create(ctx context.Context, key Key, set Settings, from *Snapshot, fill func(context.Context, *box.Box) error) (resp wire.SandboxResponse, err error) {
	if err := st.checkMounts(key.Project, &set); err != nil {
		return resp, err
	}
	sb := &Sandbox{st: st, rec: sandboxRecord{Key: key, Settings: set}, making: true}
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
		sb.giveUpInOp()
		return resp, err
	}
	return sb.Describe(), nil
}

// Project returns the project of the sandbox.
func (sb *Sandbox) Project() string { return sb.rec.Key.Project }
