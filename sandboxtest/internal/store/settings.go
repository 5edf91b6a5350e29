package store

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	day = 24 * time.Hour
	// defaultExpiration is how long a snapshot is kept after its last use.
	defaultExpiration = 30 * day
	// ShortExpiration is the default of the newest versions of the API.
	ShortExpiration = 7 * day
)

// Settings are the configuration of a sandbox: create sets them, update changes them and
// fork copies them.
type Settings struct {
	Persistent         bool                    `json:"persistent"`
	VCPUs              int                     `json:"vcpus"`
	Runtime            string                  `json:"runtime,omitempty"`
	Image              string                  `json:"image,omitempty"`
	Architecture       string                  `json:"architecture"`
	Timeout            time.Duration           `json:"timeout"`
	Region             string                  `json:"region"`
	FailoverRegions    []string                `json:"failoverRegions,omitempty"`
	NetworkID          string                  `json:"networkId,omitempty"`
	Mounts             map[string]wire.Mount   `json:"mounts,omitempty"`
	Policy             *wire.NetworkPolicy     `json:"networkPolicy,omitempty"` // nil if never set
	PolicyRequest      json.RawMessage         `json:"policyRequest,omitempty"` // the request that set Policy, with the values of headers
	Env                map[string]string       `json:"env,omitempty"`
	Tags               map[string]string       `json:"tags,omitempty"`
	Ports              []int                   `json:"ports,omitempty"`
	SnapshotExpiration *time.Duration          `json:"snapshotExpiration,omitempty"`
	KeepLast           *wire.KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
}

// clone copies the settings deeply enough that changes to one do not affect the other.
func (c Settings) clone() Settings {
	c.Env, c.Tags, c.Ports = maps.Clone(c.Env), maps.Clone(c.Tags), slices.Clone(c.Ports)
	c.FailoverRegions, c.Mounts = slices.Clone(c.FailoverRegions), maps.Clone(c.Mounts)
	return c
}

// DefaultSettings are the settings of a sandbox that is created without any.
func DefaultSettings() Settings {
	return Settings{
		Persistent: true, VCPUs: 2, Timeout: 5 * time.Minute, Region: defaultRegion, Architecture: Architecture,
	}
}

// ShortenRetention sets the retention defaults of the newest versions of the API.
func (c *Settings) ShortenRetention() {
	c.SnapshotExpiration = cmp.Or(c.SnapshotExpiration, new(ShortExpiration))
	if c.KeepLast == nil && c.Persistent {
		c.KeepLast = &wire.KeepLastSnapshots{Count: 1, DeleteEvicted: new(true)}
	}
}
