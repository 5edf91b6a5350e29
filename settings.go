package sandbox

import (
	"encoding/json"
	"maps"
	"reflect"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// A setting is how a field of CreateOptions, ForkOptions and UpdateOptions is
// sent. Fields that are zero are not: one that is empty but not nil is.
type setting struct {
	// name is the field's in the body.
	name string
	// encode checks a value and returns what is sent for it. The region is that
	// of the same options.
	encode func(field string, v any, region string) (any, error)
}

// settings has a row for each field that new sandboxes, forks and updates send.
// What else their options have is for the client.
var settings = map[string]setting{
	"Name":               field("name", checkNewName),
	"Source":             encoded("source", sourceToWire),
	"Ports":              field("ports", checkPorts),
	"Timeout":            converted("timeout", checkTimeout, func(d time.Duration) any { return wire.Duration(d) }),
	"VCPUs":              converted("resources", checkVCPUs, func(n int) any { return resources{VCPUs: n} }),
	"Image":              field[string]("image", nil),
	"Architecture":       field[string]("architecture", nil),
	"Runtime":            field[string]("runtime", nil),
	"Region":             field[string]("region", nil),
	"FailoverRegions":    {"failoverRegions", failoverToWire},
	"NetworkID":          field[string]("networkId", nil),
	"Mounts":             {"mounts", mountsToWire},
	"Credentials":        encoded("credentials", credentialsToWire),
	"NetworkPolicy":      encoded("networkPolicy", func(_ string, p *NetworkPolicy) (json.RawMessage, error) { return p.toWire() }),
	"Env":                converted("env", checkSandboxEnv, func(e Env) any { return map[string]string(e) }),
	"Tags":               field("tags", checkTags),
	"Ephemeral":          converted("persistent", nil, func(e bool) any { return !e }),
	"Persistent":         field[*bool]("persistent", nil),
	"SnapshotExpiration": converted("snapshotExpiration", checkExpiration, func(d time.Duration) any { return expirationToWire(d) }),
	"KeepLastSnapshots":  converted("keepLastSnapshots", checkRetention, func(k *KeepLastSnapshots) any { return k.toWire() }),
}

// updates has the rows of what an update sends otherwise, or alone.
var updates = map[string]setting{
	"VCPUs":             converted("resources", checkVCPUs, func(n int) any { return resources{VCPUs: n, Memory: 2048 * n} }),
	"NetworkID":         converted("networkId", nil, orNull),
	"KeepLastSnapshots": encoded("keepLastSnapshots", retentionToWire),
	"CurrentSnapshotID": field[string]("currentSnapshotId", nil),
}

type resources struct {
	VCPUs  int `json:"vcpus"`
	Memory int `json:"memory,omitempty"`
}

// encoded is a setting whose value encode checks, too.
func encoded[T, W any](name string, encode func(field string, v T) (W, error)) setting {
	return setting{name, func(field string, v any, _ string) (any, error) { return encode(field, v.(T)) }}
}

// converted is a setting that is checked, unless check is nil, and then converted.
func converted[T any](name string, check func(field string, v T) error, convert func(T) any) setting {
	return encoded(name, func(field string, v T) (any, error) {
		if check != nil {
			if err := check(field, v); err != nil {
				return nil, err
			}
		}
		return convert(v), nil
	})
}

// field is a setting that is sent as it is.
func field[T any](name string, check func(field string, v T) error) setting {
	return converted(name, check, func(v T) any { return v })
}

// orNull returns null for what is to be cleared.
func orNull(s *string) any {
	if *s == "" {
		return nil
	}
	return *s
}

// body is the body of a request. It has the values of Env and header rules, so it
// is never logged or put into an error.
type body map[string]any

// encodeSettings checks options, in the order of their fields, and returns the body
// that they make: with the rows of special where it has one.
func encodeSettings(opts any, special map[string]setting, extra map[string]any) (body, error) {
	b := body{}
	v := reflect.ValueOf(opts).Elem()
	region := v.FieldByName("Region").String()
	known := map[string]string{"projectId": "the client"}
	for f, value := range v.Fields() {
		row, ok := special[f.Name]
		if !ok {
			row, ok = settings[f.Name]
		}
		if !ok {
			continue
		}
		known[row.name] = f.Name
		if value.IsZero() {
			continue
		}
		sent, err := row.encode(f.Name, value.Interface(), region)
		if err != nil {
			return nil, err
		}
		b[row.name] = sent
	}
	if err := checkExtra("Extra", extra, known); err != nil {
		return nil, err
	}
	maps.Copy(b, extra)
	return b, nil
}
