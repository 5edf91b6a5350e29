// Package wire has the JSON types of the Vercel Sandbox API and the decoder of
// its log streams. It is the only place that knows that times and durations are
// encoded as milliseconds. Fields that the API omits are zero (or nil where
// zero has a meaning). Session keeps unknown fields.
package wire

import (
	"encoding/json"
	"errors"
)

// Sandbox is a named sandbox as described by the API. The fields are in the
// order in which the API writes them.
type Sandbox struct {
	Name                     string             `json:"name"`
	CurrentSnapshotID        string             `json:"currentSnapshotId,omitempty"`
	CurrentSessionID         string             `json:"currentSessionId"`
	Status                   string             `json:"status"`
	StatusUpdatedAt          Time               `json:"statusUpdatedAt,omitzero"`
	Persistent               bool               `json:"persistent"`
	Region                   string             `json:"region,omitempty"`
	FailoverRegions          []string           `json:"failoverRegions,omitzero"`
	VCPUs                    int                `json:"vcpus,omitempty"`
	Memory                   int                `json:"memory,omitempty"`
	Runtime                  string             `json:"runtime,omitempty"`
	Architecture             string             `json:"architecture,omitempty"`
	Image                    string             `json:"image,omitempty"`
	Timeout                  Duration           `json:"timeout,omitzero"`
	NetworkPolicy            *NetworkPolicy     `json:"networkPolicy,omitempty"`
	NetworkID                string             `json:"networkId,omitempty"`
	TotalEgressBytes         *int64             `json:"totalEgressBytes,omitempty"`
	TotalIngressBytes        *int64             `json:"totalIngressBytes,omitempty"`
	TotalActiveCPUDurationMs *Duration          `json:"totalActiveCpuDurationMs,omitempty"`
	TotalDurationMs          *Duration          `json:"totalDurationMs,omitempty"`
	Cwd                      string             `json:"cwd,omitempty"`
	Mounts                   map[string]Mount   `json:"mounts,omitempty"`
	Tags                     map[string]string  `json:"tags,omitempty"`
	SnapshotExpiration       *Duration          `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots        *KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
	CreatedAt                Time               `json:"createdAt,omitzero"`
	UpdatedAt                Time               `json:"updatedAt,omitzero"`
	ExpiresAt                Time               `json:"expiresAt,omitzero"`
}

// Mount is a drive at a path of a sandbox. The mode is "read-write" or
// "snapshot".
type Mount struct {
	Drive string `json:"drive"`
	Mode  string `json:"mode,omitempty"`
}

// UnmarshalJSON also accepts the modes of older responses: "read-only" for a
// snapshot, and none for read-write.
func (m *Mount) UnmarshalJSON(data []byte) error {
	type plain Mount
	if err := json.Unmarshal(data, (*plain)(m)); err != nil {
		return err
	}
	switch m.Mode {
	case "":
		m.Mode = "read-write"
	case "read-only":
		m.Mode = "snapshot"
	}
	return nil
}

// Drive is a disk that outlives sandboxes.
type Drive struct {
	ID                 string `json:"id"`
	Name               string `json:"name"`
	ProjectID          string `json:"projectId"`
	Region             string `json:"region,omitempty"`
	MaxSizeBytes       int64  `json:"maxSizeBytes"`
	CurrentSessionID   string `json:"currentSessionId,omitempty"`
	CurrentSandboxName string `json:"currentSandboxName,omitempty"`
	ParentDriveID      string `json:"parentDriveId,omitempty"`
	RootDriveID        string `json:"rootDriveId,omitempty"`
	V0                 bool   `json:"v0,omitempty"`
	CreatedAt          Time   `json:"createdAt,omitzero"`
	UpdatedAt          Time   `json:"updatedAt,omitzero"`
}

// KeepLastSnapshots is a sandbox's retention policy of snapshots.
type KeepLastSnapshots struct {
	Count         int       `json:"count"`
	Expiration    *Duration `json:"expiration,omitempty"`
	DeleteEvicted *bool     `json:"deleteEvicted,omitempty"`
}

// Session is one run of a sandbox's virtual machine. The fields are in the
// order in which the API writes them.
type Session struct {
	ID                  string           `json:"id"`
	Runtime             string           `json:"runtime,omitempty"`
	Architecture        string           `json:"architecture,omitempty"`
	RequestedAt         Time             `json:"requestedAt,omitzero"`
	StartedAt           Time             `json:"startedAt,omitzero"`
	RequestedStopAt     Time             `json:"requestedStopAt,omitzero"`
	StoppedAt           Time             `json:"stoppedAt,omitzero"`
	AbortedAt           Time             `json:"abortedAt,omitzero"`
	Status              string           `json:"status"`
	Duration            *Duration        `json:"duration,omitempty"`
	VCPUs               int              `json:"vcpus,omitempty"`
	Memory              int              `json:"memory,omitempty"`
	Timeout             Duration         `json:"timeout,omitzero"`
	Region              string           `json:"region,omitempty"`
	Cwd                 string           `json:"cwd,omitempty"`
	SourceSnapshotID    string           `json:"sourceSnapshotId,omitempty"`
	SnapshottedAt       Time             `json:"snapshottedAt,omitzero"`
	CreatedAt           Time             `json:"createdAt,omitzero"`
	UpdatedAt           Time             `json:"updatedAt,omitzero"`
	InteractivePort     int              `json:"interactivePort,omitempty"`
	NetworkPolicy       *NetworkPolicy   `json:"networkPolicy,omitempty"`
	ActiveCPUDurationMs *Duration        `json:"activeCpuDurationMs,omitempty"`
	NetworkTransfer     *NetworkTransfer `json:"networkTransfer,omitempty"`
	SourceSandboxName   string           `json:"sourceSandboxName,omitempty"`
	ProjectID           string           `json:"projectId,omitempty"`
	// Extra holds unknown fields.
	Extra map[string]json.RawMessage `json:"-"`
}

// NetworkTransfer is what a session sent and received, in bytes.
type NetworkTransfer struct {
	Ingress int64 `json:"ingress"`
	Egress  int64 `json:"egress"`
}

// Route maps an exposed port to its public address.
type Route struct {
	URL       string `json:"url,omitempty"`
	Subdomain string `json:"subdomain"`
	Port      int    `json:"port"`
	System    bool   `json:"system,omitempty"`
}

// Snapshot is a saved state of a sandbox.
type Snapshot struct {
	ID              string   `json:"id"`
	SourceSessionID string   `json:"sourceSessionId"`
	Architecture    string   `json:"architecture,omitempty"`
	Region          string   `json:"region,omitempty"`
	Regions         []string `json:"regions,omitzero"`
	Status          string   `json:"status"`
	SizeBytes       int64    `json:"sizeBytes"`
	ExpiresAt       Time     `json:"expiresAt,omitzero"`
	CreatedAt       Time     `json:"createdAt,omitzero"`
	UpdatedAt       Time     `json:"updatedAt,omitzero"`
	LastUsedAt      Time     `json:"lastUsedAt,omitzero"`
	CreationMethod  string   `json:"creationMethod,omitempty"`
	ParentID        string   `json:"parentId,omitempty"`
}

// SnapshotTreeNode is a snapshot with those that share its parent. The API
// sends the count as a string.
type SnapshotTreeNode struct {
	Snapshot Snapshot   `json:"snapshot"`
	Siblings []Snapshot `json:"siblings"`
	Count    string     `json:"count"`
}

// Command is a process in a session. ExitCode is nil while it runs.
type Command struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Args       []string  `json:"args"`
	Cwd        string    `json:"cwd"`
	SessionID  string    `json:"sessionId"`
	StartedAt  Time      `json:"startedAt,omitzero"`
	ExitCode   *int      `json:"exitCode"`
	DurationMs *Duration `json:"durationMs,omitempty"`
}

// Pagination is the cursor of a listing. Next is nil on the last page.
type Pagination struct {
	Count int     `json:"count"`
	Next  *string `json:"next"`
	// Complete is set by decoding.
	Complete bool `json:"-"`
}

// UnmarshalJSON refuses a pagination without a next, which would make one page look
// like the last.
func (p *Pagination) UnmarshalJSON(data []byte) error {
	var all struct {
		Count int
		Next  json.RawMessage
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	if all.Next == nil {
		return errors.New("it has no pagination.next")
	}
	*p = Pagination{Count: all.Count, Complete: true}
	return json.Unmarshal(all.Next, &p.Next)
}
