package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/creack/pty"
)

// The outcomes of a scenario.
const (
	Passed   = "passed"
	Departed = "departed"
	Skipped  = "skipped"
	Failed   = "failed"
)

// Outcome is the result of one scenario. Difference describes the first
// difference, or why the scenario departs, or why it was skipped.
type Outcome struct {
	Name       string `json:"name"`
	Outcome    string `json:"outcome"`
	Difference string `json:"difference,omitempty"`
}

// Suite is a folder of scenarios with the settings for playing them.
type Suite struct {
	// Dir holds scenarios/ and expected/.
	Dir string
	// Departures are the intended differences; nil allows none.
	Departures *Departures
	// UserAgent is the prefix of the client's user agent.
	UserAgent string
	// Child starts a process that runs [ChildMain]; its environment and working
	// directory are set by the suite.
	Child func(ctx context.Context) *exec.Cmd
	// TTY says that the scenarios of a terminal are played, too.
	TTY bool
}

// Files returns the scenario files in order.
func (s *Suite) Files() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "scenarios"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// Played is the result of playing a scenario.
type Played struct {
	Scenario  *Scenario
	Recording Recording
	Unused    []string // exchanges of the script that were not requested
	Rules     []string // rules used
	Problem   string   // what went wrong in the playing itself
	Vars      map[string]string
	Raw       []any // the requests as received, including those set aside under rules
}

// Run plays one scenario file and judges the outcome.
func (s *Suite) Run(ctx context.Context, file string) Outcome {
	name := strings.TrimSuffix(file, ".json")
	var head struct {
		JSOnly bool `json:"jsOnly"`
		TTY    bool `json:"tty"`
	}
	raw, err := os.ReadFile(filepath.Join(s.Dir, "scenarios", file))
	if err == nil {
		err = json.Unmarshal(raw, &head)
	}
	switch {
	case err != nil:
		return Outcome{name, Failed, err.Error()}
	case head.JSOnly:
		return Outcome{name, Skipped, "marked jsOnly: not expected of another language"}
	case head.TTY && !s.TTY:
		return Outcome{name, Skipped, "marked tty: this client has no such development login"}
	}
	want, err := s.expected(file)
	if err != nil {
		return Outcome{name, Failed, err.Error()}
	}
	departure, err := s.Departures.load(name)
	if err != nil {
		return Outcome{name, Failed, err.Error()}
	}
	played := s.Play(ctx, file, want, departure)
	if played.Problem != "" {
		return Outcome{name, Failed, played.Problem}
	}
	var o Outcome
	if departure != nil {
		o = s.judgeDeparture(name, want, departure, played)
	} else {
		o = s.judge(name, want, played)
	}
	// What is refused was not compared.
	if o.Outcome == Departed && strings.Contains(o.Difference, "impossible-arguments-refused"+": ") {
		if legal := s.runLegal(ctx, file); legal.Outcome == Failed {
			return legal
		}
	}
	return o
}

func (s *Suite) expected(file string) (Recording, error) {
	var want Recording
	raw, err := os.ReadFile(filepath.Join(s.Dir, "expected", file))
	if err != nil {
		return want, err
	}
	return want, json.Unmarshal(raw, &want)
}

// judge compares with the recording of the official SDK, as far as the rules of
// departure allow.
func (s *Suite) judge(name string, want Recording, played *Played) Outcome {
	strict := Compare(want, cleaned(played.Recording), played.Scenario.Order == "any")
	if strict == "" && len(played.Unused) == 0 && len(played.Rules) == 0 {
		return Outcome{Name: name, Outcome: Passed}
	}
	if s.Departures != nil {
		if used := s.Departures.Rules.reconcile(played, &want); len(used) > 0 {
			d := Compare(want, cleaned(played.Recording), played.Scenario.Order == "any")
			if d == "" && len(played.Unused) == 0 {
				if used = s.Departures.Rules.telling(used); len(used) == 0 {
					return Outcome{Name: name, Outcome: Passed}
				}
				return Outcome{name, Departed, s.Departures.Rules.reasons(used)}
			}
			if d != "" {
				strict = d
			}
		}
	}
	if strict == "" {
		strict = "not asked for: " + strings.Join(played.Unused, "; ")
	}
	return Outcome{name, Failed, strict}
}

// judgeDeparture compares strictly with this project's own recording.
func (s *Suite) judgeDeparture(name string, js Recording, dep *Departure, played *Played) Outcome {
	anyOrder := played.Scenario.Order == "any"
	got := cleaned(Recording{Requests: played.Raw, Results: played.Recording.Results})
	if dep.missing {
		return Outcome{name, Failed, "the departure has no recording; make it with SANDBOX_CONFORMANCE_RECORD=" + name}
	}
	// A busy machine can make up for a pause that the departure leaves out.
	for i := range min(len(got.Results), len(dep.Results)) {
		want, _ := dep.Results[i].(map[string]any)
		if g, _ := got.Results[i].(map[string]any); g["timing"] == "ok" && want["timing"] == "too fast" {
			g["timing"] = "too fast"
		}
	}
	if d := Compare(dep.Recording, got, anyOrder); d != "" {
		return Outcome{name, Failed, "not as its departure says: " + d}
	}
	if !slices.Equal(dep.Unused, played.Unused) {
		return Outcome{name, Failed, fmt.Sprintf("not as its departure says: not asked for: %v, want %v", played.Unused, dep.Unused)}
	}
	if len(dep.Rules) == 0 {
		if len(dep.Server) == 0 && len(played.Unused) == 0 && Compare(js, got, anyOrder) == "" {
			return Outcome{name, Failed, "listed as a departure, but does what the official SDK does"}
		}
		return Outcome{name, Departed, s.Departures.why(dep)}
	}
	// The rules must account for every difference, and each rule must be needed.
	o := s.judge(name, js, played)
	if o.Outcome == Departed && o.Difference != s.Departures.why(dep) {
		return Outcome{name, Failed, "departs by other rules than its departure says: " + o.Difference}
	}
	if o.Outcome == Passed {
		return Outcome{name, Failed, "listed as a departure, but does what the official SDK does"}
	}
	return o
}

// Record plays the scenario of a departure and writes its recording.
func (s *Suite) Record(ctx context.Context, name string) error {
	dep, err := s.Departures.load(name)
	if err != nil || dep == nil {
		return fmt.Errorf("no departure %q: %w", name, err)
	}
	want, err := s.expected(name + ".json")
	if err != nil {
		return err
	}
	played := s.Play(ctx, name+".json", want, dep)
	if played.Problem != "" {
		return errors.New(played.Problem)
	}
	dep.Recording = cleaned(Recording{Requests: played.Raw, Results: played.Recording.Results})
	dep.Unused = played.Unused
	return s.Departures.save(dep)
}

// cleaned removes what the driver records for the rules.
func cleaned(r Recording) Recording {
	return Recording{Requests: r.Requests, Results: withoutNotes(r.Results).([]any)}
}

func withoutNotes(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutNotes(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if !strings.HasPrefix(k, "#") {
				out[k] = withoutNotes(x)
			}
		}
		return out
	default:
		return v
	}
}

// Play plays a scenario, in a new home and working directory, with its script
// and the exchanges that a departure adds.
func (s *Suite) Play(ctx context.Context, file string, want Recording, dep *Departure) *Played {
	p, err := s.play(ctx, file, want, dep)
	if err != nil {
		return &Played{Problem: err.Error()}
	}
	return p
}

func (s *Suite) play(ctx context.Context, file string, want Recording, dep *Departure) (*Played, error) {
	dir, err := os.MkdirTemp("", "wire-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	home, cwd := filepath.Join(dir, "home"), filepath.Join(dir, "work")
	path := filepath.Join(s.Dir, "scenarios", file)
	scenario, vars, err := Load(path, home, cwd, time.Now())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Mkdir(home, 0o755), os.Mkdir(cwd, 0o755), scenario.LayOut()); err != nil {
		return nil, err
	}
	script := scenario.Server
	if dep != nil {
		var extra []Exchange
		if len(dep.Server) > 0 {
			if err := json.Unmarshal(Substitute(dep.Server, vars), &extra); err != nil {
				return nil, err
			}
		}
		script = append(slices.Clone(script), extra...)
	}
	opts := ServerOptions{UserAgent: s.UserAgent, AnyOrder: scenario.Order == "any"}
	if s.Departures != nil {
		opts.Rules, opts.Steps, opts.Want = s.Departures.Rules, scenario.Steps, &want
	}
	server, err := StartServer(script, opts)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	out, err := s.child(ctx, scenario, vars, path, dir, server.Port())
	if err != nil {
		return nil, err
	}
	server.Close()

	p := &Played{Scenario: scenario, Vars: vars, Unused: server.Unused(), Rules: server.Used()}
	p.Raw, _ = Unsubstitute(plain(server.Raw()), vars).([]any)
	p.Recording.Requests, _ = Unsubstitute(plain(server.Log()), vars).([]any)
	p.Recording.Results, _ = Unsubstitute(out, vars).([]any)
	for _, rule := range notedRules(p.Recording.Results) {
		if !slices.Contains(p.Rules, rule) {
			p.Rules = append(p.Rules, rule)
		}
	}
	return p, nil
}

// notedRules returns the rules that the driver used.
func notedRules(v any) []string {
	var out []string
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			out = append(out, notedRules(x)...)
		}
	case map[string]any:
		for k, x := range v {
			if name, ok := x.(string); ok && k == "#rule" {
				out = append(out, name)
			} else {
				out = append(out, notedRules(x)...)
			}
		}
	}
	return out
}

// childLimit is how long one scenario may take.
const childLimit = time.Minute

// child runs the steps in a process of their own and returns their results.
func (s *Suite) child(ctx context.Context, sc *Scenario, vars map[string]string, path, dir string, port int) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, childLimit)
	defer cancel()
	spec := childSpec{Scenario: path, Vars: vars, Port: port, Out: filepath.Join(dir, "out.json")}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	specFile := filepath.Join(dir, "child.json")
	if err := os.WriteFile(specFile, data, 0o600); err != nil {
		return nil, err
	}
	cmd := s.Child(ctx)
	cmd.Dir = vars["CWD"]
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + vars["HOME"], childEnv + "=" + specFile}
	// Otherwise a process under the race detector waits for a second before it
	// exits.
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	for k, v := range sc.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	output, err := run(cmd, sc.TTY)
	raw, readErr := os.ReadFile(spec.Out)
	if errors.Is(readErr, fs.ErrNotExist) {
		return nil, fmt.Errorf("the driver ended without results (%w): %.3000s", cmpErr(err, readErr), output)
	}
	if readErr != nil {
		return nil, readErr
	}
	var results any
	return results, json.Unmarshal(raw, &results)
}

// run runs the child, at a terminal if needed, and returns its output.
func run(cmd *exec.Cmd, atTerminal bool) ([]byte, error) {
	if !atTerminal {
		return cmd.CombinedOutput()
	}
	var errors bytes.Buffer
	cmd.Stderr = &errors
	tty, err := pty.Start(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tty.Close() }()
	// Reading fails with an error of the terminal once the child is gone.
	printed, _ := io.ReadAll(tty)
	err = cmd.Wait()
	return append(printed, errors.Bytes()...), err
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// childSpec tells the child what to play.
type childSpec struct {
	Scenario string            `json:"scenario"`
	Vars     map[string]string `json:"vars"`
	Port     int               `json:"port"`
	Out      string            `json:"out"`
}

func (c childSpec) base() string { return "http://127.0.0.1:" + strconv.Itoa(c.Port) }

// childEnv names the file with the child's orders.
const childEnv = "SANDBOX_CONFORMANCE_CHILD"
