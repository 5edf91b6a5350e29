package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// runLegal plays a scenario a second time if this SDK has refused some of its arguments. It
// replaces these arguments by values that the API accepts, in the steps, in the script, and in
// the recorded requests of the official SDK.
func (s *Suite) runLegal(ctx context.Context, file string) Outcome {
	dir := must(os.MkdirTemp("", "legal-"))
	defer func() { _ = os.RemoveAll(dir) }()
	if !s.legalCopy(dir, file) {
		return Outcome{Outcome: Skipped} // the name of a route can't be replaced
	}
	legal := *s
	legal.Dir = dir
	legal.Departures = &Departures{dir: s.Departures.dir, Rules: slices.DeleteFunc(slices.Clone(s.Departures.Rules), func(r Rule) bool { return r.Rule == asByTheAPI })}
	o := legal.Run(ctx, file)
	if o.Outcome == Failed {
		o.Difference = "with legal values: " + o.Difference
	}
	return o
}

// legalCopy copies a scenario with legal values. It reports whether it has replaced any values.
func (s *Suite) legalCopy(dir, file string) (changed bool) {
	renamed := map[string]string{}
	for _, kind := range []string{"scenarios", "expected"} {
		whole := decoded[object](must(os.ReadFile(filepath.Join(s.Dir, kind, file))))
		before := must(json.Marshal(whole))
		for _, part := range []string{"steps", "server", "requests", "results"} {
			if whole[part] != nil {
				whole[part] = legalized(part, whole[part], renamed)
			}
		}
		text := must(json.Marshal(whole))
		changed = changed || !bytes.Equal(before, text)
		for old, now := range renamed {
			for _, end := range []string{`"`, "/"} { // a name ends at the end of a path or of a segment
				text = bytes.ReplaceAll(text, []byte("/"+old+end), []byte("/"+now+end))
			}
		}
		check(os.Mkdir(filepath.Join(dir, kind), 0o755))
		check(os.WriteFile(filepath.Join(dir, kind, file), text, 0o600))
	}
	return changed
}

// asByTheAPI is the rule for calls that both this SDK and the API refuse.
const asByTheAPI = "refused-as-by-the-api"

// refusal returns the rule that allows this SDK to refuse a call, or "" if there is none. This
// SDK may refuse a call if the API refuses it, according to the recording or to the limits of
// the platform.
func refusal(w object, s *Step) string {
	var args object
	switch failed := errorOf(w); {
	case failed["kind"] == "APIError" && (failed["status"] == 400.0 || failed["status"] == 404.0 || failed["status"] == 200.0):
		return asByTheAPI
	case failed != nil || json.Unmarshal(s.Args, &args) != nil:
		return ""
	}
	if !slices.Contains([]string{"create", "fork", "getOrCreate", "driveGetOrCreate"}, s.Op) {
		delete(args, "name")
	}
	if differs("", plain(args), legalized("args", args, map[string]string{})) != "" {
		return asByTheAPI
	}
	return ""
}

var plainNames = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,128}$`)

const day = 24 * 60 * 60 * 1000

// between maps the names of numbers to their limits. The number 0 stands for the default.
var between = map[string][2]float64{
	"timeout": {1000, day}, "timeoutMs": {100, 18e6}, "limit": {1, 50}, "count": {1, 10}, "snapshotExpiration": {day, 1e15}, "expiration": {day, 1e15},
}

// legalized returns a value without the parts that the API refuses. name is the name of the
// argument. renamed collects the replaced names of sandboxes.
func legalized(name string, v any, renamed map[string]string) any {
	switch v := v.(type) {
	case float64:
		if limits, ok := between[name]; ok && v != 0 {
			return max(limits[0], min(limits[1], v))
		}
	case string:
		switch name {
		case "name", "sourceSandbox", "sandboxName", "drive":
			if !plainNames.MatchString(v) {
				now := "legal-" + strconv.Itoa(len(v))
				renamed[encodeURIComponent(v)] = now
				return now
			}
		}
	case object:
		return legalObject(name, v, renamed)
	case []any:
		return legalList(name, v, renamed)
	}
	return v
}

func legalObject(name string, v object, renamed map[string]string) any {
	for key, inner := range v {
		as := key
		if key == "timeout" && v["command"] != nil { // the timeout of a command, not of a session
			as = "timeoutMs"
		}
		v[key] = legalized(as, inner, renamed)
	}
	if v["namePrefix"] != nil && v["sortBy"] != nil {
		v["sortBy"] = "name"
	}
	kept, size := "", 0
	for i, key := range sortedKeys(v) {
		text, _ := v[key].(string)
		size += len(key) + len(text)
		if name == "tags" && i >= 5 || name == "env" && size > 4096 ||
			name == "mounts" && (i >= 4 || !legalMount(key, kept, v[key])) {
			delete(v, key)
		} else {
			kept = strings.TrimSuffix(key, "/")
		}
	}
	return v
}

// legalMount reports whether the API accepts a mount at a path, after a mount at the path
// before. It replaces an unknown mode.
func legalMount(at, before string, v any) bool {
	m, ok := v.(object)
	if m["mode"] != nil && !slices.Contains([]any{"read-write", "snapshot"}, m["mode"]) {
		m["mode"] = "snapshot"
	}
	drive, _ := m["drive"].(string)
	return ok && len(at) > 1 && strings.HasPrefix(at, "/") && (before == "" || !strings.HasPrefix(at+"/", before+"/")) &&
		(m["saved"] != nil || drive != "" && plainNames.MatchString(drive))
}

func legalList(name string, v []any, renamed map[string]string) any {
	if name == "ports" {
		v = v[:min(len(v), 15)]
	}
	prefixed := slices.ContainsFunc(v, func(p any) bool { return strings.HasPrefix(fmt.Sprint(p), "[namePrefix ") })
	for i, inner := range v {
		if n, ok := inner.(float64); ok && name == "ports" && (n < 1024 || n > 65535) {
			inner = float64(3000 + i)
		}
		if pair, ok := inner.([]any); ok && len(pair) == 2 && name == "query" {
			key, _ := pair[0].(string)
			if n, err := strconv.ParseFloat(fmt.Sprint(pair[1]), 64); err == nil {
				inner = []any{key, fmt.Sprint(legalized(key, n, nil))}
			} else if prefixed && key == "sortBy" {
				inner = []any{key, "name"}
			}
		}
		v[i] = legalized("", inner, renamed)
	}
	return v
}
