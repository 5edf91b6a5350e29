package sandboxtest

import (
	"context"
	"net/http"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// createSandbox handles POST /v2/sandboxes, /v3/sandboxes and /v4/sandboxes,
// which boot a runtime or an image when neither is named.
func (c *call) createSandbox() error {
	var p createParams
	if err := c.decode(&p); err != nil {
		return err
	}
	var err error
	if p.ProjectID, err = c.inProject(p.ProjectID); err != nil {
		return err
	}
	if p.ProjectID == "" {
		return invalid("missing required property `projectId`.")
	}
	if p.Runtime != "" && p.Image != "" {
		return invalid("`runtime` and `image` can't be used together")
	}
	set := defaultSettings()
	if c.version >= 4 {
		set.shortenRetention()
	}
	if err := p.apply(&set, c.s.images); err != nil {
		return err
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
			var err error
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
			policy, err := firewall.ParsePolicy(set.PolicyRequest)
			if err != nil {
				return err
			}
			version := c.version
			pause := c.s.opts.BodyTimeout
			fill = func(ctx context.Context, m *box.Box) error { return src.fill(ctx, m, policy, version, pause) }
		}
	}
	if err := p.applyArchitecture(c.version, &set, from); err != nil {
		return err
	}
	if err := set.boot(c.version, from, c.s.images); err != nil {
		return err
	}
	if set.NPM = p.Credentials != nil && p.Credentials.NPM; set.NPM {
		fill = c.s.withLogins(fill)
	}
	return c.makeSandbox(p.ProjectID, p.Name, set, from, fill)
}

// withLogins gives a sandbox the team's logins before its files.
func (s *Server) withLogins(files func(context.Context, *box.Box) error) func(context.Context, *box.Box) error {
	return func(ctx context.Context, m *box.Box) error {
		if err := fillNPMRC(ctx, m, s.site.Registries()); err != nil || files == nil {
			return err
		}
		return files(ctx, m)
	}
}

// forkSandbox handles POST /v2/sandboxes/{name}/fork.
func (c *call) forkSandbox() error {
	source, err := c.sandbox()
	if err != nil {
		return err
	}
	var p forkParams
	if err := c.decode(&p); err != nil {
		return err
	}
	st := c.s.store
	st.mu.Lock()
	set, snapshotID := source.settings.clone(), source.currentSnapshot
	st.mu.Unlock()
	set.Mounts, set.NPM = nil, false // forks have the drives that they ask for, and no credentials
	if err := p.apply(&set, c.s.images); err != nil {
		return err
	}
	if c.version >= 3 {
		set.shortenRetention()
	}
	if p.KeepLastSnapshots.Null { // for good
		set.KeepLast = nil
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
	if len(set.Ports) == wire.MaxPorts {
		// So the service does, although its schema allows as many.
		return fail(http.StatusInternalServerError, "internal_server_error", "Internal Server Error")
	}
	st := c.s.store
	key := sandboxKey{project, name}
	if err := st.checkMounts(project, &set); err != nil {
		return err
	}
	sb := &namedSandbox{s: c.s, key: key, settings: set, making: true}
	if from != nil {
		sb.currentSnapshot = from.id
	}
	sb.op.Lock()
	defer sb.op.Unlock()
	if err := sb.setPortsInOp(set.Ports); err != nil {
		return err
	}
	if err := st.addInOp(sb, from); err != nil {
		sb.closeRoutesInOp()
		return err
	}
	ctx, cancel := c.detached()
	defer cancel()
	if err := sb.bootInOp(ctx, sb.current, from, fill); err != nil {
		sb.giveUpInOp()
		return err
	}
	return c.respondNew(sb)
}

// addInOp makes a sandbox known whose machine is about to be made: whoever is told
// that the name is taken finds it, with a session that is pending.
func (st *store) addInOp(sb *namedSandbox, from *snapshot) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sandboxes[sb.key] != nil {
		return badRequest("A sandbox with the name '%s' already exists for this project.", sb.key.name)
	}
	st.sandboxes[sb.key] = sb
	sb.current = sb.newSessionLocked(from)
	// Not before its first session, which clients tell from later ones by that.
	sb.createdAt = sb.current.requestedAt
	sb.updatedAt, sb.statusUpdatedAt = sb.createdAt, sb.createdAt
	st.sessions[sb.current.id] = sb.current
	return nil
}

// giveUpInOp forgets a sandbox that could not be made. What has waited for it finds
// it gone.
func (sb *namedSandbox) giveUpInOp() {
	sb.closeRoutesInOp()
	st := sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sb.deleted, sb.making = true, false
	delete(st.sandboxes, sb.key)
	delete(st.sessions, sb.current.id)
	sb.current.setStatusLocked(statusFailed)
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
	resp := wire.SandboxResponse{Sandbox: sb.wireLocked(), Session: sb.current.wireLocked(), Routes: sb.wireRoutesLocked()}
	st.mu.Unlock()
	w := &resp.Sandbox
	w.TotalEgressBytes, w.TotalIngressBytes, w.TotalActiveCPUDurationMs, w.TotalDurationMs = nil, nil, nil, nil
	w.ExpiresAt = wire.Time{}
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}
