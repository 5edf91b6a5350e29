package sandboxtest

import (
	"cmp"
	"context"
	"net/http"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// createSandbox handles POST /v2/sandboxes, /v3/sandboxes and /v4/sandboxes. The versions
// boot different systems if the request names neither a runtime nor an image.
func (c *call) createSandbox() error {
	var p createParams
	if err := c.decode(&p); err != nil {
		return err
	}
	var err error
	if p.ProjectID, err = c.resolveProject(p.ProjectID); err != nil {
		return err
	}
	if p.ProjectID == "" {
		return reply.Invalid("missing required property `projectId`.")
	}
	if p.Runtime != "" && p.Image != "" {
		return reply.Invalid("`runtime` and `image` can't be used together")
	}
	st := c.s.store
	set := store.DefaultSettings()
	if err := p.apply(st, &set); err != nil {
		return err
	}
	if c.version >= 4 {
		p.shortenRetention(&set)
	}
	if err := setRuntime(&set, p.Runtime); err != nil {
		return err
	}
	var from *store.Snapshot
	var fill func(context.Context, *box.Box) error
	if src := p.Source; src != nil {
		if err := src.check(); err != nil {
			return err
		}
		if src.Type == sourceSnapshot {
			if p.Image != "" {
				return reply.Invalid("`image` can't be used with a snapshot")
			}
			var err error
			if from, err = st.Usable(p.ProjectID, src.SnapshotID); err != nil {
				return err
			}
			// The image is that of the snapshot's files. So is the runtime, unless the
			// request names one.
			system := from.System()
			if set.Image = system.Image; set.Runtime == "" {
				set.Runtime = system.Runtime
			}
			if p.Region == "" {
				set.Region = system.Regions[0]
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
	if err := c.completeSettings(&set, from); err != nil {
		return err
	}
	return c.makeSandbox(p.ProjectID, p.Name, set, from, fill)
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
	set, snapshotID := source.Origin()
	set.Mounts = nil // forks have the drives that they ask for
	if err := p.apply(st, &set); err != nil {
		return err
	}
	if c.version >= 3 {
		p.shortenRetention(&set)
	}
	var from *store.Snapshot
	if snapshotID != "" {
		if from, err = st.Usable(source.Project(), snapshotID); err != nil {
			return reply.ErrSnapshotGone
		}
	}
	if err := c.completeSettings(&set, from); err != nil {
		return err
	}
	return c.makeSandbox(source.Project(), p.Name, set, from, nil)
}

// detachedContext returns a context for the work on a session. If the client gives up, the work
// continues, as on the service.
func (c *call) detachedContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	stop := c.s.store.OnClose(cancel)
	return ctx, func() { stop(); cancel() }
}

// makeSandbox creates a sandbox with its first session and responds with it.
func (c *call) makeSandbox(project, name string, set store.Settings, from *store.Snapshot, fill func(context.Context, *box.Box) error) error {
	name = cmp.Or(name, store.NewName())
	if err := checkName(name); err != nil {
		return err
	}
	if len(set.Ports) == wire.MaxPorts {
		// The service fails here, although its schema allows that many ports.
		return reply.Fail(http.StatusInternalServerError, "internal_server_error", "Internal Server Error")
	}
	ctx, cancel := c.detachedContext()
	defer cancel()
	resp, err := c.s.store.Create(ctx, store.Key{Project: project, Name: name}, set, from, fill)
	if err != nil {
		return err
	}
	// Later responses have totals.
	w := &resp.Sandbox
	w.TotalEgressBytes, w.TotalIngressBytes, w.TotalActiveCPUDurationMs, w.TotalDurationMs = nil, nil, nil, nil
	w.ExpiresAt = wire.Time{}
	return c.respond(http.StatusOK, resp, nil)
}

// completeSettings sets the runtime or image that the request does not name, and checks the
// regions.
func (c *call) completeSettings(set *store.Settings, from *store.Snapshot) (err error) {
	if from == nil && set.Runtime == "" && set.Image == "" && c.version >= 3 {
		set.Image, err = c.s.store.PinImage(store.DefaultImage)
	}
	set.Runtime = cmp.Or(set.Runtime, store.DefaultRuntime)
	if err == nil {
		err = set.CheckPlace()
	}
	return err
}
