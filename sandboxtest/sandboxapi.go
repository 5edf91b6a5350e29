package sandboxtest

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// createSandbox handles POST /v2/sandboxes, /v3/sandboxes and /v4/sandboxes,
// which boot a runtime or an image when neither is named.
func (c *call) createSandbox() error {
	var p createParams
	present, err := c.decode(&p)
	if err != nil {
		return err
	}
	p.present = present
	if p.ProjectID = c.inProject(p.ProjectID); p.ProjectID == "" {
		return invalid("missing required property `projectId`.")
	}
	if p.Runtime != "" && p.Image != "" {
		return invalid("`runtime` and `image` can't be used together")
	}
	set := defaultSettings()
	if c.version >= 4 {
		c.shortenRetention(&set)
	}
	if err := p.apply(&set, c.s.images); err != nil {
		return err
	}
	if p.cleared("keepLastSnapshots") {
		set.KeepLast = nil
	}
	if p.Runtime != "" {
		if err := checkRuntime(p.Runtime); err != nil {
			return err
		}
		set.Runtime = p.Runtime
	}
	var from *snapshot
	var fill func(context.Context, *box.Box) error
	if src := p.Source; src != nil {
		if err := src.check(); err != nil {
			return err
		}
		if src.Type == sourceSnapshot {
			if p.Image != "" {
				return invalid("`image` can't be used with a snapshot")
			}
			if from, err = c.s.store.usable(p.ProjectID, src.SnapshotID); err != nil {
				return err
			}
			// The files are those of an image or a runtime, whatever is asked for.
			if set.Image = from.image; set.Runtime == "" {
				set.Runtime = from.runtime
			}
			if p.Region == "" {
				set.Region = from.regions[0]
			}
		} else {
			policy, err := newEgress(set.PolicyRequest)
			if err != nil {
				return err
			}
			version := c.version
			pause := c.s.opts.BodyTimeout
			fill = func(ctx context.Context, m *box.Box) error { return src.fill(ctx, m, policy, version, pause) }
		}
	}
	if err := set.boot(c.version, from, c.s.images); err != nil {
		return err
	}
	return c.makeSandbox(p.ProjectID, p.Name, set, from, fill)
}

// boot settles on the runtime or the image of a new sandbox.
func (c *settings) boot(version int, from *snapshot, images *images) (err error) {
	if from == nil && c.Runtime == "" && c.Image == "" && version >= 3 {
		c.Image, err = images.pin(defaultImage)
	}
	if c.Runtime == "" {
		c.Runtime = defaultRuntime
	}
	if err == nil {
		err = c.checkPlace()
	}
	return err
}

// shortenRetention sets what the newest versions of the API keep of snapshots
// when they are told nothing else.
func (c *call) shortenRetention(set *settings) {
	if set.SnapshotExpiration == nil {
		set.SnapshotExpiration = new(shortExpiration)
	}
	if set.KeepLast == nil && set.Persistent {
		set.KeepLast = &wire.KeepLastSnapshots{Count: 1, DeleteEvicted: new(true)}
	}
}

// usable gives a snapshot that a sandbox of the project can start from.
func (st *store) usable(project, id string) (*snapshot, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	sn := st.snapshots[id]
	switch {
	case sn == nil || sn.key.project != project || sn.status == snapshotFailed:
		return nil, errSnapshotNotFound
	case sn.status != snapshotCreated:
		return nil, errSourceGone
	}
	return sn, nil
}

// makeSandbox makes a sandbox with its first session and responds with it.
func (c *call) makeSandbox(project, name string, set settings, from *snapshot, fill func(context.Context, *box.Box) error) error {
	if name == "" {
		name = newName()
	}
	if err := checkName(name); err != nil {
		return err
	}
	if len(set.Ports) == maxPorts {
		// So the service does, although its schema allows as many.
		return fail(http.StatusInternalServerError, "internal_server_error", "Internal Server Error")
	}
	st := c.s.store
	key := sandboxKey{project, name}
	if err := st.checkMounts(project, &set); err != nil {
		return err
	}
	if err := st.reserve(key); err != nil {
		return err
	}
	defer st.unreserve(key)
	now := c.s.clock.Now()
	sb := &namedSandbox{s: c.s, key: key, settings: set, createdAt: now, updatedAt: now, statusUpdatedAt: now}
	if from != nil {
		sb.currentSnapshot = from.id
	}
	sb.op.Lock()
	defer sb.op.Unlock()
	if err := sb.setPorts(set.Ports); err != nil {
		return err
	}
	ctx, cancel := c.detached()
	defer cancel()
	if err := sb.start(ctx, from, fill); err != nil {
		sb.closeRoutes()
		return err
	}
	st.mu.Lock()
	now = c.s.clock.Now()
	sb.createdAt, sb.updatedAt, sb.statusUpdatedAt = now, now, now
	st.sandboxes[key] = sb
	st.changedLocked()
	st.mu.Unlock()
	return c.respondNew(sb)
}

// detached is a context for the work on a session: a client that gives up
// meanwhile gets it anyway, as from the service.
func (c *call) detached() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	stop := context.AfterFunc(c.s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// respondNew responds with a new sandbox, without the totals that later
// responses have.
func (c *call) respondNew(sb *namedSandbox) error {
	st := c.s.store
	st.mu.Lock()
	resp := wire.SandboxResponse{Sandbox: sb.wire(), Session: sb.current.wire(), Routes: sb.wireRoutes()}
	st.mu.Unlock()
	w := &resp.Sandbox
	w.TotalEgressBytes, w.TotalIngressBytes, w.TotalActiveCPUDurationMs, w.TotalDurationMs = nil, nil, nil, nil
	w.ExpiresAt = wire.Time{}
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

func (c *call) respondSandbox(sb *namedSandbox, resumed bool) error {
	st := c.s.store
	st.mu.Lock()
	resp := wire.SandboxResponse{Sandbox: sb.wire(), Session: sb.current.wire(), Routes: sb.wireRoutes()}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, struct {
		wire.SandboxResponse
		Resumed bool `json:"resumed"` // also when it is false
	}{resp, resumed})
	return nil
}

// sandbox gives the sandbox that the path names.
func (c *call) sandbox() (*namedSandbox, error) {
	name := c.values[0]
	if err := checkName(name); err != nil {
		return nil, err
	}
	if sb := c.s.store.find(c.project(), name); sb != nil {
		return sb, nil
	}
	return nil, sandboxNotFound(name)
}

// lock takes the sandbox for a change of its sessions, unless it was deleted
// meanwhile.
func (sb *namedSandbox) lock() error {
	sb.op.Lock()
	sb.s.store.mu.Lock()
	deleted := sb.deleted
	sb.s.store.mu.Unlock()
	if deleted {
		sb.op.Unlock()
		return sandboxNotFound(sb.key.name)
	}
	return nil
}

// getSandbox handles GET /v2/sandboxes/{name}, which resumes only when asked to.
func (c *call) getSandbox() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	resume, err := c.flag("resume")
	if err != nil {
		return err
	}
	resumed := false
	if resume {
		if err := sb.lock(); err != nil {
			return err
		}
		defer sb.op.Unlock()
		ctx, cancel := c.detached()
		defer cancel()
		if resumed, err = sb.resume(ctx); err != nil {
			return err
		}
	}
	return c.respondSandbox(sb, resumed)
}

// forkSandbox handles POST /v2/sandboxes/{name}/fork.
func (c *call) forkSandbox() error {
	source, err := c.sandbox()
	if err != nil {
		return err
	}
	var p forkParams
	present, err := c.decode(&p)
	if err != nil {
		return err
	}
	p.present = present
	st := c.s.store
	st.mu.Lock()
	set, snapshotID := source.settings.clone(), source.currentSnapshot
	st.mu.Unlock()
	if err := p.apply(&set, c.s.images); err != nil {
		return err
	}
	if c.version >= 3 {
		c.shortenRetention(&set)
	}
	if p.cleared("keepLastSnapshots") {
		set.KeepLast = nil
	}
	if p.cleared("networkId") {
		set.NetworkID = ""
	}
	var from *snapshot
	if snapshotID != "" {
		if from, err = st.usable(source.key.project, snapshotID); err != nil {
			return errSnapshotGone
		}
	}
	if err := set.boot(c.version, from, c.s.images); err != nil {
		return err
	}
	return c.makeSandbox(source.key.project, p.Name, set, from, nil)
}

// updateSandbox handles PATCH /v2/sandboxes/{name}. What a session is made
// with changes for the next one.
func (c *call) updateSandbox() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	var p updateParams
	present, err := c.decode(&p)
	if err != nil {
		return err
	}
	p.present = present
	resume, err := c.flag("resume")
	if err != nil {
		return err
	}
	if _, ok := present["image"]; ok {
		return invalid("should NOT have additional property `image`.")
	}
	if err := sb.lock(); err != nil {
		return err
	}
	defer sb.op.Unlock()
	st := c.s.store
	st.mu.Lock()
	set := sb.settings.clone()
	st.mu.Unlock()
	if err := p.apply(&set, c.s.images); err != nil {
		return err
	}
	if p.cleared("keepLastSnapshots") {
		set.KeepLast = nil
	}
	if p.cleared("networkId") {
		set.NetworkID = ""
	}
	if p.Runtime != "" {
		if err := checkRuntime(p.Runtime); err != nil {
			return err
		}
		set.Runtime = p.Runtime
	}
	if p.CurrentSnapshotID != "" {
		if _, err := st.usable(sb.key.project, p.CurrentSnapshotID); err != nil {
			return notFound("Snapshot '%.100s' not found", p.CurrentSnapshotID)
		}
	}
	if err := set.checkPlace(); err != nil {
		return err
	}
	if err := st.checkMounts(sb.key.project, &set); err != nil {
		return err
	}
	if p.Ports != nil {
		if err := sb.setPorts(set.Ports); err != nil {
			return err
		}
	}
	st.mu.Lock()
	sb.settings, sb.updatedAt = set, c.s.clock.Now()
	if p.CurrentSnapshotID != "" {
		sb.currentSnapshot = p.CurrentSnapshotID
	}
	st.changedLocked()
	st.mu.Unlock()
	if resume {
		ctx, cancel := c.detached()
		defer cancel()
		if _, err := sb.resume(ctx); err != nil {
			return err
		}
	}
	st.mu.Lock()
	resp := wire.UpdateResponse{Sandbox: sb.wire(), Routes: sb.wireRoutes()}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

// deleteSandbox handles DELETE /v2/sandboxes/{name}. Snapshots stay, since
// other sandboxes may be made from them, unless those that no other sandbox
// needs are to go.
func (c *call) deleteSandbox() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	orphans, err := c.flag("deleteOrphanSnapshots")
	if err != nil {
		return err
	}
	if err := sb.lock(); err != nil {
		return err
	}
	defer sb.op.Unlock()
	st := c.s.store
	st.mu.Lock()
	current := sb.current
	st.mu.Unlock()
	current.kill(statusStopped)
	sb.closeRoutes()
	st.mu.Lock()
	sb.deleted = true
	delete(st.sandboxes, sb.key)
	resp := wire.UpdateResponse{Sandbox: sb.wire()}
	var gone []*snapshot
	if orphans {
		gone = st.orphansLocked(sb.key)
	}
	st.changedLocked()
	st.mu.Unlock()
	for _, sn := range gone {
		st.removeSnapshot(sn)
	}
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

// orphansLocked gives the snapshots of a deleted sandbox that no other sandbox
// starts from.
func (st *store) orphansLocked(key sandboxKey) (out []*snapshot) {
	needed := make(map[string]bool)
	for _, sb := range st.sandboxes {
		needed[sb.currentSnapshot] = true
		needed[sb.current.sourceSnapshot] = true
	}
	for _, sn := range st.snapshots {
		if sn.key == key && sn.status == snapshotCreated && !needed[sn.id] {
			out = append(out, sn)
		}
	}
	return out
}

// Crash simulates the death of the machine of a running sandbox: its processes
// end, its files since the last snapshot are lost, and its session has failed.
// Callers waiting for a command receive the error that the sandbox has stopped,
// and no exit code. It reports whether there was such a sandbox with a session.
func (s *Server) Crash(name string) bool {
	sb := s.store.find("", name)
	if sb == nil || sb.lock() != nil {
		return false
	}
	defer sb.op.Unlock()
	s.store.mu.Lock()
	current := sb.current
	live := current.live()
	current.failed = current.failed || live
	s.store.mu.Unlock()
	if live {
		current.kill(statusFailed)
	}
	return live
}

// shutDown ends every session, as Server.Close documents.
func (st *store) shutDown() error {
	st.mu.Lock()
	sandboxes := slices.Collect(maps.Values(st.sandboxes))
	st.mu.Unlock()
	slots := make(chan struct{}, 8)
	done := make(chan struct{})
	for _, sb := range sandboxes {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots; done <- struct{}{} }()
			sb.op.Lock()
			defer sb.op.Unlock()
			sb.shutDown()
		}()
	}
	for range sandboxes {
		<-done
	}
	return st.save()
}

func (sb *namedSandbox) shutDown() {
	st := sb.s.store
	st.mu.Lock()
	current, keep := sb.current, sb.settings.Persistent && sb.s.opts.Dir != ""
	machine, taken := current.machine, current.taken
	if keep && machine != nil && taken == nil {
		current.plan = &snapshotPlan{method: methodAutomatic}
	}
	st.mu.Unlock()
	if machine == nil {
		sb.closeRoutes()
		return
	}
	current.haltStubs()
	if err := machine.Stop(context.Background()); err != nil {
		sb.s.opts.Logger.Error("stop", "session", current.id, "error", err)
	}
	current.awaitCommands()
	if keep && taken == nil {
		current.takeSnapshot()
	}
	current.end(statusStopped)
	sb.closeRoutes()
}
