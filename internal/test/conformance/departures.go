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

// Departures are the intended differences. Scenarios lists those of single
// scenarios; Rules apply to every scenario, including new ones.
type Departures struct {
	Scenarios []Departure
	Rules     Rules

	dir string
}

// Departure is a scenario in which this SDK intentionally does something else.
type Departure struct {
	Name string
	// Reason says what is wrong with what the official SDK does, and Instead what
	// this SDK does.
	Reason, Instead string

	own `json:"-"`
}

// own is the recording of a departure: what this SDK sends and returns, the exchanges that
// it needs in addition to the script, those of the script that it does not request, and the
// members in which it differs from the official SDK's recording.
type own struct {
	Recording
	Server  json.RawMessage `json:"server"`
	Unused  []string        `json:"unused"`
	Differs []string        `json:"differs"`
	missing bool
}

// Rule is a departure that is the same in every scenario. The code under its name describes
// the difference exactly; any other difference fails.
type Rule struct {
	Rule string
	// Reason is why this SDK departs, in a sentence or two.
	Reason string
	// Same is set if calls return the same and the API does the same: requests are only
	// phrased differently, combined, repeated where that is safe, or additional lookups. A
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
	raw, err := os.ReadFile(d.path(name)) // there is none before it is recorded
	dep.own, dep.missing = decoded[own](raw), err != nil
	return &dep
}

func (d *Departures) path(name string) string {
	return filepath.Join(d.dir, "departures", name+".json")
}

// save writes the recording of a departure, one element to a line like the
// other recordings.
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

// telling returns the used rules that are not marked Same.
func (r Rules) telling(used []string) []string {
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

// members names the members in which a recording of this SDK differs from the
// official SDK's. The members of requests are numbered as this SDK makes them.
func members(want, got Recording) []string {
	out := []string{}
	target := func(r any) string {
		m := r.(object)
		return fmt.Sprint(m["method"], " ", m["path"])
	}
	// common[i][j] is the length of the longest common sequence of targets in want[i:] and
	// got[j:].
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

// differing adds the members in which got differs from want.
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
