package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-vercel/sandbox"
)

// normValue returns a value of the SDK in the form of results.
func normValue(v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case *sandbox.Sandbox:
		out := map[string]any{"sandbox": v.Name(), "session": nil, "status": nil}
		if s := v.CurrentSession(); s != nil {
			out["session"], out["status"] = s.ID(), string(s.Status())
		}
		return out
	case *sandbox.Session:
		return map[string]any{"session": v.ID(), "status": string(v.Status())}
	case *sandbox.Snapshot:
		return map[string]any{"snapshot": v.ID(), "status": string(v.Status())}
	case *sandbox.Drive:
		return map[string]any{"drive": v.Name(), "driveId": v.ID()}
	case sandbox.Mount:
		return mountValue(v)
	case *sandbox.User:
		return map[string]any{"user": v.Username(), "homeDir": v.HomeDir()}
	case *sandbox.CommandResult:
		out := commandValue(v.Command)
		out["finished"], out["exitCode"] = true, float64(v.ExitCode)
		return out
	case *sandbox.Command:
		return commandValue(v)
	case []byte:
		return normBytes(v)
	case string:
		return normText(v)
	case json.RawMessage:
		decoded, _ := decodeJSON(v)
		return normDeep(decoded)
	default:
		return normDeep(v)
	}
}

func normBytes(data []byte) any {
	if len(data) > long {
		return map[string]any{"size": float64(len(data)), "sha256": sha256Hex(data)}
	}
	return map[string]any{"base64": base64.StdEncoding.EncodeToString(data)}
}

func commandValue(c *sandbox.Command) map[string]any {
	out := map[string]any{
		"command": c.ID(), "finished": false, "exitCode": nil, "durationMs": nil,
		"startedAt": timeMillis(c.StartedAt()), "cwd": c.Cwd(),
	}
	if code, exited := c.ExitStatus(); exited {
		out["exitCode"] = float64(code)
	}
	if d, known := c.Elapsed(); known {
		out["durationMs"] = ms(&d)
	}
	return out
}

// ms returns a duration in milliseconds, or nil.
func ms(d *time.Duration) any {
	if d == nil {
		return nil
	}
	return float64(*d) / float64(time.Millisecond)
}

// expirationMillis is how long a snapshot is kept: 0 for ever, nil for the default.
func expirationMillis(d time.Duration) any {
	switch d {
	case 0:
		return nil
	case sandbox.Forever:
		return 0.0
	}
	return durationMillis(d)
}

// orNil returns nil for the zero value, which stands for what the API omitted.
func orNil[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return plain(v)
}

// isoTime returns a time in the form of results.
func isoTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// timeMillis returns a time in the form of the API.
func timeMillis(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return float64(t.UnixMilli())
}

func durationMillis(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return ms(&d)
}

// withoutNil removes nil members from an object.
func withoutNil(m map[string]any) map[string]any {
	for k, v := range m {
		if v == nil {
			delete(m, k)
		}
	}
	return m
}

// sandboxData returns a listed sandbox in the form of the API.
func sandboxData(i sandbox.Info) map[string]any {
	return withoutNil(map[string]any{
		"name": i.Name, "persistent": i.Persistent, "region": orNil(i.Region), "vcpus": orNil(i.VCPUs),
		"memory": orNil(i.MemoryMB), "runtime": orNil(i.Runtime), "image": orNil(i.Image), "timeout": durationMillis(i.Timeout),
		"networkPolicy": policyAsAPI(i.NetworkPolicy), "totalEgressBytes": orNil(i.TotalEgressBytes),
		"totalIngressBytes": orNil(i.TotalIngressBytes), "totalActiveCpuDurationMs": durationMillis(i.TotalActiveCPU),
		"totalDurationMs": durationMillis(i.TotalDuration), "createdAt": timeMillis(i.CreatedAt), "updatedAt": timeMillis(i.UpdatedAt),
		"expiresAt": timeMillis(i.ExpiresAt), "currentSessionId": i.CurrentSessionID,
		"currentSnapshotId": orNil(i.CurrentSnapshotID), "status": string(i.Status),
		"statusUpdatedAt": timeMillis(i.StatusUpdatedAt), "cwd": orNil(i.Cwd), "tags": tags(i.Tags),
		"snapshotExpiration": expirationMillis(i.SnapshotExpiration), "keepLastSnapshots": keepLastValue(i.KeepLastSnapshots),
		"failoverRegions": list(i.FailoverRegions), "networkId": orNil(i.NetworkID), "mounts": mountsValue(i.Mounts),
	})
}

// list distinguishes nil from empty.
func list(l []string) any {
	if l == nil {
		return nil
	}
	return plain(l)
}

func tags(t map[string]string) any {
	if t == nil {
		return nil
	}
	return plain(t)
}

func keepLastValue(k *sandbox.KeepLastSnapshots) any {
	if k == nil {
		return nil
	}
	return withoutNil(map[string]any{
		"count": float64(k.Count), "expiration": expirationMillis(k.Expiration), "deleteEvicted": !k.KeepEvicted,
	})
}

// sessionData returns a session in the form of the API, including fields that
// the SDK does not know.
func sessionData(i sandbox.SessionInfo) map[string]any {
	out := map[string]any{}
	for k, raw := range i.Extra {
		out[k], _ = decodeJSON(raw)
	}
	known := withoutNil(map[string]any{
		"id": i.ID, "memory": orNil(i.MemoryMB), "vcpus": orNil(i.VCPUs), "region": orNil(i.Region), "runtime": orNil(i.Runtime),
		"timeout": durationMillis(i.Timeout), "status": string(i.Status), "requestedAt": timeMillis(i.RequestedAt),
		"startedAt": timeMillis(i.StartedAt), "requestedStopAt": timeMillis(i.RequestedStopAt),
		"stoppedAt": timeMillis(i.StoppedAt), "abortedAt": timeMillis(i.AbortedAt), "duration": durationMillis(i.Duration),
		"sourceSnapshotId": orNil(i.SourceSnapshotID), "snapshottedAt": timeMillis(i.SnapshottedAt),
		"createdAt": timeMillis(i.CreatedAt), "cwd": orNil(i.Cwd), "updatedAt": timeMillis(i.UpdatedAt),
		"interactivePort": orNil(i.InteractivePort), "activeCpuDurationMs": durationMillis(i.ActiveCPU),
		"architecture": orNil(i.Architecture), "sourceSandboxName": orNil(i.SandboxName), "projectId": orNil(i.ProjectID),
		"networkTransfer": transfer(i.NetworkTransfer),
	})
	maps.Copy(out, known)
	return out
}

func transfer(t sandbox.NetworkTransfer) any {
	if t == (sandbox.NetworkTransfer{}) {
		return nil
	}
	return map[string]any{"ingress": float64(t.Ingress), "egress": float64(t.Egress)}
}

// listedSession is a listed session: its policy has the API's form.
func listedSession(i sandbox.SessionInfo) map[string]any {
	out := sessionData(i)
	if p := policyAsAPI(i.NetworkPolicy); p != nil {
		out["networkPolicy"] = p
	}
	return out
}

// snapshotData returns a snapshot in the form of the API.
func snapshotData(i sandbox.SnapshotInfo) map[string]any {
	return withoutNil(map[string]any{
		"id": i.ID, "sourceSessionId": i.SourceSessionID, "region": orNil(i.Region), "status": string(i.Status),
		"sizeBytes": float64(i.SizeBytes), "expiresAt": timeMillis(i.ExpiresAt), "createdAt": timeMillis(i.CreatedAt),
		"updatedAt": timeMillis(i.UpdatedAt), "lastUsedAt": timeMillis(i.LastUsedAt),
		"creationMethod": orNil(i.CreationMethod), "parentId": orNil(i.ParentID), "regions": list(i.Regions),
	})
}

func treeNode(n sandbox.SnapshotTreeNode) map[string]any {
	siblings := []any{}
	for _, s := range n.Siblings {
		siblings = append(siblings, snapshotData(s))
	}
	return map[string]any{"snapshot": snapshotData(n.Snapshot), "siblings": siblings, "count": strconv.Itoa(n.Count)}
}

// policyValue returns a policy in its public form.
func policyValue(p *sandbox.NetworkPolicy) any {
	if p == nil {
		return nil
	}
	return plain(p)
}

// policyAsAPI returns a policy in the form of API responses.
func policyAsAPI(p *sandbox.NetworkPolicy) any {
	switch v := policyValue(p).(type) {
	case string:
		return map[string]any{"mode": v}
	case map[string]any:
		return customPolicy(v)
	default:
		return nil
	}
}

func customPolicy(v map[string]any) map[string]any {
	out := map[string]any{"mode": "custom"}
	if subnets, ok := v["subnets"].(map[string]any); ok {
		if l, ok := subnets["allow"]; ok {
			out["allowedCIDRs"] = l
		}
		if l, ok := subnets["deny"]; ok {
			out["deniedCIDRs"] = l
		}
	}
	switch allow := v["allow"].(type) {
	case []any:
		out["allowedDomains"] = allow
	case map[string]any:
		domains := []any{}
		for d, rules := range allow {
			domains = append(domains, d)
			list, _ := rules.([]any)
			for _, r := range list {
				rule, _ := r.(map[string]any)
				api := map[string]any{"domain": d}
				if m, ok := rule["match"]; ok {
					api["match"] = m
				}
				kind := "injectionRules"
				if u, ok := rule["forwardURL"]; ok {
					kind, api["forwardURL"] = "forwardRules", u
				} else {
					api["headerNames"] = headerNames(rule)
				}
				rules, _ := out[kind].([]any)
				out[kind] = append(rules, api)
			}
		}
		slices.SortFunc(domains, func(a, b any) int {
			if a.(string) < b.(string) {
				return -1
			}
			return 1
		})
		out["allowedDomains"] = domains
	}
	return out
}

func headerNames(rule map[string]any) []any {
	names := []any{}
	transforms, _ := rule["transform"].([]any)
	for _, t := range transforms {
		t, _ := t.(map[string]any)
		headers, _ := t["headers"].(map[string]any)
		for n := range headers {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b any) int {
		if a.(string) < b.(string) {
			return -1
		}
		return 1
	})
	return names
}

func routes(list []sandbox.Route) any {
	out := []any{}
	for _, r := range list {
		out = append(out, withoutNil(map[string]any{
			"url": orNil(r.URL), "subdomain": r.Subdomain, "port": float64(r.Port),
		}))
	}
	return out
}

// errNoSession is what JavaScript throws for a session getter of a sandbox that
// was revived without a session.
var errNoSession = fmt.Errorf("No active session. Run a command or call resume first.") //nolint:staticcheck // the text of another SDK
