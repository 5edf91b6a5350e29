package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// These are the outcomes of a scenario.
const (
	Passed   = "passed"
	Departed = "departed"
	Skipped  = "skipped"
	Failed   = "failed"
)

// Outcome is the result of playing one scenario. Difference describes the first difference, or
// the reason why the scenario departs or was skipped.
type Outcome struct {
	Name       string `json:"name"`
	Outcome    string `json:"outcome"`
	Difference string `json:"difference,omitempty"`

	rules []string // the used rules
}

// Suite is a folder with scenarios/ and expected/, and the intended differences.
type Suite struct {
	Dir        string
	Departures *Departures
	Players    *Players
}

// Files returns the names of the scenario files in order.
func (s *Suite) Files() []string {
	files := must(filepath.Glob(filepath.Join(s.Dir, "scenarios", "*.json")))
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

// Played is the result of playing a scenario.
type Played struct {
	Requests, Results []any    // as in a [Recording]
	Raw               []any    // the requests as received, including those that only a rule allows
	Unused            []string // the exchanges of the script that this SDK has not requested
	Omitted           int      // the number of these that a rule allows not to request
	Rules             []string // the used rules

	scenario *Scenario
	vars     map[string]string
}

// own returns the requests and results of this SDK, without the driver's notes for the rules.
func (p *Played) own() Recording {
	results := plain(p.Results).([]any)
	for _, r := range results {
		if r := r.(object); r["seen"] != nil {
			r["seen"] = r["#own"]
		}
	}
	return Recording{Requests: p.Raw, Results: withoutNotes(results).([]any)}
}

// compare describes the first difference from a recording of the official SDK.
func (p *Played) compare(want Recording) string {
	return Compare(want, Recording{Requests: p.Requests, Results: withoutNotes(p.Results).([]any)}, p.scenario.anyOrder())
}

// Run plays the scenario of a file and judges the outcome.
func (s *Suite) Run(ctx context.Context, file string) (o Outcome) {
	name := strings.TrimSuffix(file, ".json")
	defer func() {
		if mistake := recover(); mistake != nil {
			o = Outcome{Outcome: Failed, Difference: fmt.Sprint(mistake)}
		}
		o.Name = name
	}()
	raw := must(os.ReadFile(filepath.Join(s.Dir, "scenarios", file)))
	if decoded[struct{ JSOnly bool }](raw).JSOnly {
		return Outcome{Outcome: Skipped, Difference: "marked jsOnly: not expected of another language"}
	}
	want, departure := s.expected(file), s.Departures.load(name)
	played := s.play(ctx, file, want, departure)
	if departure != nil {
		o = s.judgeDeparture(want, departure, played)
	} else {
		o = s.judge(want, played)
	}
	// This has compared only the refusal. With legal values, if there are any, the whole
	// scenario must be the same.
	if o.Outcome != Failed && slices.Contains(o.rules, asByTheAPI) {
		if legal := s.runLegal(ctx, file); legal.Outcome == Failed || o.Outcome == Passed && legal.Outcome == Departed {
			o = legal
		}
	}
	return o
}

func (s *Suite) expected(file string) Recording {
	return decoded[Recording](must(os.ReadFile(filepath.Join(s.Dir, "expected", file))))
}

// judge compares the requests and results with the recording of the official SDK. The rules may
// allow some differences.
func (s *Suite) judge(want Recording, played *Played) Outcome {
	difference := played.compare(want)
	if difference == "" && len(played.Unused) == played.Omitted && len(played.Rules) == 0 {
		return Outcome{Outcome: Passed}
	}
	if used := s.Departures.Rules.reconcile(played, &want); len(used) > 0 {
		d := played.compare(want)
		difference = cmp.Or(d, difference)
		if d == "" && len(played.Unused) == played.Omitted {
			if telling := s.Departures.Rules.notSame(used); len(telling) > 0 {
				return Outcome{Outcome: Departed, Difference: s.Departures.Rules.reasons(telling), rules: used}
			}
			return Outcome{Outcome: Passed, rules: used}
		}
	}
	return Outcome{Outcome: Failed, Difference: cmp.Or(difference, "not requested: "+strings.Join(played.Unused, "; "))}
}

// judgeDeparture compares the requests and results with this project's own recording,
// without rules.
func (s *Suite) judgeDeparture(js Recording, dep *Departure, played *Played) Outcome {
	failed := func(format string, args ...any) Outcome {
		return Outcome{Outcome: Failed, Difference: fmt.Sprintf(format, args...)}
	}
	if dep.missing {
		return failed("the departure has no recording; make it with SANDBOX_CONFORMANCE_RECORD=%s", dep.Name)
	}
	if d := Compare(dep.Recording, played.own(), played.scenario.anyOrder()); d != "" {
		return failed("not as its departure says: %s", d)
	}
	if !slices.Equal(dep.Unused, played.Unused) {
		return failed("not as its departure says: not requested: %v, want %v", played.Unused, dep.Unused)
	}
	now := members(js, dep.Recording)
	if len(dep.Server) == 0 && len(played.Unused) == 0 && len(now) == 0 {
		return failed("listed as a departure, but does what the official SDK does")
	}
	if d := differs("differs", plain(dep.Differs), plain(now)); d != "" {
		return failed("departs in other members of the recording than its departure says: %s", d)
	}
	return Outcome{Outcome: Departed, Difference: dep.Reason + " " + dep.Instead}
}

// Record plays the scenario of a departure and writes its recording. It returns the members in
// which the recording differs from the official SDK's.
func (s *Suite) Record(ctx context.Context, name string) []string {
	dep, want := s.Departures.load(name), s.expected(name+".json")
	played := s.play(ctx, name+".json", want, dep)
	dep.Recording, dep.Unused = played.own(), played.Unused
	dep.Differs = members(want, dep.Recording)
	s.Departures.save(dep)
	return dep.Differs
}

// play plays a scenario in a new home and working directory. The server's script includes the
// additional exchanges of the departure.
func (s *Suite) play(ctx context.Context, file string, want Recording, dep *Departure) *Played {
	dir := must(filepath.EvalSymlinks(must(os.MkdirTemp("", "wire-"))))
	defer func() { _ = os.RemoveAll(dir) }()
	home, cwd := filepath.Join(dir, "home"), filepath.Join(dir, "work")
	spec := order{
		Scenario: filepath.Join(s.Dir, "scenarios", file), Want: want, Out: filepath.Join(dir, "out.json"), Now: time.Now(),
	}
	var scenario Scenario
	scenario, spec.Vars = Load(spec.Scenario, home, cwd, spec.Now)
	check(errors.Join(os.Mkdir(home, 0o755), os.Mkdir(cwd, 0o755)))
	scenario.LayOut()
	if dep != nil {
		spec.Extra = Substitute(dep.Server, spec.Vars)
	}
	p := decoded[Played](must(json.Marshal(Unsubstitute(s.Players.play(ctx, spec, &scenario), spec.Vars))))
	p.scenario, p.vars = &scenario, spec.Vars
	return &p
}

func withoutNotes(v any) any {
	return mapped(v, func(key string, v any) (any, bool) { return v, !strings.HasPrefix(key, "#") })
}
