package conformance

import (
	"fmt"

	"github.com/go-vercel/sandbox"
)

// The getters of each class, by their names in JavaScript.
var (
	sandboxGetters = map[string]func(*sandbox.Sandbox, sandbox.Info) any{
		"name":                     func(s *sandbox.Sandbox, _ sandbox.Info) any { return s.Name() },
		"persistent":               func(_ *sandbox.Sandbox, i sandbox.Info) any { return i.Persistent },
		"region":                   func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.Region) },
		"vcpus":                    func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.VCPUs) },
		"memory":                   func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.MemoryMB) },
		"runtime":                  func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.Runtime) },
		"image":                    func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.Image) },
		"totalEgressBytes":         func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.TotalEgressBytes) },
		"totalIngressBytes":        func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.TotalIngressBytes) },
		"totalActiveCpuDurationMs": func(_ *sandbox.Sandbox, i sandbox.Info) any { return durationMillis(i.TotalActiveCPU) },
		"totalDurationMs":          func(_ *sandbox.Sandbox, i sandbox.Info) any { return durationMillis(i.TotalDuration) },
		"updatedAt":                func(_ *sandbox.Sandbox, i sandbox.Info) any { return isoTime(i.UpdatedAt) },
		"statusUpdatedAt":          func(_ *sandbox.Sandbox, i sandbox.Info) any { return isoTime(i.StatusUpdatedAt) },
		"createdAt":                func(_ *sandbox.Sandbox, i sandbox.Info) any { return isoTime(i.CreatedAt) },
		"timeout":                  func(_ *sandbox.Sandbox, i sandbox.Info) any { return durationMillis(i.Timeout) },
		"expiresAt":                func(s *sandbox.Sandbox, _ sandbox.Info) any { return isoTime(s.ExpiresAt()) },
		"tags":                     func(_ *sandbox.Sandbox, i sandbox.Info) any { return tags(i.Tags) },
		"networkPolicy":            func(_ *sandbox.Sandbox, i sandbox.Info) any { return policyValue(i.NetworkPolicy) },
		"currentSnapshotId":        func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.CurrentSnapshotID) },
		"snapshotExpiration":       func(_ *sandbox.Sandbox, i sandbox.Info) any { return expirationMillis(i.SnapshotExpiration) },
		"keepLastSnapshots":        func(_ *sandbox.Sandbox, i sandbox.Info) any { return keepLastValue(i.KeepLastSnapshots) },
		"failoverRegions":          func(_ *sandbox.Sandbox, i sandbox.Info) any { return plain(append([]string{}, i.FailoverRegions...)) },
		"networkId":                func(_ *sandbox.Sandbox, i sandbox.Info) any { return orNil(i.NetworkID) },
		"mounts":                   func(_ *sandbox.Sandbox, i sandbox.Info) any { return mountsValue(i.Mounts) },
	}
	// sandboxSessionGetters are those that a sandbox forwards to its session.
	sandboxSessionGetters = map[string]bool{
		"routes": true, "interactivePort": true, "cwd": true, "status": true, "sourceSnapshotId": true,
		"activeCpuUsageMs": true, "networkTransfer": true,
	}
	sessionGetters = map[string]func(*sandbox.Session, sandbox.SessionInfo) any{
		"routes":           func(s *sandbox.Session, _ sandbox.SessionInfo) any { return routes(s.Routes()) },
		"sessionId":        func(s *sandbox.Session, _ sandbox.SessionInfo) any { return s.ID() },
		"interactivePort":  func(_ *sandbox.Session, i sandbox.SessionInfo) any { return orNil(i.InteractivePort) },
		"status":           func(s *sandbox.Session, _ sandbox.SessionInfo) any { return string(s.Status()) },
		"createdAt":        func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.CreatedAt) },
		"timeout":          func(_ *sandbox.Session, i sandbox.SessionInfo) any { return durationMillis(i.Timeout) },
		"networkPolicy":    func(_ *sandbox.Session, i sandbox.SessionInfo) any { return policyValue(i.NetworkPolicy) },
		"sourceSnapshotId": func(_ *sandbox.Session, i sandbox.SessionInfo) any { return orNil(i.SourceSnapshotID) },
		"memory":           func(_ *sandbox.Session, i sandbox.SessionInfo) any { return orNil(i.MemoryMB) },
		"vcpus":            func(_ *sandbox.Session, i sandbox.SessionInfo) any { return orNil(i.VCPUs) },
		"region":           func(_ *sandbox.Session, i sandbox.SessionInfo) any { return orNil(i.Region) },
		"runtime":          func(_ *sandbox.Session, i sandbox.SessionInfo) any { return orNil(i.Runtime) },
		"cwd":              func(s *sandbox.Session, _ sandbox.SessionInfo) any { return s.Cwd() },
		"requestedAt":      func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.RequestedAt) },
		"startedAt":        func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.StartedAt) },
		"requestedStopAt":  func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.RequestedStopAt) },
		"stoppedAt":        func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.StoppedAt) },
		"abortedAt":        func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.AbortedAt) },
		"duration":         func(_ *sandbox.Session, i sandbox.SessionInfo) any { return durationMillis(i.Duration) },
		"snapshottedAt":    func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.SnapshottedAt) },
		"updatedAt":        func(_ *sandbox.Session, i sandbox.SessionInfo) any { return isoTime(i.UpdatedAt) },
		"activeCpuUsageMs": func(_ *sandbox.Session, i sandbox.SessionInfo) any { return durationMillis(i.ActiveCPU) },
		"networkTransfer":  func(_ *sandbox.Session, i sandbox.SessionInfo) any { return transfer(i.NetworkTransfer) },
	}
	snapshotGetters = map[string]func(sandbox.SnapshotInfo) any{
		"snapshotId":      func(i sandbox.SnapshotInfo) any { return i.ID },
		"sourceSessionId": func(i sandbox.SnapshotInfo) any { return i.SourceSessionID },
		"status":          func(i sandbox.SnapshotInfo) any { return string(i.Status) },
		"sizeBytes":       func(i sandbox.SnapshotInfo) any { return float64(i.SizeBytes) },
		"createdAt":       func(i sandbox.SnapshotInfo) any { return isoTime(i.CreatedAt) },
		"updatedAt":       func(i sandbox.SnapshotInfo) any { return isoTime(i.UpdatedAt) },
		"expiresAt":       func(i sandbox.SnapshotInfo) any { return isoTime(i.ExpiresAt) },
		"regions":         func(i sandbox.SnapshotInfo) any { return list(i.Regions) },
	}
	userGetters = map[string]func(*sandbox.User) any{
		"username": func(u *sandbox.User) any { return u.Username() },
		"homeDir":  func(u *sandbox.User) any { return u.HomeDir() },
	}
)

func opProps(c *call) (any, error) {
	var a struct {
		Names []string `json:"names"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, name := range a.Names {
		v, err := prop(c.target, name)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// prop returns the value of one getter. As in JavaScript, a name that the class
// lacks has no value.
func prop(target any, name string) (any, error) {
	switch t := target.(type) {
	case *sandbox.Sandbox:
		if sandboxSessionGetters[name] {
			s := t.CurrentSession()
			if s == nil {
				return nil, errNoSession
			}
			if name == "status" {
				return string(t.Status()), nil
			}
			return sessionGetters[name](s, s.Info()), nil
		}
		if get, ok := sandboxGetters[name]; ok {
			return get(t, t.Info()), nil
		}
	case *sandbox.Session:
		if get, ok := sessionGetters[name]; ok {
			return get(t, t.Info()), nil
		}
	case *sandbox.Snapshot:
		if get, ok := snapshotGetters[name]; ok {
			return get(t.Info()), nil
		}
	case *sandbox.Drive:
		if get, ok := driveGetters[name]; ok {
			return get(t.Info()), nil
		}
	case *sandbox.User:
		if get, ok := userGetters[name]; ok {
			return get(t), nil
		}
	case *sandbox.CommandResult:
		return commandProp(t, t.Command, name), nil
	case *sandbox.Command:
		return commandProp(t, t, name), nil
	default:
		return nil, fmt.Errorf("conformance: props of %T", target)
	}
	return nil, nil
}

func commandProp(target any, c *sandbox.Command, name string) any {
	v, _ := normValue(target).(map[string]any)
	switch name {
	case "cmdId":
		return c.ID()
	case "sessionId":
		return c.SessionID()
	case "cwd", "startedAt", "exitCode", "durationMs":
		return v[name]
	default:
		return nil
	}
}
