package sandboxtest

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// sandbox returns the sandbox in the path.
func (c *call) sandbox() (*store.Sandbox, error) {
	name := c.values[0]
	if err := checkName(name); err != nil {
		return nil, err
	}
	project, err := c.project()
	if err != nil {
		return nil, err
	}
	if sb := c.s.store.Find(project, name); sb != nil {
		return sb, nil
	}
	return nil, reply.SandboxNotFound(name)
}

// listSandboxes handles GET /v2/sandboxes.
func (c *call) listSandboxes() error {
	project, err := c.listProject()
	if err != nil {
		return err
	}
	q := c.r.URL.Query()
	by := cmp.Or(q.Get("sortBy"), "createdAt")
	sortBy := map[string]func(wire.Sandbox) string{
		"createdAt":         func(s wire.Sandbox) string { return timeKey(s.CreatedAt) },
		"name":              func(s wire.Sandbox) string { return s.Name },
		"statusUpdatedAt":   func(s wire.Sandbox) string { return timeKey(s.StatusUpdatedAt) },
		"currentSnapshotId": func(s wire.Sandbox) string { return s.CurrentSnapshotID },
	}[by]
	if sortBy == nil {
		return reply.Invalid("`sortBy` should be equal to one of the allowed values \"createdAt, name, statusUpdatedAt, currentSnapshotId\".")
	}
	prefix := q.Get("namePrefix")
	if prefix != "" && by != "name" {
		return reply.Invalid("`namePrefix` is only valid when `sortBy` is `name`")
	}
	key, value, ok := strings.Cut(q.Get("tags"), ":")
	switch {
	case len(q["tags"]) > 1:
		return reply.BadRequest("Only one tag filter is supported at a time.")
	case len(q["tags"]) == 1 && (!ok || key == ""):
		return reply.Invalid("`tags` should be of the form key:value.")
	}
	hasTag := func(tags map[string]string) bool {
		v, ok := tags[key]
		return !q.Has("tags") || ok && v == value
	}
	status := q.Get("status")
	switch {
	case status == "":
	case by != "createdAt":
		return reply.Invalid("`status` is only valid when `sortBy` is `createdAt`")
	case status != store.StatusRunning && status != store.StatusStopping && status != store.StatusStopped:
		return reply.Invalid("`status` should be equal to one of the allowed values \"running, stopping, stopped\".")
	}
	page, err := parsePage(q, "sandboxes by "+by, wire.MaxPage)
	if err != nil {
		return err
	}
	items := slices.DeleteFunc(c.s.store.ListSandboxes(project), func(sb wire.Sandbox) bool {
		return !strings.HasPrefix(sb.Name, prefix) || !hasTag(sb.Tags) || status != "" && sb.Status != status
	})
	items, pagination := paginate(page, "sandboxes by "+by, items, func(s wire.Sandbox) sortKey { return sortKey{sortBy(s), s.Name} })
	return c.respond(http.StatusOK, wire.SandboxesPage{Sandboxes: items, Pagination: pagination}, nil)
}

// getSandbox handles GET /v2/sandboxes/{name}, which resumes only on request.
func (c *call) getSandbox() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	resume, err := c.flag("resume")
	if err != nil {
		return err
	}
	systemRoutes, err := c.flag("__includeSystemRoutes")
	if err != nil {
		return err
	}
	resumed := false
	if resume {
		ctx, cancel := c.detachedContext()
		defer cancel()
		if resumed, err = sb.Resume(ctx); err != nil {
			return err
		}
	}
	resp := sb.Describe()
	if systemRoutes {
		resp.Routes = append(resp.Routes, c.s.terminalRoute(resp.Session))
	}
	return c.respond(http.StatusOK, struct {
		wire.SandboxResponse
		Resumed bool `json:"resumed"` // present even if false
	}{resp, resumed}, nil)
}

// updateSandbox handles PATCH /v2/sandboxes/{name}. Ports, tags and retention change at
// once. The other settings change with the next session.
func (c *call) updateSandbox() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	var p updateParams
	if err := c.decode(&p); err != nil {
		return err
	}
	resume, err := c.flag("resume")
	if err != nil {
		return err
	}
	if p.Image != "" {
		return reply.Invalid("should NOT have additional property `image`.")
	}
	ctx, cancel := c.detachedContext()
	defer cancel()
	resp, err := sb.Update(ctx, func(set *store.Settings) error { return p.apply(c.s.store, set) }, p.CurrentSnapshotID, resume)
	return c.respond(http.StatusOK, resp, err)
}

// deleteSandbox handles DELETE /v2/sandboxes/{name}. It keeps the snapshots, because other
// sandboxes may be created from them. On request it deletes those that no other sandbox
// needs.
func (c *call) deleteSandbox() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	orphans, err := c.flag("deleteOrphanSnapshots")
	if err != nil {
		return err
	}
	resp, err := sb.Delete(orphans)
	return c.respond(http.StatusOK, resp, err)
}
