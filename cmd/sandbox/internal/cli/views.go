package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/wire"
)

// The documents of --json use the API's names, times in RFC 3339, sizes in bytes (memory
// in megabytes) and durations in milliseconds.

type sandboxView struct {
	Name               string               `json:"name"`
	Status             sandbox.Status       `json:"status"`
	Region             string               `json:"region,omitempty"`
	FailoverRegions    []string             `json:"failoverRegions,omitempty"`
	NetworkID          string               `json:"networkId,omitempty"`
	VCPUs              int                  `json:"vcpus"`
	Memory             int                  `json:"memory"`
	Runtime            string               `json:"runtime,omitempty"`
	Architecture       string               `json:"architecture,omitempty"`
	Image              string               `json:"image,omitempty"`
	Persistent         bool                 `json:"persistent"`
	Timeout            int64                `json:"timeout"`
	CreatedAt          *time.Time           `json:"createdAt"`
	UpdatedAt          *time.Time           `json:"updatedAt,omitempty"`
	StatusUpdatedAt    *time.Time           `json:"statusUpdatedAt,omitempty"`
	ExpiresAt          *time.Time           `json:"expiresAt"`
	CurrentSessionID   string               `json:"currentSessionId,omitempty"`
	CurrentSnapshotID  string               `json:"currentSnapshotId,omitempty"`
	Cwd                string               `json:"cwd,omitempty"`
	Tags               map[string]string    `json:"tags"`
	Mounts             map[string]mountView `json:"mounts,omitempty"`
	Routes             []routeView          `json:"routes,omitempty"`
	NetworkPolicy      *policyView          `json:"networkPolicy,omitempty"`
	SnapshotExpiration *int64               `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots  *keepView            `json:"keepLastSnapshots,omitempty"`
	TotalActiveCPU     int64                `json:"totalActiveCpuDurationMs"`
	TotalDuration      int64                `json:"totalDurationMs"`
	TotalEgress        int64                `json:"totalEgressBytes"`
	TotalIngress       int64                `json:"totalIngressBytes"`
}

type mountView struct {
	Drive string `json:"drive"`
	Mode  string `json:"mode"`
}

type routeView struct {
	Port int    `json:"port"`
	URL  string `json:"url"`
}

type keepView struct {
	Count         int    `json:"count"`
	Expiration    *int64 `json:"expiration,omitempty"`
	DeleteEvicted *bool  `json:"deleteEvicted,omitempty"`
}

// customMode is the API's mode for policies with lists or rules.
const customMode = "custom"

// policyView is a network policy, always as an object. In custom mode each domain has
// rules, which may be empty.
type policyView struct {
	Mode       string                          `json:"mode"`
	Allow      map[string][]sandbox.PolicyRule `json:"allow,omitempty"`
	Subnets    *subnetsView                    `json:"subnets,omitempty"`
	Incomplete bool                            `json:"incomplete,omitempty"`
}

type subnetsView struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

func viewPolicy(p *sandbox.NetworkPolicy) *policyView {
	if p == nil {
		return nil
	}
	v := &policyView{Mode: cmp.Or(string(p.Mode), customMode), Allow: maps.Clone(p.Rules)}
	for _, domain := range p.Allow {
		if v.Allow == nil {
			v.Allow = map[string][]sandbox.PolicyRule{}
		}
		if v.Allow[domain] == nil {
			v.Allow[domain] = []sandbox.PolicyRule{}
		}
	}
	if p.AllowSubnets != nil || p.DenySubnets != nil {
		v.Subnets = &subnetsView{p.AllowSubnets, p.DenySubnets}
	}
	if text, err := json.Marshal(p); err == nil {
		_ = json.Unmarshal(text, &struct{ Incomplete *bool }{&v.Incomplete}) // fails for a policy with only a mode, which is a JSON string
	}
	return v
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// expirationMillis returns nil for the default, and zero for snapshots that never expire.
func expirationMillis(d time.Duration) *int64 {
	switch d {
	case 0:
		return nil
	case sandbox.Forever:
		d = 0
	}
	return new(d.Milliseconds())
}

func viewSandbox(i sandbox.Info) sandboxView {
	v := sandboxView{
		Name: i.Name, Status: i.Status, Region: i.Region, VCPUs: i.VCPUs, Memory: i.MemoryMB, Runtime: i.Runtime, Image: i.Image,
		Persistent: i.Persistent, Timeout: i.Timeout.Milliseconds(), CreatedAt: timeOrNil(i.CreatedAt), UpdatedAt: timeOrNil(i.UpdatedAt),
		StatusUpdatedAt: timeOrNil(i.StatusUpdatedAt), ExpiresAt: timeOrNil(i.ExpiresAt), CurrentSessionID: i.CurrentSessionID,
		CurrentSnapshotID: i.CurrentSnapshotID, Cwd: i.Cwd, Tags: i.Tags, NetworkPolicy: viewPolicy(i.NetworkPolicy),
		SnapshotExpiration: expirationMillis(i.SnapshotExpiration), TotalActiveCPU: i.TotalActiveCPU.Milliseconds(), TotalDuration: i.TotalDuration.Milliseconds(),
		TotalEgress: i.TotalEgressBytes, TotalIngress: i.TotalIngressBytes,
		FailoverRegions: i.FailoverRegions, NetworkID: i.NetworkID, Mounts: viewMounts(i.Mounts), Architecture: i.Architecture,
	}
	if v.Tags == nil {
		v.Tags = map[string]string{}
	}
	if k := i.KeepLastSnapshots; k != nil {
		v.KeepLastSnapshots = &keepView{k.Count, expirationMillis(k.Expiration), new(!k.KeepEvicted)}
	}
	return v
}

func viewMounts(mounts map[string]sandbox.Mount) map[string]mountView {
	v := map[string]mountView{}
	for path, m := range mounts {
		v[path] = mountView{m.Drive, string(m.Mode)}
	}
	return v
}

// viewHandle returns the view of a sandbox. Unlike viewSandbox, it knows the routes, the
// current status and the end of the session.
func viewHandle(sb *sandbox.Sandbox) sandboxView {
	v := viewSandbox(sb.Info())
	v.ExpiresAt = timeOrNil(sb.ExpiresAt())
	v.Status = sb.Status()
	v.Routes = mapped(sb.Routes(), func(r sandbox.Route) routeView { return routeView{r.Port, r.URL} })
	return v
}

type sessionView struct {
	ID               string               `json:"id"`
	Status           sandbox.Status       `json:"status"`
	Region           string               `json:"region,omitempty"`
	VCPUs            int                  `json:"vcpus"`
	Memory           int                  `json:"memory"`
	Runtime          string               `json:"runtime,omitempty"`
	Architecture     string               `json:"architecture,omitempty"`
	Timeout          int64                `json:"timeout"`
	CreatedAt        *time.Time           `json:"createdAt"`
	StartedAt        *time.Time           `json:"startedAt,omitempty"`
	StoppedAt        *time.Time           `json:"stoppedAt,omitempty"`
	Duration         int64                `json:"duration,omitempty"`
	SourceSnapshotID string               `json:"sourceSnapshotId,omitempty"`
	Cwd              string               `json:"cwd,omitempty"`
	ActiveCPU        int64                `json:"activeCpuDurationMs"`
	NetworkTransfer  wire.NetworkTransfer `json:"networkTransfer"`
}

func viewSession(s sandbox.SessionInfo) sessionView {
	return sessionView{
		ID: s.ID, Status: s.Status, Region: s.Region, VCPUs: s.VCPUs, Memory: s.MemoryMB, Runtime: s.Runtime,
		Timeout: s.Timeout.Milliseconds(), CreatedAt: timeOrNil(s.CreatedAt), StartedAt: timeOrNil(s.StartedAt), StoppedAt: timeOrNil(s.StoppedAt),
		Duration: s.Duration.Milliseconds(), SourceSnapshotID: s.SourceSnapshotID, Cwd: s.Cwd, ActiveCPU: s.ActiveCPU.Milliseconds(),
		NetworkTransfer: wire.NetworkTransfer{Ingress: s.IngressBytes, Egress: s.EgressBytes}, Architecture: s.Architecture,
	}
}

type snapshotView struct {
	ID              string         `json:"id"`
	Status          sandbox.Status `json:"status"`
	Architecture    string         `json:"architecture,omitempty"`
	Regions         []string       `json:"regions"`
	SizeBytes       int64          `json:"sizeBytes"`
	CreatedAt       *time.Time     `json:"createdAt"`
	ExpiresAt       *time.Time     `json:"expiresAt"`
	LastUsedAt      *time.Time     `json:"lastUsedAt,omitempty"`
	SourceSessionID string         `json:"sourceSessionId,omitempty"`
	ParentID        string         `json:"parentId,omitempty"`
	CreationMethod  string         `json:"creationMethod,omitempty"`
}

func viewSnapshot(s sandbox.SnapshotInfo) snapshotView {
	return snapshotView{
		ID: s.ID, Status: s.Status, Regions: regionsOf(s), SizeBytes: s.SizeBytes, CreatedAt: timeOrNil(s.CreatedAt),
		ExpiresAt: timeOrNil(s.ExpiresAt), LastUsedAt: timeOrNil(s.LastUsedAt), SourceSessionID: s.SourceSessionID, ParentID: s.ParentID,
		CreationMethod: s.CreationMethod, Architecture: s.Architecture,
	}
}

// regionsOf returns the regions of a snapshot.
func regionsOf(s sandbox.SnapshotInfo) []string {
	if len(s.Regions) > 0 {
		return s.Regions
	}
	return []string{s.Region}
}

type commandView struct {
	ID        string     `json:"id"`
	SessionID string     `json:"sessionId"`
	Name      string     `json:"name"`
	Args      []string   `json:"args"`
	Cwd       string     `json:"cwd,omitempty"`
	StartedAt *time.Time `json:"startedAt"`
	ExitCode  *int       `json:"exitCode"`
	Duration  int64      `json:"durationMs,omitempty"`
}

func viewCommand(c *sandbox.Command) commandView {
	v := commandView{ID: c.ID(), SessionID: c.SessionID(), Name: c.Name(), Args: c.Args(), Cwd: c.Cwd(), StartedAt: timeOrNil(c.StartedAt())}
	if code, ended := c.ExitStatus(); ended {
		v.ExitCode = &code
	}
	if d, known := c.Elapsed(); known {
		v.Duration = d.Milliseconds()
	}
	return v
}

// copyView describes a finished copy.
type copyView struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// doneView says whether the command changed something.
type doneView struct {
	Done bool `json:"done"`
}

func mountsText(mounts map[string]mountView) string {
	if len(mounts) == 0 {
		return "-"
	}
	return strings.Join(mapped(slices.Sorted(maps.Keys(mounts)), func(path string) string {
		return fmt.Sprintf("%s:%s:%s", mounts[path].Drive, path, mounts[path].Mode)
	}), ", ")
}
