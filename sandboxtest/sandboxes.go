package sandboxtest

import (
	"cmp"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// namedSandbox is a sandbox.
type namedSandbox struct {
	s *Server
	// op serialises what starts and ends sessions. It is taken before the
	// store's lock.
	op sync.Mutex

	key             sandboxKey
	settings        settings
	createdAt       time.Time
	updatedAt       time.Time
	statusUpdatedAt time.Time
	currentSnapshot string
	current         *session
	routes          []*route
	// making says that its first session has no machine yet. Requests find it, but
	// those that change it wait, and nothing of it is saved.
	making  bool
	deleted bool
	// past is what its ended sessions have used.
	past usage
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

const (
	terminalPort = 26661
)

// wireLocked describes a sandbox.
func (sb *namedSandbox) wireLocked() wire.Sandbox {
	set := sb.settings
	total := sb.past // without what the session that runs has used
	cur := sb.current
	w := wire.Sandbox{
		Name: sb.key.name, Persistent: set.Persistent, Region: set.Region, FailoverRegions: append([]string{}, set.FailoverRegions...),
		VCPUs: set.VCPUs, Memory: set.VCPUs * wire.MemoryPerVCPU, Runtime: set.Runtime, Architecture: cmp.Or(set.Architecture, architecture), Image: set.Image,
		Timeout: wire.Duration(set.Timeout), NetworkPolicy: set.Policy, NetworkID: set.NetworkID, Mounts: maps.Clone(set.Mounts),
		TotalEgressBytes: new(total.Egress), TotalIngressBytes: new(total.Ingress),
		TotalActiveCPUDurationMs: new(wholeMillis(total.CPU)),
		TotalDurationMs:          new(wholeMillis(total.Duration)),
		CreatedAt:                wire.At(sb.createdAt), UpdatedAt: wire.At(sb.updatedAt),
		CurrentSessionID: cur.id, CurrentSnapshotID: sb.currentSnapshot,
		Status: cur.sandboxStatusLocked(), StatusUpdatedAt: wire.At(sb.statusUpdatedAt), Cwd: set.account().WorkDir,
		Tags:               maps.Clone(set.Tags),
		SnapshotExpiration: wire.DurationPtr(set.SnapshotExpiration),
		KeepLastSnapshots:  set.KeepLast,
	}
	if cur.liveLocked() {
		w.ExpiresAt = wire.At(cur.beganLocked().Add(cur.timeout))
	}
	return w
}

// wholeMillis drops what the API does not tell.
func wholeMillis(d time.Duration) wire.Duration { return wire.Duration(d.Truncate(time.Millisecond)) }

func (sb *namedSandbox) wireRoutesLocked() []wire.Route {
	routes := make([]wire.Route, 0, len(sb.routes))
	for _, r := range sb.routes {
		routes = append(routes, r.wire())
	}
	return routes
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

func (c *call) respondSandbox(sb *namedSandbox, resumed bool) error {
	st := c.s.store
	st.mu.Lock()
	resp := wire.SandboxResponse{Sandbox: sb.wireLocked(), Session: sb.current.wireLocked(), Routes: sb.wireRoutesLocked()}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, struct {
		wire.SandboxResponse
		Resumed bool `json:"resumed"` // also when it is false
	}{resp, resumed})
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
		if resumed, err = sb.resumeInOp(ctx); err != nil {
			return err
		}
	}
	return c.respondSandbox(sb, resumed)
}

// listSandboxes handles GET /v2/sandboxes.
func (c *call) listSandboxes() error {
	q := c.r.URL.Query()
	by := q.Get("sortBy")
	if by == "" {
		by = "createdAt"
	}
	key := map[string]func(wire.Sandbox) string{
		"createdAt":         func(s wire.Sandbox) string { return timeKey(s.CreatedAt) },
		"name":              func(s wire.Sandbox) string { return s.Name },
		"statusUpdatedAt":   func(s wire.Sandbox) string { return timeKey(s.StatusUpdatedAt) },
		"currentSnapshotId": func(s wire.Sandbox) string { return s.CurrentSnapshotID },
	}[by]
	if key == nil {
		return invalid("`sortBy` should be equal to one of the allowed values \"createdAt, name, statusUpdatedAt, currentSnapshotId\".")
	}
	prefix := q.Get("namePrefix")
	if prefix != "" && by != "name" {
		return invalid("`namePrefix` is only valid when `sortBy` is `name`")
	}
	tags := make(map[string]string)
	if len(q["tags"]) > 1 {
		return badRequest("Only one tag filter is supported at a time.")
	}
	for _, tag := range q["tags"] {
		k, v, ok := strings.Cut(tag, ":")
		if !ok || k == "" {
			return invalid("`tags` should be of the form key:value.")
		}
		tags[k] = v
	}
	status := q.Get("status")
	switch {
	case status == "":
	case by != "createdAt":
		return invalid("`status` is only valid when `sortBy` is `createdAt`")
	case status != statusRunning && status != statusStopping && status != statusStopped:
		return invalid("`status` should be equal to one of the allowed values \"running, stopping, stopped\".")
	}
	page, err := parsePage(q, "sandboxes by "+by, wire.MaxPage)
	if err != nil {
		return err
	}
	project := q.Get("project")
	items := []wire.Sandbox{}
	st := c.s.store
	st.mu.Lock()
	for key, sb := range st.sandboxes {
		if (project == "" || key.project == project) && strings.HasPrefix(key.name, prefix) && hasTags(sb.settings.Tags, tags) &&
			(status == "" || sb.current.sandboxStatusLocked() == status) {
			items = append(items, sb.wireLocked())
		}
	}
	st.mu.Unlock()
	items, pagination := cut(page, "sandboxes by "+by, items, func(s wire.Sandbox) sortKey { return sortKey{key(s), s.Name} })
	writeJSON(c.w, http.StatusOK, wire.SandboxesPage{Sandboxes: items, Pagination: pagination})
	return nil
}

func hasTags(tags, want map[string]string) bool {
	for k, v := range want {
		if got, ok := tags[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// updateSandbox handles PATCH /v2/sandboxes/{name}. What a session is made
// with changes for the next one.
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
	if p.NetworkPolicy.Given { // before a later session fails by it
		if err := c.s.enforceable(set.Policy.Mode); err != nil {
			return err
		}
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
		if err := sb.setPortsInOp(set.Ports); err != nil {
			return err
		}
	}
	st.mu.Lock()
	sb.settings, sb.updatedAt = set, c.s.clock.Now()
	if p.CurrentSnapshotID != "" {
		sb.currentSnapshot = p.CurrentSnapshotID
	}
	st.changedLocked(sb)
	st.mu.Unlock()
	if resume {
		ctx, cancel := c.detached()
		defer cancel()
		if _, err := sb.resumeInOp(ctx); err != nil {
			return err
		}
	}
	st.mu.Lock()
	resp := wire.UpdateResponse{Sandbox: sb.wireLocked(), Routes: sb.wireRoutesLocked()}
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
	current.awaitSignals()
	current.kill(statusStopped)
	sb.closeRoutesInOp()
	st.mu.Lock()
	sb.deleted = true
	delete(st.sandboxes, sb.key)
	resp := wire.UpdateResponse{Sandbox: sb.wireLocked()}
	var gone []*snapshot
	if orphans {
		gone = st.orphansLocked(sb.key)
	}
	st.changedLocked(sb)
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
