package sandbox

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

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
	// Region is where it runs, for example "iad1".
	Region string
	// VCPUs and MemoryMB are its size.
	VCPUs, MemoryMB int
	// Runtime, for example "node24", and Image, the digest-pinned reference of
	// a container image, exclude each other.
	Runtime, Image string
	// Timeout is how long a session runs by default.
	Timeout time.Duration
	// NetworkPolicy is what new sessions start with; nil when not given.
	NetworkPolicy *NetworkPolicy
	// TotalEgressBytes, TotalIngressBytes, TotalActiveCPU and TotalDuration sum
	// up all sessions. They are nil until the first one has stopped.
	TotalEgressBytes, TotalIngressBytes *int64
	TotalActiveCPU, TotalDuration       *time.Duration

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
	if k.Count < 1 {
		return invalid(field+".Count", "%d is below 1", k.Count)
	}
	return checkOptionalDuration(field+".Expiration", k.Expiration)
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
	// MemoryMB and VCPUs are its size.
	MemoryMB, VCPUs int
	Region, Runtime string
	// Timeout is how long it runs, from StartedAt, before it is stopped.
	Timeout time.Duration
	Status  Status
	// The moments of its life; zero for those that have not come.
	RequestedAt, StartedAt, RequestedStopAt, StoppedAt, AbortedAt, SnapshottedAt, CreatedAt, UpdatedAt time.Time
	// Duration is how long it ran; nil while it runs.
	Duration *time.Duration
	// SourceSnapshotID is the snapshot that it started from.
	SourceSnapshotID string
	// Cwd is the directory that relative paths and commands start in.
	Cwd string
	// InteractivePort is the port of the terminal service; 0 when there is none.
	InteractivePort int
	// NetworkPolicy is in force; nil when not given.
	NetworkPolicy *NetworkPolicy
	// ActiveCPU and NetworkTransfer are known once it has stopped.
	ActiveCPU       *time.Duration
	NetworkTransfer *NetworkTransfer
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
	Region          string
	Status          SnapshotStatus
	SizeBytes       int64
	// ExpiresAt is when it is deleted; zero when never.
	ExpiresAt                        time.Time
	CreatedAt, UpdatedAt, LastUsedAt time.Time
	// CreationMethod says what made it, for example "manual" or "stop".
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
		Name: w.Name, Persistent: w.Persistent, Region: w.Region, VCPUs: w.VCPUs, MemoryMB: w.Memory,
		Runtime: w.Runtime, Image: w.Image, Timeout: time.Duration(w.Timeout),
		NetworkPolicy:    networkPolicyFromWire(w.NetworkPolicy),
		TotalEgressBytes: clonePtr(w.TotalEgressBytes), TotalIngressBytes: clonePtr(w.TotalIngressBytes),
		TotalActiveCPU: w.TotalActiveCPUDurationMs.Std(), TotalDuration: w.TotalDurationMs.Std(),
		CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time, ExpiresAt: w.ExpiresAt.Time,
		CurrentSessionID: w.CurrentSessionID, CurrentSnapshotID: w.CurrentSnapshotID,
		Status: Status(w.Status), StatusUpdatedAt: w.StatusUpdatedAt.Time, Cwd: w.Cwd, Tags: shownTags(w.Tags),
		SnapshotExpiration: w.SnapshotExpiration.Std(), KeepLastSnapshots: keepLastSnapshotsFromWire(w.KeepLastSnapshots),
	}
}

func sessionInfo(w *wire.Session) SessionInfo {
	info := SessionInfo{
		ID: w.ID, MemoryMB: w.Memory, VCPUs: w.VCPUs, Region: w.Region, Runtime: w.Runtime,
		Timeout: time.Duration(w.Timeout), Status: Status(w.Status),
		RequestedAt: w.RequestedAt.Time, StartedAt: w.StartedAt.Time, RequestedStopAt: w.RequestedStopAt.Time,
		StoppedAt: w.StoppedAt.Time, AbortedAt: w.AbortedAt.Time, SnapshottedAt: w.SnapshottedAt.Time,
		CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time, Duration: w.Duration.Std(),
		SourceSnapshotID: w.SourceSnapshotID, Cwd: w.Cwd, InteractivePort: w.InteractivePort,
		NetworkPolicy: networkPolicyFromWire(w.NetworkPolicy), ActiveCPU: w.ActiveCPUDurationMs.Std(),
		Extra: maps.Clone(w.Extra),
	}
	if t := w.NetworkTransfer; t != nil {
		info.NetworkTransfer = &NetworkTransfer{Ingress: t.Ingress, Egress: t.Egress}
	}
	return info
}

func snapshotInfo(w *wire.Snapshot) SnapshotInfo {
	return SnapshotInfo{
		ID: w.ID, SourceSessionID: w.SourceSessionID, Region: w.Region, Status: SnapshotStatus(w.Status),
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

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
