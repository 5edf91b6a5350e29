package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
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
	// Rules, given instead of Reason and Instead, are rules that together account
	// for the whole difference.
	Rules []string

	own `json:"-"`
}

// own is what a file of its own holds for a departure: what this SDK sends and
// returns, the exchanges that it needs in addition to the script, and those of
// the script that it does not request.
type own struct {
	Recording
	Server  json.RawMessage `json:"server"`
	Unused  []string        `json:"unused"`
	missing bool
}

// LoadDepartures reads departures.json in dir.
func LoadDepartures(dir string) *Departures {
	d := decoded[Departures](must(os.ReadFile(filepath.Join(dir, "departures.json"))))
	d.dir = must(filepath.Abs(dir))
	for _, s := range d.Scenarios {
		unknown := slices.ContainsFunc(s.Rules, func(rule string) bool { return !d.Rules.has(rule) })
		if s.Name == "" || unknown || (s.Reason != "" && s.Instead != "") == (len(s.Rules) > 0) {
			panic(fmt.Sprintf("departures.json: %q needs a reason and what is done instead, or rules that there are", s.Name))
		}
	}
	for _, r := range d.Rules {
		if r.Reason == "" || r.Same && slices.ContainsFunc(r.Differences, difference.tells) {
			panic(fmt.Sprintf("departures.json: rule %q has no reason, or says that results are the same that differ", r.Rule))
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

// tells reports whether more may differ than an order, the words of an error, how
// soon a call ends, or the directory in which a program of the SDK's own runs.
func (d difference) tells() bool {
	want, _ := d.Want.(object)
	got, _ := d.Got.(object)
	return d.Check != "sorted" && d.Key != "timing" && d.Key != "cwd" && want["kind"] == nil && (d.Key != "error" || got["error"] == nil)
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
	}{{"requests", dep.Requests}, {"results", dep.Results}, {"server", decoded[[]any](dep.Server)}, {"unused", plain(append([]string{}, dep.Unused...)).([]any)}} {
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

// Rule is a departure that is the same in every scenario. It accounts for
// exactly one kind of difference and leaves all others to be found.
type Rule struct {
	Rule string
	// Reason is why this SDK departs, in a sentence or two.
	Reason string
	// Same says that the calls return the same and the API is asked to do the
	// same: requests only say it in other words, together or in another order, or
	// look and lock in addition, or repeat what may be repeated, or an error has
	// other words. A scenario that
	// departs by such rules alone counts as passed.
	Same bool
	// Unscripted are the requests that this SDK makes and the official one does
	// not: "METHOD /path" with * for one segment of the path, and ?key=value for a
	// pair of the query. They get status 418, do not count, and must not change
	// the result of the call.
	Unscripted []string
	// Env is the environment that unscripted commands have.
	Env map[string]string
	// Ops are the operations that the unscripted requests belong to; none
	// means any.
	Ops []string
	// Answer is the response to such a request instead of 418:
	//
	//   - "replay": the output of the command as its run had it
	//   - "stopped": a session that was not starting, now stopped
	//   - "running": a session that was starting, now running
	//   - "ended": the log that was read, once more, and the command's end
	//   - "no snapshot": a sandbox without files
	//   - "known": the sandbox, drive or command as it was last seen
	//   - "again": the response to the same request before a session was looked at
	//   - "done": an empty success
	//   - "the same": a response that may not be the API's, twice more
	Answer string
	// Words are the commands of this SDK that stand for others.
	Words []wording
	// Differences are what the rule lets differ in results and requests.
	Differences []difference
}

// Rules are the rules of a departures.json.
type Rules []Rule

func (r Rules) has(name string) bool {
	return slices.ContainsFunc(r, func(x Rule) bool { return x.Rule == name })
}

// telling returns the rules without those that leave everything the same.
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

// covers reports whether a pattern of the rule is about a request.
func (r *Rule) covers(pattern string, e *Entry) bool {
	target, pair, asks := strings.Cut(pattern, "?")
	ok, _ := path.Match(target, e.Method+" "+e.Path)
	query, _, _ := strings.Cut(e.text(), "\n")
	if query += "&"; !asks {
		ok = ok && !strings.Contains(query, "&wait=")
	}
	body, _ := e.jsonBody()
	return ok && (!asks || strings.Contains(query, "&"+pair+"&")) && (r.Env == nil || differs("", plain(r.Env), unmarked(body["env"])) == "")
}

// unmarked is the environment of a command without what tells its process apart.
func unmarked(env any) any {
	all, ok := env.(object)
	if !ok {
		return env
	}
	all = maps.Clone(all)
	delete(all, "GO_SANDBOX_COMMAND")
	return all
}
