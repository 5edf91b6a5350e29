package sandboxtest

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// createSandbox answers POST /v2/sandboxes.
func (c *call) createSandbox() error {
	var p createParams
	if _, err := c.decode(&p); err != nil {
		return err
	}
	if p.ProjectID == "" {
		return invalid("should have required property `projectId`")
	}
	set := defaultSettings()
	if err := p.apply(&set); err != nil {
		return err
	}
	if p.Runtime != "" && p.Image != "" {
		return invalid("`runtime` and `image` can't be used together")
	}
	if p.Runtime != "" {
		if err := checkRuntime(p.Runtime); err != nil {
			return err
		}
		set.Runtime = p.Runtime
	}
	if set.Runtime == "" && set.Image == "" {
		set.Runtime = defaultRuntime
	}
	var from *snapshot
	var fill func(context.Context, *box.Box) error
	if src := p.Source; src != nil {
		if err := src.check(); err != nil {
			return err
		}
		if src.Type == sourceSnapshot {
			if p.Runtime != "" || p.Image != "" {
				return invalid("`runtime` and `image` can't be used with a snapshot")
			}
			var err error
			if from, err = c.s.store.usable(p.ProjectID, src.SnapshotID); err != nil {
				return err
			}
		} else {
			policy := set.Policy
			fill = func(ctx context.Context, m *box.Box) error { return src.fill(ctx, m, &policy) }
		}
	}
	return c.makeSandbox(p.ProjectID, p.Name, set, from, fill)
}

// usable gives a snapshot that a sandbox of the project can start from.
func (st *store) usable(project, id string) (*snapshot, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	sn := st.snapshots[id]
	if sn == nil || sn.key.project != project || sn.status != snapshotCreated {
		return nil, errSnapshotNotFound
	}
	return sn, nil
}

// makeSandbox makes a sandbox with its first session and answers with it.
func (c *call) makeSandbox(project, name string, set settings, from *snapshot, fill func(context.Context, *box.Box) error) error {
	if name == "" {
		name = newName()
	}
	if err := checkName(name); err != nil {
		return err
	}
	st := c.s.store
	key := sandboxKey{project, name}
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
	st.sandboxes[key] = sb
	st.changedLocked()
	st.mu.Unlock()
	return c.answerSandbox(sb, false)
}

// detached is a context for the work on a session: a client that gives up
// meanwhile gets it anyway, as from the service.
func (c *call) detached() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	stop := context.AfterFunc(c.s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

func (c *call) answerSandbox(sb *namedSandbox, resumed bool) error {
	st := c.s.store
	st.mu.Lock()
	answer := wire.SandboxAnswer{Sandbox: sb.wire(), Session: sb.current.wire(), Routes: sb.wireRoutes(), Resumed: resumed}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

// sandbox gives the sandbox that the path names.
func (c *call) sandbox() (*namedSandbox, error) {
	name := c.values[0]
	if err := checkName(name); err != nil {
		return nil, err
	}
	if sb := c.s.store.find(c.project("projectId"), name); sb != nil {
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

// getSandbox answers GET /v2/sandboxes/{name}. Without resume it resumes.
func (c *call) getSandbox() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	resume := true
	switch c.r.URL.Query().Get("resume") {
	case "", "true":
	case "false":
		resume = false
	default:
		return invalid("`resume` should be equal to one of the allowed values: true, false")
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
	return c.answerSandbox(sb, resumed)
}

// forkSandbox answers POST /v2/sandboxes/{name}/fork.
func (c *call) forkSandbox() error {
	source, err := c.sandbox()
	if err != nil {
		return err
	}
	var p forkParams
	if _, err := c.decode(&p); err != nil {
		return err
	}
	st := c.s.store
	st.mu.Lock()
	set, snapshotID := source.settings.clone(), source.currentSnapshot
	st.mu.Unlock()
	if err := p.apply(&set); err != nil {
		return err
	}
	var from *snapshot
	if snapshotID != "" {
		if from, err = st.usable(source.key.project, snapshotID); err != nil {
			return errSnapshotGone
		}
	}
	return c.makeSandbox(source.key.project, p.Name, set, from, nil)
}

// updateSandbox answers PATCH /v2/sandboxes/{name}. What a session is made
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
	for _, field := range []string{"env", "image"} {
		if _, ok := present[field]; ok {
			return invalid("should NOT have additional property `%s`", field)
		}
	}
	if err := sb.lock(); err != nil {
		return err
	}
	defer sb.op.Unlock()
	st := c.s.store
	st.mu.Lock()
	set := sb.settings.clone()
	st.mu.Unlock()
	if err := p.apply(&set); err != nil {
		return err
	}
	if string(present["keepLastSnapshots"]) == "null" {
		set.KeepLast = nil
	}
	if p.Runtime != "" {
		if err := checkRuntime(p.Runtime); err != nil {
			return err
		}
		set.Runtime, set.Image = p.Runtime, ""
	}
	if p.CurrentSnapshotID != "" {
		if _, err := st.usable(sb.key.project, p.CurrentSnapshotID); err != nil {
			return notFound("Snapshot '%.100s' not found", p.CurrentSnapshotID)
		}
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
	answer := wire.UpdateAnswer{Sandbox: sb.wire(), Routes: sb.wireRoutes()}
	st.changedLocked()
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

// deleteSandbox answers DELETE /v2/sandboxes/{name}. Snapshots stay: other
// sandboxes may be made from them.
func (c *call) deleteSandbox() error {
	sb, err := c.sandbox()
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
	answer := wire.UpdateAnswer{Sandbox: sb.wire()}
	st.changedLocked()
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

// Crash lets the machine under a running sandbox die: its processes end, its
// files since the last snapshot are lost, and its session has failed. It says
// whether there is such a sandbox with a session to fail.
func (s *Server) Crash(name string) bool {
	sb := s.store.find("", name)
	if sb == nil || sb.lock() != nil {
		return false
	}
	defer sb.op.Unlock()
	s.store.mu.Lock()
	current := sb.current
	live := current.live()
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
		current.plan = &snapshotPlan{method: "automatic"}
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
