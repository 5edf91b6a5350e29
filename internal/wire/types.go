// Package wire holds the JSON types of the Vercel Sandbox API and the decoder
// of its log streams. It is the only place that knows that times and durations
// travel as milliseconds. Fields that the API leaves out stay zero (or nil
// where zero means something); values that it adds later survive decoding.
package wire

import "encoding/json"

// Sandbox is a named sandbox as the API describes it.
type Sandbox struct {
	Name                     string             `json:"name"`
	Persistent               bool               `json:"persistent"`
	Region                   string             `json:"region,omitempty"`
	VCPUs                    int                `json:"vcpus,omitempty"`
	Memory                   int                `json:"memory,omitempty"`
	Runtime                  string             `json:"runtime,omitempty"`
	Image                    string             `json:"image,omitempty"`
	Timeout                  Duration           `json:"timeout,omitzero"`
	NetworkPolicy            *NetworkPolicy     `json:"networkPolicy,omitempty"`
	TotalEgressBytes         *int64             `json:"totalEgressBytes,omitempty"`
	TotalIngressBytes        *int64             `json:"totalIngressBytes,omitempty"`
	TotalActiveCPUDurationMs *Duration          `json:"totalActiveCpuDurationMs,omitempty"`
	TotalDurationMs          *Duration          `json:"totalDurationMs,omitempty"`
	CreatedAt                Time               `json:"createdAt,omitzero"`
	UpdatedAt                Time               `json:"updatedAt,omitzero"`
	ExpiresAt                Time               `json:"expiresAt,omitzero"`
	CurrentSessionID         string             `json:"currentSessionId"`
	CurrentSnapshotID        string             `json:"currentSnapshotId,omitempty"`
	Status                   string             `json:"status"`
	StatusUpdatedAt          Time               `json:"statusUpdatedAt,omitzero"`
	Cwd                      string             `json:"cwd,omitempty"`
	Tags                     map[string]string  `json:"tags,omitempty"`
	SnapshotExpiration       *Duration          `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots        *KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
}

// KeepLastSnapshots is a sandbox's snapshot retention policy.
type KeepLastSnapshots struct {
	Count         int       `json:"count"`
	Expiration    *Duration `json:"expiration,omitempty"`
	DeleteEvicted *bool     `json:"deleteEvicted,omitempty"`
}

// Session is one run of a sandbox's virtual machine.
type Session struct {
	ID                  string           `json:"id"`
	Memory              int              `json:"memory,omitempty"`
	VCPUs               int              `json:"vcpus,omitempty"`
	Region              string           `json:"region,omitempty"`
	Runtime             string           `json:"runtime,omitempty"`
	Timeout             Duration         `json:"timeout,omitzero"`
	Status              string           `json:"status"`
	RequestedAt         Time             `json:"requestedAt,omitzero"`
	StartedAt           Time             `json:"startedAt,omitzero"`
	RequestedStopAt     Time             `json:"requestedStopAt,omitzero"`
	StoppedAt           Time             `json:"stoppedAt,omitzero"`
	AbortedAt           Time             `json:"abortedAt,omitzero"`
	Duration            *Duration        `json:"duration,omitempty"`
	SourceSnapshotID    string           `json:"sourceSnapshotId,omitempty"`
	SnapshottedAt       Time             `json:"snapshottedAt,omitzero"`
	CreatedAt           Time             `json:"createdAt,omitzero"`
	Cwd                 string           `json:"cwd,omitempty"`
	UpdatedAt           Time             `json:"updatedAt,omitzero"`
	InteractivePort     int              `json:"interactivePort,omitempty"`
	NetworkPolicy       *NetworkPolicy   `json:"networkPolicy,omitempty"`
	ActiveCPUDurationMs *Duration        `json:"activeCpuDurationMs,omitempty"`
	NetworkTransfer     *NetworkTransfer `json:"networkTransfer,omitempty"`
	// Extra holds the fields that are not above.
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
}

// Snapshot is a saved state of a sandbox.
type Snapshot struct {
	ID              string `json:"id"`
	SourceSessionID string `json:"sourceSessionId"`
	Region          string `json:"region,omitempty"`
	Status          string `json:"status"`
	SizeBytes       int64  `json:"sizeBytes"`
	ExpiresAt       Time   `json:"expiresAt,omitzero"`
	CreatedAt       Time   `json:"createdAt,omitzero"`
	UpdatedAt       Time   `json:"updatedAt,omitzero"`
	LastUsedAt      Time   `json:"lastUsedAt,omitzero"`
	CreationMethod  string `json:"creationMethod,omitempty"`
	ParentID        string `json:"parentId,omitempty"`
}

// SnapshotTreeNode is a snapshot with those that share its parent. The API
// sends the count as text.
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
	ExitCode   *int      `json:"exitCode"`
	DurationMs *Duration `json:"durationMs,omitempty"`
	StartedAt  Time      `json:"startedAt,omitzero"`
}

// Pagination is the cursor of a listing. Next is nil on the last page.
type Pagination struct {
	Count int     `json:"count"`
	Next  *string `json:"next"`
}

// NetworkPolicy is a network policy as the API answers it. Header values never
// come back, only the names.
type NetworkPolicy struct {
	Mode           string          `json:"mode"`
	AllowedDomains []string        `json:"allowedDomains,omitzero"`
	AllowedCIDRs   []string        `json:"allowedCIDRs,omitzero"`
	DeniedCIDRs    []string        `json:"deniedCIDRs,omitzero"`
	InjectionRules []InjectionRule `json:"injectionRules,omitzero"`
	ForwardRules   []ForwardRule   `json:"forwardRules,omitzero"`
}

// InjectionRule names the headers that are set on requests to a domain.
type InjectionRule struct {
	Domain      string          `json:"domain"`
	HeaderNames []string        `json:"headerNames,omitzero"`
	Match       json.RawMessage `json:"match,omitempty"`
}

// ForwardRule sends requests to a domain through a proxy.
type ForwardRule struct {
	Domain     string          `json:"domain"`
	ForwardURL string          `json:"forwardURL"`
	Match      json.RawMessage `json:"match,omitempty"`
}
