package conformance

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// limits are the arguments of a step for which the API has limits.
type limits struct {
	Name      string              `json:"name"`
	Source    any                 `json:"sourceSandbox"`
	Ports     []int               `json:"ports"`
	Resources struct{ VCPUs int } `json:"resources"`
	Env       map[string]string   `json:"env"`
	Tags      map[string]string   `json:"tags"`
	Keep      *struct {
		Count      int      `json:"count"`
		Expiration *float64 `json:"expiration"`
	} `json:"keepLastSnapshots"`
	Timeout    *float64                   `json:"timeout"`
	Duration   *float64                   `json:"durationMs"`
	Time       *float64                   `json:"timeoutMs"`
	Expires    *float64                   `json:"snapshotExpiration"`
	Expire     *float64                   `json:"expiration"`
	Limit      *float64                   `json:"limit"`
	NamePrefix string                     `json:"namePrefix"`
	SortBy     string                     `json:"sortBy"`
	Signal     any                        `json:"signal"`
	Failover   []string                   `json:"failoverRegions"`
	Mounts     map[string]json.RawMessage `json:"mounts"`
	MaxSize    *float64                   `json:"maxSize"`
	Policy     json.RawMessage            `json:"networkPolicy"`
}

const day = 24 * 60 * 60 * 1000

var (
	routeNames = []any{".", "..", "sessions", "snapshots", "drives", "features"}
	plainNames = regexp.MustCompile(`^[a-zA-Z0-9_-]*$`)
)

// mayRefuse reports whether a refusal is one that the rule is about: of
// arguments that the API refuses as well, or whose meaning nobody can want.
func mayRefuse(rule string, w map[string]any, s *Step) bool {
	if rule != ruleRefused || w["error"] != nil {
		return true
	}
	var a limits
	if json.Unmarshal(s.Args, &a) != nil {
		return strings.Contains(s.Op, "rive") // sizes that are not numbers
	}
	beyond := func(d *float64, least, most float64) bool {
		return d != nil && *d != 0 && (*d < least || *d > most)
	}
	n, isNumber := a.Signal.(float64)
	newName := slices.Contains([]string{"create", "fork", "getOrCreate", "driveGetOrCreate"}, s.Op)
	return slices.Contains(routeNames, any(a.Name)) || slices.Contains(routeNames, a.Source) ||
		newName && (!plainNames.MatchString(a.Name) || len(a.Name) > 128) ||
		isNumber && (n <= 0 || n > 64) ||
		slices.ContainsFunc(a.Ports, func(p int) bool { return p < 1024 || p > 65535 }) || len(a.Ports) > 15 ||
		a.Resources.VCPUs < 0 || a.Resources.VCPUs > 1 && a.Resources.VCPUs%2 == 1 ||
		tooLarge(a.Env) || len(a.Tags) > 5 ||
		a.Keep != nil && (a.Keep.Count < 1 || a.Keep.Count > 10 || beyond(a.Keep.Expiration, day, 1e15)) ||
		beyond(a.Timeout, 1000, day) || beyond(a.Duration, 0, 1e15) || beyond(a.Time, 100, 18e6) ||
		beyond(a.Expires, day, 1e15) || beyond(a.Expire, day, 1e15) ||
		a.Limit != nil && (*a.Limit < 0 || *a.Limit > 50) ||
		a.NamePrefix != "" && a.SortBy != "" && a.SortBy != "name" ||
		a.MaxSize != nil && *a.MaxSize < 0 ||
		slices.Contains(a.Failover, "") || oddMounts(a.Mounts) || oddResponses(a.Policy)
}

func tooLarge(env map[string]string) bool {
	size := 0
	for k, v := range env {
		size += len(k) + len(v)
	}
	return size > 4096
}

// oddMounts reports whether there are too many mounts, two at one place, or one
// of an invalid kind.
func oddMounts(mounts map[string]json.RawMessage) bool {
	for at, raw := range mounts {
		var m struct {
			Saved string `json:"saved"`
			Drive any    `json:"drive"`
			Mode  any    `json:"mode"`
		}
		if json.Unmarshal(raw, &m) != nil || !strings.HasPrefix(at, "/") || len(at) < 2 {
			return true
		}
		drive, ok := m.Drive.(string)
		if m.Saved == "" && (!ok || drive == "" || !plainNames.MatchString(drive) || !slices.Contains([]any{nil, "read-write", "snapshot"}, m.Mode)) {
			return true
		}
		for other := range mounts {
			if other != at && strings.HasPrefix(at+"/", strings.TrimSuffix(other, "/")+"/") {
				return true
			}
		}
	}
	return len(mounts) > 4
}

// oddResponses reports whether a rule responds with headers or in a way that no
// response can have.
func oddResponses(policy json.RawMessage) bool {
	var p struct {
		Allow map[string][]struct {
			Response *struct {
				Headers     map[string]string `json:"headers"`
				ContentType *string           `json:"contentType"`
			} `json:"response"`
		} `json:"allow"`
	}
	if json.Unmarshal(policy, &p) != nil {
		return false
	}
	for _, rules := range p.Allow {
		for _, r := range rules {
			if r.Response == nil {
				continue
			}
			if r.Response.ContentType != nil && (*r.Response.ContentType == "" || strings.ContainsAny(*r.Response.ContentType, "\r\n\x00")) {
				return true
			}
			for name, value := range r.Response.Headers {
				if !token.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
					return true
				}
			}
		}
	}
	return false
}

var token = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$")
