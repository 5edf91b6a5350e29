package conformance

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
)

type object = map[string]any

// normValue converts a value of this SDK to the form of results.
func normValue(v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case *sandbox.Sandbox:
		out := object{"sandbox": v.Name(), "session": nil, "status": nil}
		if s := v.CurrentSession(); s != nil {
			out["session"], out["status"] = s.ID(), string(s.Info().Status)
		}
		return out
	case *sandbox.Session:
		return object{"session": v.ID(), "status": string(v.Info().Status)}
	case *sandbox.Snapshot:
		return object{"snapshot": v.ID(), "status": string(v.Info().Status)}
	case *sandbox.Drive:
		return object{"drive": v.Name(), "driveId": v.Info().ID}
	case *sandbox.User:
		return object{"user": v.Username(), "homeDir": v.HomeDir()}
	case *sandbox.CommandResult:
		out := commandValue(v.Command)
		out["finished"], out["exitCode"] = true, float64(v.ExitCode)
		return out
	case *sandbox.Command:
		return commandValue(v)
	case *sandbox.StopResult:
		out := fields(v.Session, moment)
		if v.Snapshot != nil {
			out["snapshot"] = listed(*v.Snapshot)
		}
		return normDeep(out)
	case *sandbox.Interactive:
		return object{"url": v.URL, "token": v.Token}
	case fs.FileInfo:
		return stats(v)
	case sandbox.Mount, *sandbox.NetworkPolicy:
		return fieldValue("", reflect.ValueOf(v), moment)
	case []byte:
		if len(v) > long {
			return object{"size": float64(len(v)), "sha256": sha256Hex(v)}
		}
		return object{"base64": base64.StdEncoding.EncodeToString(v)}
	case json.RawMessage:
		decoded, _ := decodeJSON(v)
		return normDeep(decoded)
	default:
		return normDeep(v)
	}
}

func commandValue(c *sandbox.Command) object {
	out := object{
		"command": c.ID(), "finished": false, "exitCode": nil, "durationMs": nil,
		"startedAt": moment(c.StartedAt()), "cwd": c.Cwd(),
	}
	if code, exited := c.ExitStatus(); exited {
		out["exitCode"] = float64(code)
	}
	if d, known := c.Elapsed(); known {
		out["durationMs"] = float64(d) / float64(time.Millisecond)
	}
	return out
}

// moment returns a time in the form of the API.
func moment(t time.Time) any {
	return float64(t.UnixMilli())
}

// isoTime returns a time in the form of JavaScript's getters.
func isoTime(t time.Time) any {
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// jsNames maps the names of fields to their JavaScript names if these differ by more than the
// first letter.
var jsNames = map[string]string{
	"ID": "id", "URL": "url", "VCPUs": "vcpus", "MemoryMB": "memory", "TotalActiveCPU": "totalActiveCpuDurationMs",
	"TotalDuration": "totalDurationMs", "ActiveCPU": "activeCpuDurationMs", "SandboxName": "sourceSandboxName",
	"MaxSizeBytes": "maxSize", "Sandbox": "name", "IngressBytes": "ingress", "EgressBytes": "egress",
}

func jsName(field string) string {
	if name, ok := jsNames[field]; ok {
		return name
	}
	if id, ok := strings.CutSuffix(field, "ID"); ok {
		field = id + "Id"
	}
	return strings.ToLower(field[:1]) + field[1:]
}

// fields returns the fields of a struct by their JavaScript names. It omits absent fields, empty
// fields that JavaScript does not have, and the architecture, which JavaScript has only for
// sessions.
func fields(v any, times func(time.Time) any) object {
	out := object{}
	s := reflect.ValueOf(v)
	if session, ok := v.(sandbox.SessionInfo); ok && session.IngressBytes+session.EgressBytes > 0 {
		out["networkTransfer"] = object{"ingress": float64(session.IngressBytes), "egress": float64(session.EgressBytes)}
	}
	for i := range s.NumField() {
		name := s.Type().Field(i).Name
		if name == "IngressBytes" || name == "EgressBytes" {
			continue
		}
		if _, session := v.(sandbox.SessionInfo); name == "Architecture" && !session {
			continue
		}
		if (name == "System" || name == "V0") && s.Field(i).IsZero() {
			continue
		}
		if name == "Extra" { // contains the fields that the SDK does not know
			for k, raw := range s.Field(i).Interface().(map[string]json.RawMessage) {
				out[k], _ = decodeJSON(raw)
			}
		} else if value := fieldValue(name, s.Field(i), times); value != nil {
			out[jsName(name)] = value
		}
	}
	return out
}

func fieldValue(name string, v reflect.Value, times func(time.Time) any) any {
	if v.IsZero() && v.Kind() != reflect.Bool && !strings.HasSuffix(name, "SizeBytes") {
		return nil
	}
	switch v := v.Interface().(type) {
	case time.Duration:
		if v == sandbox.Forever {
			return 0.0
		}
		return float64(v) / float64(time.Millisecond)
	case time.Time:
		return times(v)
	case map[string]sandbox.Mount:
		out := object{}
		for at, m := range v {
			out[at] = fieldValue("", reflect.ValueOf(m), times)
		}
		return out
	case sandbox.Mount:
		return object{"drive": v.Drive, "mode": string(v.Mode)}
	case *sandbox.KeepLastSnapshots:
		out := fields(*v, times)
		delete(out, "keepEvicted")
		out["count"], out["deleteEvicted"] = float64(v.Count), !v.KeepEvicted
		return out
	case []sandbox.Route:
		out := []any{}
		for _, r := range v {
			route := fields(r, times)
			route["subdomain"], _, _ = strings.Cut(strings.TrimPrefix(r.URL, "https://"), ".")
			if !r.System {
				delete(route, "system") // only routes of the service itself have this field
			}
			out = append(out, route)
		}
		return out
	default:
		return plain(v)
	}
}

// listed converts an item of a listing to the form of the API.
func listed(v any) object {
	if node, ok := v.(sandbox.SnapshotTreeNode); ok {
		siblings := []any{}
		for _, s := range node.Siblings {
			siblings = append(siblings, listed(s))
		}
		return object{"snapshot": listed(node.Snapshot), "siblings": siblings, "count": strconv.Itoa(node.Count)}
	}
	out := fields(v, moment)
	if p, ok := out["networkPolicy"]; ok {
		out["networkPolicy"] = policyAsAPI(p)
	}
	return out
}

// policyAsAPI converts a policy to the form of API responses.
func policyAsAPI(public any) object {
	p, ok := public.(object)
	if !ok {
		return object{"mode": public}
	}
	out := object{"mode": "custom"}
	subnets, _ := p["subnets"].(object)
	for from, to := range map[string]string{"allow": "allowedCIDRs", "deny": "deniedCIDRs"} {
		if list, ok := subnets[from]; ok {
			out[to] = list
		}
	}
	rules, ruled := p["allow"].(object)
	if domains := sortedKeys(rules); ruled {
		out["allowedDomains"] = plain(domains)
	} else if p["allow"] != nil {
		out["allowedDomains"] = p["allow"]
	}
	for _, domain := range sortedKeys(rules) {
		for _, r := range rules[domain].([]any) {
			kind, rule := "injectionRules", object{"domain": domain}
			if m, ok := r.(object)["match"]; ok {
				rule["match"] = m
			}
			if to, ok := r.(object)["forwardURL"]; ok {
				kind, rule["forwardURL"] = "forwardRules", to
			} else {
				names := object{}
				for _, t := range decoded[[]struct{ Headers object }](marshal(r.(object)["transform"])) {
					maps.Copy(names, t.Headers)
				}
				rule["headerNames"] = plain(append([]string{}, sortedKeys(names)...))
			}
			list, _ := out[kind].([]any)
			out[kind] = append(list, rule)
		}
	}
	return out
}

// getters lists the JavaScript names of the properties of each class. The properties of a
// sandbox after the bar are properties of its session.
var getters = map[string]string{
	"Sandbox": "name persistent region vcpus memory runtime image totalEgressBytes totalIngressBytes totalActiveCpuDurationMs " +
		"totalDurationMs updatedAt statusUpdatedAt createdAt timeout expiresAt tags networkPolicy currentSnapshotId " +
		"snapshotExpiration keepLastSnapshots failoverRegions networkId mounts status " +
		"| routes interactivePort cwd sourceSnapshotId activeCpuUsageMs networkTransfer status",
	"Session": "routes sessionId interactivePort status createdAt timeout networkPolicy sourceSnapshotId memory vcpus region runtime cwd " +
		"requestedAt startedAt requestedStopAt stoppedAt abortedAt duration snapshottedAt updatedAt activeCpuUsageMs networkTransfer",
	"Snapshot": "snapshotId sourceSessionId status sizeBytes createdAt updatedAt expiresAt regions",
	"Drive":    "driveId name projectId region maxSize currentSessionId currentSandboxName createdAt updatedAt",
	"User":     "username homeDir",
}

// aliases maps getters to the names of their fields if these differ.
var aliases = map[string]string{"sessionId": "id", "snapshotId": "id", "driveId": "id", "activeCpuUsageMs": "activeCpuDurationMs"}

// errNoSession is JavaScript's error for a property of the session if a restored sandbox has no
// session.
var errNoSession = errors.New("No active session. Run a command or call resume first.") //nolint:staticcheck // the text of another SDK

func opProps(c *call, _ any, a struct{ Names []string }) (any, error) {
	out := object{}
	for _, name := range a.Names {
		v, err := prop(c.target, name)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// prop returns the value of one getter. As in JavaScript, it is nil if the class does not have
// the getter.
func prop(target any, name string) (any, error) {
	switch t := target.(type) {
	case *sandbox.CommandResult:
		return commandProp(t, t.Command, name), nil
	case *sandbox.Command:
		return commandProp(t, t, name), nil
	}
	on := reflect.Indirect(reflect.ValueOf(target))
	own, sessions, _ := strings.Cut(getters[on.Type().Name()], "|")
	if slices.Contains(strings.Fields(sessions), name) {
		s := target.(*sandbox.Sandbox).CurrentSession()
		if s == nil {
			return nil, errNoSession
		}
		if name != "status" {
			return prop(s, name)
		}
	}
	if !slices.Contains(strings.Fields(own), name) {
		return nil, nil
	}
	if m := reflect.ValueOf(target).MethodByName(strings.ToUpper(name[:1]) + name[1:]); m.IsValid() {
		return orEmpty(name, fieldValue(name, m.Call(nil)[0], isoTime)), nil
	}
	info := fields(reflect.ValueOf(target).MethodByName("Info").Call(nil)[0].Interface(), isoTime)
	if alias, ok := aliases[name]; ok {
		name = alias
	}
	return orEmpty(name, info[name]), nil
}

// orEmpty returns an empty list for an absent list if the getter does so in JavaScript.
func orEmpty(name string, v any) any {
	if v == nil && (name == "routes" || name == "failoverRegions") {
		return []any{}
	}
	return v
}

func commandProp(target any, c *sandbox.Command, name string) any {
	v := normValue(target).(object)
	v["cmdId"], v["sessionId"] = c.ID(), c.SessionID()
	return v[name]
}
