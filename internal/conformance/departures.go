package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Departures are the intended differences. Scenarios lists those of single
// scenarios; Rules apply to every scenario, including new ones.
type Departures struct {
	Scenarios []Departure `json:"scenarios"`
	Rules     *Rules      `json:"rules"`

	dir string
}

// Departure is a scenario in which this SDK intentionally does something else.
type Departure struct {
	Name string `json:"name"`
	// Reason says what is wrong with what the official SDK does, and Instead what
	// this SDK does.
	Reason  string `json:"reason,omitempty"`
	Instead string `json:"instead,omitempty"`
	// Rules, given instead of Reason and Instead, are rules that together account
	// for the whole difference.
	Rules []string `json:"rules,omitempty"`

	// Recording, Server and Unused are kept in a separate file: what this SDK
	// sends and returns, the exchanges that it needs in addition to the script,
	// and those of the script that it does not request.
	Recording `json:"-"`
	Server    json.RawMessage `json:"-"`
	Unused    []string        `json:"-"`
	missing   bool
}

// LoadDepartures reads departures.json in dir. Without that file there are
// none.
func LoadDepartures(dir string) (*Departures, error) {
	d := &Departures{dir: dir}
	raw, err := os.ReadFile(filepath.Join(dir, "departures.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("departures.json: %w", err)
	}
	for _, s := range d.Scenarios {
		named := s.Reason != "" && s.Instead != ""
		if s.Name == "" || named == (len(s.Rules) > 0) {
			return nil, fmt.Errorf("departures.json: %q needs a reason and what is done instead, or rules", s.Name)
		}
		for _, rule := range s.Rules {
			if !d.Rules.has(rule) {
				return nil, fmt.Errorf("departures.json: %q names the rule %q, which there is not", s.Name, rule)
			}
		}
	}
	return d, d.Rules.check()
}

// load returns the departure of a scenario with its recording, or nil.
func (d *Departures) load(name string) (*Departure, error) {
	if d == nil {
		return nil, nil
	}
	i := slices.IndexFunc(d.Scenarios, func(s Departure) bool { return s.Name == name })
	if i < 0 {
		return nil, nil
	}
	dep := d.Scenarios[i]
	var file struct {
		Recording
		Server json.RawMessage `json:"server"`
		Unused []string        `json:"unused"`
	}
	raw, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		dep.missing = true
		return &dep, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &file)
	}
	if err != nil {
		return nil, fmt.Errorf("departure %s: %w", name, err)
	}
	dep.Recording, dep.Server, dep.Unused = file.Recording, file.Server, file.Unused
	return &dep, nil
}

func (d *Departures) path(name string) string {
	return filepath.Join(d.dir, "departures", name+".json")
}

// why explains why the scenario departs.
func (d *Departures) why(dep *Departure) string {
	if len(dep.Rules) > 0 {
		return d.Rules.reasons(dep.Rules)
	}
	return dep.Reason + " " + dep.Instead
}

// save writes the recording of a departure, one element to a line like the
// other recordings.
func (d *Departures) save(dep *Departure) error {
	var b strings.Builder
	list := func(key string, elements []any) error {
		fmt.Fprintf(&b, " %q: [", key)
		for i, e := range elements {
			text, err := marshal(e)
			if err != nil {
				return err
			}
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n  " + string(text))
		}
		b.WriteString("\n ]")
		return nil
	}
	b.WriteString("{\n")
	if err := list("requests", dep.Requests); err != nil {
		return err
	}
	b.WriteString(",\n")
	if err := list("results", dep.Results); err != nil {
		return err
	}
	if len(dep.Server) > 0 {
		var extra []any
		if err := json.Unmarshal(dep.Server, &extra); err != nil {
			return err
		}
		b.WriteString(",\n")
		if err := list("server", extra); err != nil {
			return err
		}
	}
	if len(dep.Unused) > 0 {
		unused := make([]any, len(dep.Unused))
		for i, u := range dep.Unused {
			unused[i] = u
		}
		b.WriteString(",\n")
		if err := list("unused", unused); err != nil {
			return err
		}
	}
	b.WriteString("\n}\n")
	if err := os.MkdirAll(filepath.Dir(d.path(dep.Name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(d.path(dep.Name), []byte(b.String()), 0o644)
}
