package sandbox

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// Status is the state of a sandbox, of one of its sessions or of a snapshot. The
// API may add others.
type Status string

// The states of a session. The state of a sandbox is that of its current
// session.
const (
	StatusPending      Status = "pending" // it is being started
	StatusRunning      Status = "running"
	StatusStopping     Status = "stopping"     // its processes end, and its files are saved
	StatusSnapshotting Status = "snapshotting" // likewise, for [Sandbox.Snapshot]
	StatusStopped      Status = "stopped"
	StatusFailed       Status = "failed"  // its machine did not start, or broke down
	StatusAborted      Status = "aborted" // the platform has ended it
)

// defaultRegion is where the platform creates sandboxes and drives.
const defaultRegion = "iad1"

// Info describes a sandbox. Fields that the API omitted are zero, or nil where
// zero has a meaning.
type Info struct {
	Name string
	// Persistent reports whether the files outlive a session.
	Persistent bool
	// Region is where sessions are started. If the API did not report it, it is "iad1" in a
	// handle's Info, and empty in a listing. FailoverRegions are used if a session can't
	// start there. [SessionInfo.Region] is where a session actually runs.
	Region          string
	FailoverRegions []string
	// NetworkID is the ID of its Secure Compute network; empty if none.
	NetworkID string
	// Mounts maps the directories of new sessions to drives.
	Mounts map[string]Mount
	// VCPUs and MemoryMB are the size of the sandbox's machine.
	VCPUs, MemoryMB int
	// Architecture is the CPU architecture, for example "amd64".
	Architecture string
	// Image is the digest-pinned reference of the sandbox's image. A sandbox
	// with an Image also has a Runtime, which then has no meaning.
	Runtime, Image string
	// Timeout is the default duration of a session.
	Timeout time.Duration
	// NetworkPolicy is the policy of new sessions; nil if not reported.
	NetworkPolicy *NetworkPolicy
	// TotalEgressBytes, TotalIngressBytes, TotalActiveCPU and TotalDuration are
	// totals of the sessions that have stopped.
	TotalEgressBytes, TotalIngressBytes int64
	TotalActiveCPU, TotalDuration       time.Duration

	CreatedAt, UpdatedAt time.Time
	// ExpiresAt is when the running session times out, as the API reported it with the
	// sandbox; zero if it did not. [Sandbox.ExpiresAt] includes later extensions.
	ExpiresAt        time.Time
	CurrentSessionID string
	// CurrentSnapshotID is the snapshot that the next session starts from.
	CurrentSnapshotID string
	Status            Status
	StatusUpdatedAt   time.Time
	// Cwd is the working directory of commands, which relative paths are
	// resolved in.
	Cwd  string
	Tags map[string]string
	// SnapshotExpiration is how long snapshots are kept by default; it may be
	// [Forever]. Zero means the platform's default.
	SnapshotExpiration time.Duration
	// KeepLastSnapshots is the retention policy; nil if there is none.
	KeepLastSnapshots *KeepLastSnapshots
}

// SessionInfo describes a session: one run of a sandbox's virtual machine.
// Fields that the API omitted are zero, or nil where zero has a meaning.
type SessionInfo struct {
	ID string
	// SandboxName and ProjectID identify the sandbox of the session.
	SandboxName, ProjectID string
	// VCPUs and MemoryMB are the size of the session's machine, and Architecture is
	// the CPU architecture.
	VCPUs, MemoryMB int
	Architecture    string
	// Region is where the session runs. Runtime is its runtime, which has no meaning for a
	// session with an image.
	Region, Runtime string
	// Timeout is how long the session runs after StartedAt before it is
	// stopped.
	Timeout time.Duration
	Status  Status
	// These times are zero until they are reached.
	RequestedAt, StartedAt, RequestedStopAt, StoppedAt, AbortedAt, SnapshottedAt, CreatedAt, UpdatedAt time.Time
	// Duration is how long the session ran; zero while it runs.
	Duration time.Duration
	// SourceSnapshotID is the snapshot that the session started from.
	SourceSnapshotID string
	// Cwd is the working directory of commands, which relative paths are
	// resolved in.
	Cwd string
	// InteractivePort is the port of the terminal service; zero if there is
	// none.
	InteractivePort int
	// NetworkPolicy is the policy in effect; nil if not reported.
	NetworkPolicy *NetworkPolicy
	// ActiveCPU, EgressBytes and IngressBytes are set once the session has stopped,
	// and zero before.
	ActiveCPU                 time.Duration
	EgressBytes, IngressBytes int64
	// Extra holds fields unknown to this version of the SDK, as JSON.
	Extra map[string]json.RawMessage
}

// Route is the public address of an exposed port.
type Route struct {
	// Port is the port inside the sandbox.
	Port int
	// URL is the public address.
	URL string
	// System marks a route of the platform itself. The API reports such routes only if a
	// parameter in Extra requests them.
	System bool
}

// SnapshotInfo describes a snapshot. Fields that the API omitted are zero.
type SnapshotInfo struct {
	ID              string
	SourceSessionID string
	// Architecture is the CPU architecture that it runs on, for example
	// "amd64".
	Architecture string
	// Region is where the snapshot was created. Sandboxes can be started from it in all
	// Regions. If the API did not report these, they are Region alone in a handle's Info, and
	// nil in a listing.
	Region  string
	Regions []string
	// Status is "created", "deleted" or [StatusFailed].
	Status    Status
	SizeBytes int64
	// ExpiresAt is when the snapshot is deleted; zero if never.
	ExpiresAt                        time.Time
	CreatedAt, UpdatedAt, LastUsedAt time.Time
	// CreationMethod is "manual" for [Sandbox.Snapshot] and "automatic" for the
	// end of a session.
	CreationMethod string
	// ParentID is the snapshot that its session started from.
	ParentID string
}

// visibleTags returns the tags that a user has set.
func visibleTags(tags map[string]string) map[string]string {
	shown := withMark(tags, "")
	if len(shown) == 0 && len(tags) > 0 {
		return nil
	}
	return shown
}

func sandboxInfo(w *wire.Sandbox) Info {
	return Info{
		Name: w.Name, Persistent: w.Persistent, Region: w.Region, FailoverRegions: slices.Clone(w.FailoverRegions),
		NetworkID: w.NetworkID, Mounts: mountsFromWire(w.Mounts), VCPUs: w.VCPUs, MemoryMB: w.Memory, Architecture: w.Architecture,
		Runtime: w.Runtime, Image: w.Image, Timeout: time.Duration(w.Timeout),
		NetworkPolicy:    networkPolicyFromWire(w.NetworkPolicy),
		TotalEgressBytes: orZero(w.TotalEgressBytes), TotalIngressBytes: orZero(w.TotalIngressBytes),
		TotalActiveCPU: time.Duration(orZero(w.TotalActiveCPUDurationMs)), TotalDuration: time.Duration(orZero(w.TotalDurationMs)),
		CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time, ExpiresAt: w.ExpiresAt.Time,
		CurrentSessionID: w.CurrentSessionID, CurrentSnapshotID: w.CurrentSnapshotID,
		Status: Status(w.Status), StatusUpdatedAt: w.StatusUpdatedAt.Time, Cwd: w.Cwd, Tags: visibleTags(w.Tags),
		SnapshotExpiration: expirationFromWire(w.SnapshotExpiration), KeepLastSnapshots: keepLastSnapshotsFromWire(w.KeepLastSnapshots),
	}
}

func sessionInfo(w *wire.Session) SessionInfo {
	info := SessionInfo{
		ID: w.ID, SandboxName: w.SourceSandboxName, ProjectID: w.ProjectID,
		MemoryMB: w.Memory, VCPUs: w.VCPUs, Architecture: w.Architecture, Region: w.Region, Runtime: w.Runtime,
		Timeout: time.Duration(w.Timeout), Status: Status(w.Status),
		RequestedAt: w.RequestedAt.Time, StartedAt: w.StartedAt.Time, RequestedStopAt: w.RequestedStopAt.Time,
		StoppedAt: w.StoppedAt.Time, AbortedAt: w.AbortedAt.Time, SnapshottedAt: w.SnapshottedAt.Time,
		CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time, Duration: time.Duration(orZero(w.Duration)),
		SourceSnapshotID: w.SourceSnapshotID, Cwd: w.Cwd, InteractivePort: w.InteractivePort,
		NetworkPolicy: networkPolicyFromWire(w.NetworkPolicy), ActiveCPU: time.Duration(orZero(w.ActiveCPUDurationMs)),
		Extra: maps.Clone(w.Extra),
	}
	if t := w.NetworkTransfer; t != nil {
		info.EgressBytes, info.IngressBytes = t.Egress, t.Ingress
	}
	return info
}

func snapshotInfo(w *wire.Snapshot) SnapshotInfo {
	return SnapshotInfo{
		ID: w.ID, SourceSessionID: w.SourceSessionID, Architecture: w.Architecture, Region: w.Region, Regions: slices.Clone(w.Regions), Status: Status(w.Status),
		SizeBytes: w.SizeBytes, ExpiresAt: w.ExpiresAt.Time, CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time,
		LastUsedAt: w.LastUsedAt.Time, CreationMethod: w.CreationMethod, ParentID: w.ParentID,
	}
}

func routesFromWire(ws []wire.Route) []Route {
	routes := make([]Route, len(ws))
	for i, w := range ws {
		// The URL is correct for every deployment of the API; the subdomain only for
		// Vercel's.
		routes[i] = Route{Port: w.Port, URL: cmp.Or(w.URL, "https://"+w.Subdomain+".vercel.run"), System: w.System}
	}
	return routes
}

// orZero returns what p points to, or the zero value.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
