package sandboxtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// store holds all that the API knows. Its lock guards the fields of every
// sandbox, session, snapshot and command, and is never held while a machine
// works or a client is written to.
type store struct {
	s *Server

	mu        sync.Mutex
	sandboxes map[sandboxKey]*namedSandbox
	sessions  map[string]*session
	snapshots map[string]*snapshot
	drives    map[sandboxKey]*drive
	// reserved are names whose sandboxes are being made.
	reserved map[sandboxKey]bool
	saver    saver
}

// sandboxKey is what a name is unique in.
type sandboxKey struct{ project, name string }

func newStore(s *Server) *store {
	return &store{
		s:         s,
		sandboxes: make(map[sandboxKey]*namedSandbox),
		sessions:  make(map[string]*session),
		snapshots: make(map[string]*snapshot),
		drives:    make(map[sandboxKey]*drive),
		reserved:  make(map[sandboxKey]bool),
		saver:     saver{wake: make(chan struct{}, 1)},
	}
}

// settings are what a sandbox is configured with: what create takes, update
// changes and fork copies.
type settings struct {
	Persistent         bool                    `json:"persistent"`
	VCPUs              int                     `json:"vcpus"`
	Runtime            string                  `json:"runtime,omitempty"`
	Image              string                  `json:"image,omitempty"`
	Timeout            time.Duration           `json:"timeout"`
	Region             string                  `json:"region"`
	FailoverRegions    []string                `json:"failoverRegions,omitempty"`
	NetworkID          string                  `json:"networkId,omitempty"`
	Mounts             map[string]wire.Mount   `json:"mounts,omitempty"`
	Policy             *wire.NetworkPolicy     `json:"networkPolicy,omitempty"` // nil was never set
	PolicyRequest      json.RawMessage         `json:"policyRequest,omitempty"` // what Policy was made of, with the values of headers
	Env                map[string]string       `json:"env,omitempty"`
	Tags               map[string]string       `json:"tags,omitempty"`
	Ports              []int                   `json:"ports,omitempty"`
	SnapshotExpiration *time.Duration          `json:"snapshotExpiration,omitempty"`
	KeepLast           *wire.KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
}

// clone copies the settings so far that no change to one shows in the other.
func (c settings) clone() settings {
	c.Env, c.Tags, c.Ports = maps.Clone(c.Env), maps.Clone(c.Tags), slices.Clone(c.Ports)
	c.FailoverRegions, c.Mounts = slices.Clone(c.FailoverRegions), maps.Clone(c.Mounts)
	return c
}

// deniesAll reports whether the policy cuts the network off.
func (c *settings) deniesAll() bool { return c.Policy != nil && c.Policy.Mode == modeDenyAll }

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
	deleted         bool
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

// The status values of a session.
const (
	statusPending      = "pending"
	statusRunning      = "running"
	statusStopping     = "stopping"
	statusSnapshotting = "snapshotting"
	statusStopped      = "stopped"
	statusFailed       = "failed"
	statusAborted      = "aborted"
)

const (
	memoryPer    = 2048 // MB for each vCPU
	terminalPort = 26661
)

// find gives the sandbox of that name. Without a project the name is looked
// for in all of them.
func (st *store) find(project, name string) *namedSandbox {
	st.mu.Lock()
	defer st.mu.Unlock()
	if project != "" {
		return st.sandboxes[sandboxKey{project, name}]
	}
	for key, sb := range st.sandboxes {
		if key.name == name {
			return sb
		}
	}
	return nil
}

// reserve takes a name for a sandbox that is about to be made.
func (st *store) reserve(key sandboxKey) *apiError {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.sandboxes[key] != nil || st.reserved[key] {
		return badRequest("A sandbox with the name '%s' already exists for this project.", key.name)
	}
	st.reserved[key] = true
	return nil
}

func (st *store) unreserve(key sandboxKey) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.reserved, key)
}

// session gives the session with that ID.
func (st *store) session(id string) (*session, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess := st.sessions[id]; sess != nil {
		return sess, nil
	}
	return nil, errSessionNotFound
}

// wireSandbox describes a sandbox. The store's lock is held.
func (sb *namedSandbox) wire() wire.Sandbox {
	set := sb.settings
	total := sb.past // without what the session that runs has used
	cur := sb.current
	w := wire.Sandbox{
		Name: sb.key.name, Persistent: set.Persistent, Region: set.Region, FailoverRegions: append([]string{}, set.FailoverRegions...),
		VCPUs: set.VCPUs, Memory: set.VCPUs * memoryPer, Runtime: set.Runtime, Architecture: architecture, Image: set.Image,
		Timeout: wire.Duration(set.Timeout), NetworkPolicy: set.Policy, NetworkID: set.NetworkID, Mounts: maps.Clone(set.Mounts),
		TotalEgressBytes: new(total.Egress), TotalIngressBytes: new(total.Ingress),
		TotalActiveCPUDurationMs: new(wholeMillis(total.CPU)),
		TotalDurationMs:          new(wholeMillis(total.Duration)),
		CreatedAt:                wire.At(sb.createdAt), UpdatedAt: wire.At(sb.updatedAt),
		CurrentSessionID: cur.id, CurrentSnapshotID: sb.currentSnapshot,
		Status: cur.sandboxStatus(), StatusUpdatedAt: wire.At(sb.statusUpdatedAt), Cwd: set.account().WorkDir,
		Tags:               maps.Clone(set.Tags),
		SnapshotExpiration: wire.DurationPtr(set.SnapshotExpiration),
		KeepLastSnapshots:  set.KeepLast,
	}
	if cur.live() {
		w.ExpiresAt = wire.At(cur.began().Add(cur.timeout))
	}
	return w
}

// wholeMillis drops what the API does not tell.
func wholeMillis(d time.Duration) wire.Duration { return wire.Duration(d.Truncate(time.Millisecond)) }

func (sb *namedSandbox) wireRoutes() []wire.Route {
	routes := make([]wire.Route, 0, len(sb.routes))
	for _, r := range sb.routes {
		routes = append(routes, r.wire())
	}
	return routes
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
	page, err := parsePage(q, "sandboxes by "+by, maxLimit)
	if err != nil {
		return err
	}
	project := q.Get("project")
	items := []wire.Sandbox{}
	st := c.s.store
	st.mu.Lock()
	for key, sb := range st.sandboxes {
		if (project == "" || key.project == project) && strings.HasPrefix(key.name, prefix) && hasTags(sb.settings.Tags, tags) &&
			(status == "" || sb.current.sandboxStatus() == status) {
			items = append(items, sb.wire())
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
