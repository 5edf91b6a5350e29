package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Status is the state of a sandbox or of one of its sessions. The API may add
// further values.
type Status string

// The states of a session. A sandbox has the state of its current session.
const (
	StatusPending      Status = "pending"
	StatusRunning      Status = "running"
	StatusStopping     Status = "stopping"
	StatusSnapshotting Status = "snapshotting"
	StatusStopped      Status = "stopped"
	StatusFailed       Status = "failed"
	StatusAborted      Status = "aborted"
)

// Info is what the API says of a sandbox. Fields that it left out are
// zero, or nil where zero has a meaning.
type Info struct {
	Name string
	// Persistent says whether the files outlive a session.
	Persistent bool
	// Region is where sessions are started, for example "iad1", and
	// FailoverRegions where they are instead when that is not possible. Region
	// is empty when the API did not say; [SessionInfo.Region] is where a session
	// really runs.
	Region          string
	FailoverRegions []string
	// NetworkID is the Secure Compute network that it belongs to; empty for
	// none.
	NetworkID string
	// Mounts are the drives that sessions start with, by their paths.
	Mounts map[string]Mount
	// VCPUs and MemoryMB are its size.
	VCPUs, MemoryMB int
	// Architecture is that of its processors, for example "amd64".
	Architecture string
	// Image is the digest-pinned reference of the image that it was made of. A
	// sandbox of an image has a Runtime too, which then means nothing.
	Runtime, Image string
	// Timeout is how long a session runs by default.
	Timeout time.Duration
	// NetworkPolicy is what new sessions start with; nil when not given.
	NetworkPolicy *NetworkPolicy
	// TotalEgressBytes, TotalIngressBytes, TotalActiveCPU and TotalDuration sum
	// up the sessions that have stopped.
	TotalEgressBytes, TotalIngressBytes int64
	TotalActiveCPU, TotalDuration       time.Duration

	CreatedAt, UpdatedAt time.Time
	// ExpiresAt is when the sandbox times out; zero when it does not.
	// [Sandbox.ExpiresAt] also knows about the running session.
	ExpiresAt        time.Time
	CurrentSessionID string
	// CurrentSnapshotID is the snapshot that the next session starts from.
	CurrentSnapshotID string
	Status            Status
	StatusUpdatedAt   time.Time
	// Cwd is the directory that relative paths and commands start in.
	Cwd  string
	Tags map[string]string
	// SnapshotExpiration is how long snapshots are kept by default. Zero means
	// for ever, nil the platform's default.
	SnapshotExpiration *time.Duration
	// KeepLastSnapshots is the retention policy; nil when there is none.
	KeepLastSnapshots *KeepLastSnapshots
}

// KeepLastSnapshots is a retention policy: of a sandbox's snapshots only the
// last Count are kept as they are.
type KeepLastSnapshots struct {
	// Count is how many snapshots are kept.
	Count int
	// Expiration is how long the kept ones live. Zero means for ever, nil the
	// sandbox's default.
	Expiration *time.Duration
	// DeleteEvicted says whether older ones are deleted at once (the API's
	// default, when nil) or expire by the default expiration.
	DeleteEvicted *bool
}

func (k *KeepLastSnapshots) toWire() *wire.KeepLastSnapshots {
	if k == nil {
		return nil
	}
	return &wire.KeepLastSnapshots{Count: k.Count, Expiration: wire.DurationPtr(k.Expiration), DeleteEvicted: clonePtr(k.DeleteEvicted)}
}

func (k *KeepLastSnapshots) check(field string) error {
	if k == nil {
		return nil
	}
	if k.Count < 1 || k.Count > maxKeptSnapshots {
		return invalid(field+".Count", "%d is outside 1 to %d", k.Count, maxKeptSnapshots)
	}
	return checkExpiration(field+".Expiration", k.Expiration)
}

func keepLastSnapshotsFromWire(k *wire.KeepLastSnapshots) *KeepLastSnapshots {
	if k == nil {
		return nil
	}
	return &KeepLastSnapshots{Count: k.Count, Expiration: k.Expiration.Std(), DeleteEvicted: clonePtr(k.DeleteEvicted)}
}

// SessionInfo is what the API says of a session: one run of a sandbox's
// virtual machine. Fields that it left out are zero, or nil where zero has a
// meaning.
type SessionInfo struct {
	ID string
	// SandboxName is the sandbox that it is a run of, and ProjectID that one's
	// project.
	SandboxName, ProjectID string
	// MemoryMB and VCPUs are its size, and Architecture that of its processors.
	MemoryMB, VCPUs int
	Architecture    string
	// Region is where it runs.
	Region, Runtime string
	// Timeout is how long it runs, from StartedAt, before it is stopped.
	Timeout time.Duration
	Status  Status
	// The moments of its life; zero for those that have not come.
	RequestedAt, StartedAt, RequestedStopAt, StoppedAt, AbortedAt, SnapshottedAt, CreatedAt, UpdatedAt time.Time
	// Duration is how long it ran; 0 while it runs.
	Duration time.Duration
	// SourceSnapshotID is the snapshot that it started from.
	SourceSnapshotID string
	// Cwd is the directory that relative paths and commands start in.
	Cwd string
	// InteractivePort is the port of the terminal service; 0 when there is none.
	InteractivePort int
	// NetworkPolicy is in force; nil when not given.
	NetworkPolicy *NetworkPolicy
	// ActiveCPU and NetworkTransfer are known once it has stopped, and zero
	// before.
	ActiveCPU       time.Duration
	NetworkTransfer NetworkTransfer
	// Extra holds fields that this version of the SDK does not know, as JSON.
	Extra map[string]json.RawMessage
}

// NetworkTransfer is what a session received and sent, in bytes.
type NetworkTransfer struct{ Ingress, Egress int64 }

// Route says where an exposed port is reached from outside.
type Route struct {
	// Port is the port inside the sandbox.
	Port int
	// URL is the public address.
	URL string
	// Subdomain is the part of the address that is the sandbox's own.
	Subdomain string
}

// SnapshotStatus is the state of a snapshot. The API may add further values.
type SnapshotStatus string

// The states of a snapshot.
const (
	SnapshotCreated SnapshotStatus = "created"
	SnapshotDeleted SnapshotStatus = "deleted"
	SnapshotFailed  SnapshotStatus = "failed"
)

// SnapshotInfo is what the API says of a snapshot. Fields that it left out are
// zero.
type SnapshotInfo struct {
	ID              string
	SourceSessionID string
	// Architecture is that of the processors that it runs on, for example
	// "amd64".
	Architecture string
	// Region is where it was made, and Regions are all where sandboxes can be
	// started from it.
	Region    string
	Regions   []string
	Status    SnapshotStatus
	SizeBytes int64
	// ExpiresAt is when it is deleted; zero when never.
	ExpiresAt                        time.Time
	CreatedAt, UpdatedAt, LastUsedAt time.Time
	// CreationMethod says what made it: "manual" for [Sandbox.Snapshot],
	// "automatic" for the end of a session.
	CreationMethod string
	// ParentID is the snapshot that its session started from.
	ParentID string
}

// shownTags are the tags that somebody has set.
func shownTags(tags map[string]string) map[string]string {
	shown := maps.Clone(tags)
	if _, marked := shown[creationMark]; marked {
		if delete(shown, creationMark); len(shown) == 0 {
			return nil
		}
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
		Status: Status(w.Status), StatusUpdatedAt: w.StatusUpdatedAt.Time, Cwd: w.Cwd, Tags: shownTags(w.Tags),
		SnapshotExpiration: w.SnapshotExpiration.Std(), KeepLastSnapshots: keepLastSnapshotsFromWire(w.KeepLastSnapshots),
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
		info.NetworkTransfer = NetworkTransfer{Ingress: t.Ingress, Egress: t.Egress}
	}
	return info
}

func snapshotInfo(w *wire.Snapshot) SnapshotInfo {
	regions := slices.Clone(w.Regions)
	if regions == nil && w.Region != "" {
		regions = []string{w.Region}
	}
	return SnapshotInfo{
		ID: w.ID, SourceSessionID: w.SourceSessionID, Architecture: w.Architecture, Region: w.Region, Regions: regions, Status: SnapshotStatus(w.Status),
		SizeBytes: w.SizeBytes, ExpiresAt: w.ExpiresAt.Time, CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time,
		LastUsedAt: w.LastUsedAt.Time, CreationMethod: w.CreationMethod, ParentID: w.ParentID,
	}
}

func routesFromWire(ws []wire.Route) []Route {
	routes := make([]Route, len(ws))
	for i, w := range ws {
		routes[i] = Route{Port: w.Port, URL: w.URL, Subdomain: w.Subdomain}
	}
	return routes
}

// domain finds the public address of a port. A route's own URL is right on
// every deployment of the API; the subdomain is of use only on Vercel's.
func domain(routes []wire.Route, port int) (string, error) {
	i := slices.IndexFunc(routes, func(r wire.Route) bool { return r.Port == port })
	if i < 0 {
		return "", &NoRouteError{Port: port}
	}
	if routes[i].URL != "" {
		return routes[i].URL, nil
	}
	return "https://" + routes[i].Subdomain + ".vercel.run", nil
}

// Format prints what the fields point to, not where it is.
func (i Info) Format(f fmt.State, verb rune) { redact.Struct(f, verb, i) }

// Format prints what the fields point to, not where it is.
func (i SessionInfo) Format(f fmt.State, verb rune) { redact.Struct(f, verb, i) }

// Format prints what the fields point to, not where it is.
func (k KeepLastSnapshots) Format(f fmt.State, verb rune) { redact.Struct(f, verb, k) }

// orZero is what p points to, or the zero value.
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
