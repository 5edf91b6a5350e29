package sandboxtest

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// runtimes are the service's runtimes.
var runtimes = []string{"node22", "node24", "node26", "python3.13"}

// namePattern is the pattern of names and IDs.
const namePattern = "^[a-zA-Z0-9_-]+$"

// sandboxParams are the fields that create, fork and update share.
type sandboxParams struct {
	Ports              *[]int                           `json:"ports"`
	Timeout            *wire.Duration                   `json:"timeout"`
	Resources          *resources                       `json:"resources"`
	Image              string                           `json:"image"`
	Persistent         *bool                            `json:"persistent"`
	NetworkPolicy      nullable[json.RawMessage]        `json:"networkPolicy"`
	Env                map[string]string                `json:"env"`
	Tags               *map[string]string               `json:"tags"`
	SnapshotExpiration *wire.Duration                   `json:"snapshotExpiration"`
	KeepLastSnapshots  nullable[wire.KeepLastSnapshots] `json:"keepLastSnapshots"`
	Region             string                           `json:"region"`
	FailoverRegions    *[]string                        `json:"failoverRegions"`
	NetworkID          nullable[string]                 `json:"networkId"`
	Mounts             *map[string]mountParam           `json:"mounts"`
}

type resources struct {
	VCPUs  *int `json:"vcpus"`
	Memory *int `json:"memory"`
}

type createParams struct {
	sandboxParams
	ProjectID string  `json:"projectId"`
	Name      string  `json:"name"`
	Runtime   string  `json:"runtime"`
	Source    *source `json:"source"`
	// Architecture is reported for the sandbox. Its programs are those of this machine.
	Architecture string `json:"architecture"`

	Credentials *credentialParams `json:"credentials"`
}

// credentialParams name credentials of the team, which only create accepts. They have no
// effect here.
type credentialParams struct {
	NPM bool `json:"npm"`
}

type forkParams struct {
	sandboxParams
	ProjectID string `json:"projectId"`
	Name      string `json:"name"`
}

type updateParams struct {
	sandboxParams
	Runtime           string `json:"runtime"`
	CurrentSnapshotID string `json:"currentSnapshotId"`
}

func (p *updateParams) apply(st *store.Store, set *store.Settings) error {
	if err := p.sandboxParams.apply(st, set); err != nil {
		return err
	}
	if p.NetworkPolicy.Given { // now, so that no later session fails for it
		if err := st.Enforceable(set.Policy.Mode); err != nil {
			return err
		}
	}
	return setRuntime(set, p.Runtime)
}

// applyArchitecture sets the architecture: the requested one, or else the source's.
func (p *createParams) applyArchitecture(version int, set *store.Settings, from *store.Snapshot) error {
	switch {
	case p.Architecture != "" && p.Architecture != store.Architecture && p.Architecture != store.Arm64:
		return reply.Invalid("`architecture` should be equal to one of the allowed values \"%s, %s\".", store.Architecture, store.Arm64)
	case from != nil && p.Architecture != "" && p.Architecture != from.System().Architecture:
		return reply.Invalid("`architecture` must match the source, which is %s", from.System().Architecture)
	case p.Architecture == store.Arm64 && (version < 3 || p.Runtime != ""):
		return reply.Invalid("`architecture` %s requires version 3 or 4 of the API, and no `runtime`", store.Arm64)
	case from != nil:
		set.Architecture = from.System().Architecture
	default:
		set.Architecture = cmp.Or(p.Architecture, store.Architecture)
	}
	return nil
}

// source provides the initial files of a sandbox.
type source struct {
	Type       string `json:"type"`
	URL        string `json:"url"`
	Depth      *int   `json:"depth"`
	Revision   string `json:"revision"`
	Username   string `json:"username"`
	Password   string `json:"password"`
	SnapshotID string `json:"snapshotId"`
}

// checkName returns an error that says what is wrong with a name.
func checkName(name string) error {
	switch {
	case len(name) > wire.MaxName:
		return reply.Invalid("`name` should NOT be longer than %d characters.", wire.MaxName)
	case !wire.PlainName(name, wire.MaxName):
		return reply.Invalid("`name` should match pattern \"%s\".", namePattern)
	case !wire.SandboxName(name):
		return reply.Invalid("`name` is reserved")
	}
	return nil
}

// apply checks the parameters and sets the given ones in set.
func (p *sandboxParams) apply(st *store.Store, set *store.Settings) error {
	if p.Image != "" {
		image, err := st.PinImage(p.Image)
		if err != nil {
			return err
		}
		set.Image, set.Runtime = image, ""
	}
	for _, part := range []func(*store.Settings) error{p.applyMachine, p.applyRegionAndDrives, p.applyNetwork, p.applyEnvAndTags, p.applyRetention} {
		if err := part(set); err != nil {
			return err
		}
	}
	return nil
}

func (p *sandboxParams) applyMachine(set *store.Settings) error {
	if p.Timeout != nil {
		switch t := time.Duration(*p.Timeout); {
		case t < wire.MinTimeout:
			return reply.Invalid("`timeout` should be >= %d.", wire.MinTimeout.Milliseconds())
		case t > wire.MaxTimeout:
			return reply.Invalid("`timeout` should be <= %dd", wire.MaxTimeout/(24*time.Hour))
		default:
			set.Timeout = t
		}
	}
	if p.Persistent != nil {
		set.Persistent = *p.Persistent
	}
	if p.Resources != nil {
		return p.Resources.apply(set)
	}
	return nil
}

// applyRegionAndDrives sets the region and the drives.
func (p *sandboxParams) applyRegionAndDrives(set *store.Settings) error {
	if p.Region != "" {
		if err := store.CheckRegion("region", p.Region); err != nil {
			return err
		}
		set.Region = p.Region
	}
	if p.FailoverRegions != nil {
		set.FailoverRegions = slices.Clone(*p.FailoverRegions)
	}
	if p.Mounts != nil {
		mounts, err := checkMountParams(*p.Mounts)
		if err != nil {
			return err
		}
		set.Mounts = mounts
	}
	return nil
}

func (p *sandboxParams) applyNetwork(set *store.Settings) error {
	if p.Ports != nil {
		if err := checkPorts(*p.Ports); err != nil {
			return err
		}
		set.Ports = slices.Clone(*p.Ports)
	}
	if p.NetworkID.Null || p.NetworkID.Value != "" {
		set.NetworkID = p.NetworkID.Value
	}
	if p.NetworkPolicy.Given {
		policy, err := parsePolicy(p.NetworkPolicy.Value)
		if err != nil {
			return err
		}
		set.Policy, set.PolicyRequest = policy, p.NetworkPolicy.Value
	}
	return nil
}

// applyEnvAndTags sets the environment and the tags.
func (p *sandboxParams) applyEnvAndTags(set *store.Settings) error {
	if p.Env != nil {
		if err := checkEnv(p.Env); err != nil {
			return err
		}
		if data, err := reply.Encode(p.Env); err != nil || len(data) > wire.MaxEnv {
			return reply.BadRequest("env payload too large (%d bytes; max %d)", len(data), wire.MaxEnv)
		}
		set.Env = maps.Clone(p.Env)
	}
	if p.Tags != nil {
		if err := checkTags(*p.Tags); err != nil {
			return err
		}
		set.Tags = maps.Clone(*p.Tags)
	}
	return nil
}

// applyRetention sets how many snapshots are kept, and for how long.
func (p *sandboxParams) applyRetention(set *store.Settings) error {
	if p.SnapshotExpiration != nil {
		d := time.Duration(*p.SnapshotExpiration)
		if err := checkExpiration("snapshotExpiration", d); err != nil {
			return err
		}
		set.SnapshotExpiration = &d
	}
	if p.KeepLastSnapshots.Null {
		set.KeepLast = nil
	}
	if !p.KeepLastSnapshots.Given {
		return nil
	}
	k := &p.KeepLastSnapshots.Value
	if k.Count < 1 || k.Count > wire.MaxKeptSnapshots {
		return reply.Invalid("`keepLastSnapshots.count` should be between 1 and %d.", wire.MaxKeptSnapshots)
	}
	if k.Expiration != nil {
		if err := checkExpiration("keepLastSnapshots.expiration", time.Duration(*k.Expiration)); err != nil {
			return err
		}
	}
	k.DeleteEvicted = cmp.Or(k.DeleteEvicted, new(true))
	set.KeepLast = k
	return nil
}

// shortenRetention sets the retention defaults of the newest versions of the API, except
// those that the request disables with null.
func (p *sandboxParams) shortenRetention(set *store.Settings) {
	set.ShortenRetention()
	if p.KeepLastSnapshots.Null {
		set.KeepLast = nil
	}
}

func (r *resources) apply(set *store.Settings) error {
	if r.VCPUs == nil {
		return reply.Invalid("`resources` missing required property `vcpus`.")
	}
	n := *r.VCPUs
	if !wire.VCPUs(n) || n > wire.MaxVCPUs {
		return reply.Invalid("`resources.vcpus` should be 1 or an even number up to %d.", wire.MaxVCPUs)
	}
	if r.Memory != nil && *r.Memory != n*wire.MemoryPerVCPU {
		return reply.Invalid("`resources.memory` should be %d for %d vCPUs.", n*wire.MemoryPerVCPU, n)
	}
	set.VCPUs = n
	return nil
}

func checkPorts(ports []int) error {
	if len(ports) > wire.MaxPorts {
		return reply.Invalid("`ports` should NOT have more than %d items.", wire.MaxPorts)
	}
	seen := make(map[int]bool)
	for _, port := range ports {
		switch {
		case port < wire.MinPort:
			return reply.Invalid("`ports` should be >= %d.", wire.MinPort)
		case port > wire.MaxPort:
			return reply.Invalid("`ports` should be <= %d.", wire.MaxPort)
		case port == wire.ReservedPort:
			return reply.Fail(400, "reserved_port", "The port %d is reserved.", port)
		case seen[port]:
			return reply.Invalid("`ports` should NOT have duplicate items.")
		}
		seen[port] = true
	}
	return nil
}

func checkEnv(env map[string]string) error {
	if err := wire.CheckEnv(env); err != nil {
		return reply.Invalid("`env`: %v", err)
	}
	return nil
}

func checkTags(tags map[string]string) error {
	if len(tags) > wire.MaxTags {
		return reply.Invalid("`tags` should NOT have more than %d properties.", wire.MaxTags)
	}
	for k, v := range tags {
		if k == "" || utf8.RuneCountInString(k) > wire.MaxTagKey || utf8.RuneCountInString(v) > wire.MaxTagValue {
			return reply.Invalid("`tags` should have keys of 1 to %d characters and values of at most %d.", wire.MaxTagKey, wire.MaxTagValue)
		}
	}
	return nil
}

func checkExpiration(field string, d time.Duration) error {
	if d != 0 && d < wire.MinExpiration {
		return reply.BadRequest("`%s` must be 0 (no expiration) or >= %d ms (1 day).", field, wire.MinExpiration.Milliseconds())
	}
	return nil
}

// setRuntime sets the runtime if the request names one.
func setRuntime(set *store.Settings, runtime string) error {
	if runtime != "" && !slices.Contains(runtimes, runtime) {
		return reply.Invalid("`runtime` should be equal to one of the allowed values \"%s\".", strings.Join(runtimes, ", "))
	}
	set.Runtime = cmp.Or(runtime, set.Runtime)
	return nil
}
