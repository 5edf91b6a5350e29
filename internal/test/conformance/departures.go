package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Departures are the intended differences between this SDK and the official SDK. Scenarios
// contains differences in single scenarios. Rules apply to all scenarios.
type Departures struct {
	Scenarios []Departure
	Rules     Rules

	dir string
}

// Departure is a scenario in which this SDK intentionally differs.
type Departure struct {
	Name string
	// Reason explains the fault of the official SDK, and Instead says what this SDK does
	// instead.
	Reason, Instead string

	own `json:"-"`
}

// own is the recording of a departure. In addition to the requests and results of this SDK,
// it has the exchanges that the script lacks, the exchanges of the script that this SDK does
// not request, and the members in which the recording differs from the official SDK's.
type own struct {
	Recording
	Server  json.RawMessage `json:"server"`
	Unused  []string        `json:"unused"`
	Differs []string        `json:"differs"`
	missing bool
}

// Rule is a departure that occurs in several scenarios. The code that uses its name allows
// exactly this difference. Any other difference is a failure.
type Rule struct {
	Rule string
	// Reason explains the departure in a sentence or two.
	Reason string
	// Same is set if calls have the same results and the same effects. Then requests have
	// only another form, are combined, are safe repetitions, or are additional lookups. A
	// scenario that uses only such rules counts as passed.
	Same bool
}

// Rules are the rules of a departures.json.
type Rules []Rule

// LoadDepartures reads departures.json in dir.
func LoadDepartures(dir string) *Departures {
	d := decoded[Departures](must(os.ReadFile(filepath.Join(dir, "departures.json"))))
	d.dir = must(filepath.Abs(dir))
	for _, s := range d.Scenarios {
		if s.Name == "" || s.Reason == "" || s.Instead == "" {
			panic(fmt.Sprintf("departures.json: %q needs a reason and what is done instead", s.Name))
		}
	}
	return &d
}

// load returns the departure of a scenario with its recording, or nil.
func (d *Departures) load(name string) *Departure {
	i := slices.IndexFunc(d.Scenarios, func(s Departure) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	dep := d.Scenarios[i]
	raw, err := os.ReadFile(d.path(name)) // missing before the first recording
	dep.own, dep.missing = decoded[own](raw), err != nil
	return &dep
}

func (d *Departures) path(name string) string {
	return filepath.Join(d.dir, "departures", name+".json")
}

// save writes the recording of a departure. Like the other recordings, it has one element per
// line.
func (d *Departures) save(dep *Departure) {
	var parts []string
	for _, part := range []struct {
		name string
		list []any
	}{
		{"requests", dep.Requests}, {"results", dep.Results}, {"server", decoded[[]any](dep.Server)},
		{"unused", plain(append([]string{}, dep.Unused...)).([]any)}, {"differs", plain(dep.Differs).([]any)},
	} {
		var lines []string
		for _, element := range part.list {
			lines = append(lines, "\n  "+string(marshal(element)))
		}
		if lines != nil || part.name == "requests" || part.name == "results" {
			parts = append(parts, fmt.Sprintf(" %q: [%s\n ]", part.name, strings.Join(lines, ",")))
		}
	}
	check(os.WriteFile(d.path(dep.Name), []byte("{\n"+strings.Join(parts, ",\n")+"\n}\n"), 0o644))
}

func (r Rules) has(name string) bool {
	return slices.ContainsFunc(r, func(x Rule) bool { return x.Rule == name })
}

// notSame returns the used rules that are not marked Same.
func (r Rules) notSame(used []string) []string {
	return slices.DeleteFunc(slices.Clone(used), func(name string) bool {
		return slices.ContainsFunc(r, func(x Rule) bool { return x.Rule == name && x.Same })
	})
}

// reasons explains why a scenario departs.
func (r Rules) reasons(used []string) string {
	var out []string
	for _, rule := range r {
		if slices.Contains(used, rule.Rule) {
			out = append(out, rule.Rule+": "+rule.Reason)
		}
	}
	return strings.Join(out, " ")
}

// members names the members in which a recording of this SDK differs from the official
// SDK's. The numbers of requests are those of this SDK.
func members(want, got Recording) []string {
	out := []string{}
	target := func(r any) string {
		m := r.(object)
		return fmt.Sprint(m["method"], " ", m["path"])
	}
	// common[i][j] is the length of the longest common subsequence of targets in
	// want.Requests[i:] and got.Requests[j:].
	common := make([][]int, len(want.Requests)+1)
	for i := range common {
		common[i] = make([]int, len(got.Requests)+1)
	}
	for i, w := range slices.Backward(want.Requests) {
		for j, g := range slices.Backward(got.Requests) {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if target(w) == target(g) {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < len(want.Requests) || j < len(got.Requests); {
		switch {
		case i < len(want.Requests) && j < len(got.Requests) && target(want.Requests[i]) == target(got.Requests[j]):
			out = differing(out, fmt.Sprintf("requests[%d]", j), tolerant(want.Requests[i]), tolerant(got.Requests[j]))
			i, j = i+1, j+1
		case j < len(got.Requests) && (i == len(want.Requests) || common[i][j+1] >= common[i+1][j]):
			out = append(out, fmt.Sprintf("requests[%d] is additional: %s", j, target(got.Requests[j])))
			j++
		default:
			out = append(out, fmt.Sprintf("before requests[%d] the official SDK makes %s", j, target(want.Requests[i])))
			i++
		}
	}
	return differing(out, "results", any(want.Results), any(got.Results))
}

// differing appends the names of the members in which got differs from want.
func differing(out []string, at string, want, got any) []string {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok {
			break
		}
		keys := plain(w).(object)
		maps.Copy(keys, g)
		for _, k := range sortedKeys(keys) {
			wv, inWant := w[k]
			gv, inGot := g[k]
			if inWant != inGot {
				out = append(out, at+"."+k)
			} else {
				out = differing(out, at+"."+k, wv, gv)
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(w) != len(g) {
			break
		}
		for i := range w {
			out = differing(out, fmt.Sprintf("%s[%d]", at, i), w[i], g[i])
		}
		return out
	}
	if differs(at, want, got) != "" {
		out = append(out, at)
	}
	return out
}
