package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// runLegal plays a scenario whose arguments this SDK refuses once more, with
// values that the API accepts in their place: in the steps, in the script, and in
// the requests of the recording, which the official SDK would have made with them.
func (s *Suite) runLegal(ctx context.Context, file string) Outcome {
	name := strings.TrimSuffix(file, ".json")
	dir, err := s.legalCopy(file)
	defer func() { _ = os.RemoveAll(dir) }()
	if err != nil {
		return Outcome{name, Failed, err.Error()}
	}
	if dir == "" {
		return Outcome{Name: name, Outcome: Skipped} // a name of a route has no legal form
	}
	legal := *s
	legal.Dir = dir
	legal.Departures = &Departures{Rules: &Rules{slices.DeleteFunc(slices.Clone(s.Departures.Rules.list), func(r Rule) bool { return r.Rule == ruleRefused })}}
	o := legal.Run(ctx, file)
	if o.Outcome == Failed {
		o.Difference = "with legal values: " + o.Difference
	}
	return o
}

func (s *Suite) legalCopy(file string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "legal-")
	if err != nil {
		return "", err
	}
	renamed := map[string]string{}
	same := true
	for _, kind := range []string{"scenarios", "expected"} {
		var whole map[string]any
		raw, err := os.ReadFile(filepath.Join(s.Dir, kind, file))
		if err := errors.Join(err, json.Unmarshal(raw, &whole)); err != nil {
			return dir, err
		}
		before, _ := json.Marshal(whole)
		for _, part := range []string{"steps", "server", "requests", "results"} {
			if whole[part] != nil {
				whole[part] = legalized(part, whole[part], renamed)
			}
		}
		text, err := json.Marshal(whole)
		if err != nil {
			return dir, err
		}
		same = same && bytes.Equal(before, text)
		for old, now := range renamed {
			for _, end := range []string{`"`, "/"} { // the end of a path, or of its segment
				text = []byte(strings.ReplaceAll(string(text), "/"+old+end, "/"+now+end))
			}
		}
		if err := errors.Join(os.Mkdir(filepath.Join(dir, kind), 0o755), os.WriteFile(filepath.Join(dir, kind, file), text, 0o600)); err != nil {
			return dir, err
		}
	}
	if same {
		return "", os.RemoveAll(dir)
	}
	return dir, nil
}

// legalized returns a value of the given name, or all that is in it, as the API
// accepts it. renamed collects the names of sandboxes that no sandbox can have.
func legalized(name string, v any, renamed map[string]string) any {
	between := func(least, most float64) any {
		n, ok := v.(float64)
		if !ok || n == 0 {
			return v
		}
		return max(least, min(most, n))
	}
	switch name {
	case "timeout":
		return between(1000, day)
	case "timeoutMs":
		return between(100, 18e6)
	case "duration", "durationMs":
		return between(1000, day)
	case "snapshotExpiration", "expiration":
		return between(day, 1e15)
	case "limit":
		return between(1, 50)
	case "count":
		return between(1, 10)
	case "maxSize", "maxSizeBytes":
		return between(1, 1e15)
	case "name", "sourceSandbox", "sandboxName":
		if text, ok := v.(string); ok && (!plainNames.MatchString(text) || len(text) > 128) {
			if name == "sandboxName" { // as an error has it
				text, _ = url.PathUnescape(text)
			}
			now := "legal-" + strconv.Itoa(len(text))
			renamed[url.PathEscape(text)] = now
			return now
		}
	case "signal":
		if n, ok := v.(float64); ok && (n < 1 || n > 64) {
			return 15.0
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			as := key
			if key == "timeout" && v["command"] != nil { // a command's, not a session's
				as = "timeoutMs"
			}
			v[key] = legalized(as, inner, renamed)
		}
		if list, ok := v["failoverRegions"].([]any); ok && len(list) > 0 && slices.Contains(list, v["region"]) {
			v["failoverRegions"] = []any{"lhr1", "cdg1"}
		}
		if v["namePrefix"] != nil && v["sortBy"] != nil {
			v["sortBy"] = "name"
		}
		switch name {
		case "resources":
			if n, ok := v["vcpus"].(float64); ok && (n < 0 || n > 1 && int(n)%2 == 1) {
				v["vcpus"] = 2.0
			}
		case "tags":
			for _, key := range fewer(v, 5) {
				delete(v, key)
			}
		case "mounts":
			legalMounts(v)
		case "headers":
			for key, text := range v {
				if text, ok := text.(string); ok && (!token.MatchString(key) || strings.ContainsAny(text, "\r\n")) {
					delete(v, key)
				}
			}
		case "env":
			for key, text := range v {
				if text, ok := text.(string); ok && len(text) > 1000 {
					v[key] = text[:1000]
				}
			}
		}
	case []any:
		prefixed := name == "query" && slices.ContainsFunc(v, func(p any) bool { return strings.HasPrefix(fmt.Sprint(p), "[namePrefix ") })
		for i, inner := range v {
			element := ""
			if n, ok := inner.(float64); ok && name == "ports" && (n < 1024 || n > 65535) {
				inner = float64(3000 + i)
			}
			if pair, ok := inner.([]any); ok && len(pair) == 2 && name == "query" {
				inner = legalPair(pair, prefixed)
			}
			v[i] = legalized(element, inner, renamed)
		}
	}
	return v
}

// legalPair returns a pair of a query as the API accepts it.
func legalPair(pair []any, prefixed bool) any {
	key, _ := pair[0].(string)
	if n, err := strconv.ParseFloat(fmt.Sprint(pair[1]), 64); err == nil {
		return []any{key, fmt.Sprint(legalized(key, n, nil))}
	}
	if prefixed && key == "sortBy" {
		return []any{key, "name"}
	}
	return pair
}

// legalMounts leaves those of the mounts that no other overlaps.
func legalMounts(mounts map[string]any) {
	kept := ""
	for _, at := range slices.Sorted(maps.Keys(mounts)) {
		if !strings.HasPrefix(at, "/") || kept != "" && strings.HasPrefix(at+"/", kept+"/") {
			delete(mounts, at)
			continue
		}
		kept = strings.TrimSuffix(at, "/")
		if m, ok := mounts[at].(map[string]any); ok && m["mode"] != nil && !slices.Contains([]any{"read-write", "snapshot"}, m["mode"]) {
			m["mode"] = "snapshot"
		}
	}
}

// fewer returns the last keys of those beyond a number.
func fewer(m map[string]any, n int) (surplus []string) {
	keys := []string{}
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if len(keys) > n {
		surplus = keys[n:]
	}
	return surplus
}
