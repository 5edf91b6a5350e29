package sandbox

import (
	"maps"
	"reflect"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// body is the body of a request. It contains the values of Env and header rules, so it is
// never logged or included in an error.
type body map[string]any

// settings builds the body of a request from the options that are set.
type settings struct {
	body body
	// fields maps names in the body to options.
	fields map[string]string
	err    error // the first error
}

func newSettings() *settings {
	return &settings{body: body{}, fields: map[string]string{"projectId": "the client"}}
}

// add adds an option to the body, unless it is zero. An empty slice or map that is not
// nil is sent. encode checks the value and converts it. Its errors name the field.
func add[T, W any](s *settings, field, name string, value T, encode func(field string, value T) (W, error)) {
	s.fields[name] = field
	if s.err != nil || reflect.ValueOf(&value).Elem().IsZero() {
		return
	}
	sent, err := encode(field, value)
	if err != nil {
		s.err = err
		return
	}
	s.body[name] = sent
}

// plain sends a value as it is.
func plain[T any](_ string, value T) (T, error) { return value, nil }

// checked sends a value as it is, if check accepts it.
func checked[T any](check func(field string, value T) error) func(string, T) (T, error) {
	return func(field string, value T) (T, error) { return value, check(field, value) }
}

// finish adds the parameters for which the options have no fields.
func (s *settings) finish(extra map[string]any) (body, error) {
	if s.err != nil {
		return nil, s.err
	}
	if err := checkExtra("Extra", extra, s.fields); err != nil {
		return nil, err
	}
	maps.Copy(s.body, extra)
	return s.body, nil
}

func (o *CreateOptions) body() (body, error) {
	if o.Runtime != "" && o.Image != "" {
		return nil, invalid("Image", "can't be combined with Runtime")
	}
	s := newSettings()
	add(s, "Name", "name", o.Name, checked(checkNewName))
	add(s, "Source", "source", o.Source, sourceToWire)
	add(s, "Ports", "ports", o.Ports, checked(checkPorts))
	add(s, "Timeout", "timeout", o.Timeout, timeoutToWire)
	add(s, "VCPUs", "resources", o.VCPUs, sizeToWire)
	add(s, "Image", "image", o.Image, plain)
	add(s, "Runtime", "runtime", o.Runtime, plain)
	add(s, "Architecture", "architecture", o.Architecture, plain)
	add(s, "Region", "region", o.Region, plain)
	add(s, "FailoverRegions", "failoverRegions", o.FailoverRegions, plain)
	add(s, "NetworkID", "networkId", o.NetworkID, plain)
	add(s, "Mounts", "mounts", o.Mounts, mountsToWire)
	add(s, "Credentials", "credentials", o.Credentials, credentialsToWire)
	add(s, "NetworkPolicy", "networkPolicy", o.NetworkPolicy, policyToWire)
	add(s, "Env", "env", o.Env, envToWire)
	add(s, "Tags", "tags", o.Tags, checked(checkTags))
	add(s, "Ephemeral", "persistent", o.Ephemeral, opposite)
	add(s, "SnapshotExpiration", "snapshotExpiration", o.SnapshotExpiration, snapshotExpirationToWire)
	add(s, "KeepLastSnapshots", "keepLastSnapshots", o.KeepLastSnapshots, retentionToWire)
	return s.finish(o.Extra)
}

func (o *ForkOptions) body() (body, error) {
	s := newSettings()
	add(s, "Name", "name", o.Name, checked(checkNewName))
	add(s, "Ports", "ports", o.Ports, checked(checkPorts))
	add(s, "Timeout", "timeout", o.Timeout, timeoutToWire)
	add(s, "VCPUs", "resources", o.VCPUs, sizeToWire)
	add(s, "Image", "image", o.Image, plain)
	add(s, "Region", "region", o.Region, plain)
	add(s, "FailoverRegions", "failoverRegions", o.FailoverRegions, plain)
	add(s, "NetworkID", "networkId", o.NetworkID, plain)
	add(s, "Mounts", "mounts", o.Mounts, mountsToWire)
	add(s, "NetworkPolicy", "networkPolicy", o.NetworkPolicy, policyToWire)
	add(s, "Env", "env", o.Env, envToWire)
	add(s, "Tags", "tags", o.Tags, checked(checkTags))
	add(s, "Persistent", "persistent", o.Persistent, plain)
	add(s, "SnapshotExpiration", "snapshotExpiration", o.SnapshotExpiration, snapshotExpirationToWire)
	add(s, "KeepLastSnapshots", "keepLastSnapshots", o.KeepLastSnapshots, retentionToWire)
	return s.finish(o.Extra)
}

func (o *UpdateOptions) body() (body, error) {
	s := newSettings()
	add(s, "Persistent", "persistent", o.Persistent, plain)
	add(s, "VCPUs", "resources", o.VCPUs, newSizeToWire)
	add(s, "Timeout", "timeout", o.Timeout, timeoutToWire)
	add(s, "NetworkPolicy", "networkPolicy", o.NetworkPolicy, policyToWire)
	add(s, "Env", "env", o.Env, envToWire)
	add(s, "Tags", "tags", o.Tags, checked(checkTags))
	add(s, "Ports", "ports", o.Ports, checked(checkPorts))
	add(s, "Region", "region", o.Region, plain)
	add(s, "FailoverRegions", "failoverRegions", o.FailoverRegions, plain)
	add(s, "Mounts", "mounts", o.Mounts, mountsToWire)
	add(s, "NetworkID", "networkId", o.NetworkID, networkToWire)
	add(s, "SnapshotExpiration", "snapshotExpiration", o.SnapshotExpiration, snapshotExpirationToWire)
	add(s, "KeepLastSnapshots", "keepLastSnapshots", o.KeepLastSnapshots, retentionUpdateToWire)
	add(s, "CurrentSnapshotID", "currentSnapshotId", o.CurrentSnapshotID, plain)
	return s.finish(o.Extra)
}

type resources struct {
	VCPUs  int `json:"vcpus"`
	Memory int `json:"memory,omitempty"`
}

func sizeToWire(field string, n int) (resources, error) {
	return resources{VCPUs: n}, checkVCPUs(field, n)
}

// newSizeToWire returns the size for an update, which must include the memory.
func newSizeToWire(field string, n int) (resources, error) {
	return resources{VCPUs: n, Memory: 2048 * n}, checkVCPUs(field, n)
}

func timeoutToWire(field string, d time.Duration) (wire.Duration, error) {
	return wire.Duration(d), checkRange(field, d, wire.MinTimeout, wire.MaxTimeout)
}

// opposite converts Ephemeral to the API's parameter persistent.
func opposite(_ string, v bool) (bool, error) { return !v, nil }

// networkToWire returns the network for an update: null for an empty ID, which removes
// the sandbox from its network.
func networkToWire(_ string, id *string) (any, error) {
	if *id == "" {
		return nil, nil
	}
	return *id, nil
}

func policyToWire(_ string, p *NetworkPolicy) (any, error) { return p.toWire() }

// envToWire returns a plain map, because [Env] encodes its values as redacted.
func envToWire(field string, env Env) (map[string]string, error) {
	return env, checkSandboxEnv(field, env)
}
