package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Profile is a team and project to work in, and possibly a token.
type Profile struct {
	Team    string `toml:"team,omitempty"`
	Project string `toml:"project,omitempty"`
	Token   string `toml:"token,omitempty"`
	APIURL  string `toml:"api_url,omitempty"`
}

// Config is the file config.toml.
type Config struct {
	// Profile is the name of the profile that is in force without --profile.
	Profile  string             `toml:"profile,omitempty"`
	Profiles map[string]Profile `toml:"profiles,omitempty"`
}

func (d Dirs) configFile() string { return filepath.Join(d.Config, "config.toml") }

// ReadConfig reads config.toml; one that is missing is empty.
func (d Dirs) ReadConfig() (Config, error) {
	data, err := read(d.configFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("%s: %w", d.configFile(), err)
	}
	return parseConfig(d.configFile(), data)
}

func parseConfig(name string, data []byte) (c Config, err error) {
	if err := toml.Unmarshal(data, &c); err != nil {
		return Config{}, OfTOML(name, err)
	}
	return c, nil
}

// OfTOML is an error of a file in TOML, with the line that it is about.
func OfTOML(name string, err error) error {
	if at, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := at.Position()
		return fmt.Errorf("%s:%d:%d: %w", name, row, column, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// ChangeConfig changes config.toml, while no other process does. Comments and keys
// that this version does not know stay.
func (d Dirs) ChangeConfig(change func(*Config) error) error {
	name := d.configFile()
	return update(name, func(data []byte) ([]byte, error) {
		before, err := parseConfig(name, data)
		if err != nil {
			return nil, err
		}
		after := Config{Profile: before.Profile, Profiles: map[string]Profile{}}
		maps.Copy(after.Profiles, before.Profiles)
		if err := change(&after); err != nil {
			return nil, err
		}
		text := rewritten(string(data), before, after)
		// The file may say the same in another way, which is left to whoever wrote it.
		if is, err := parseConfig(name, []byte(text)); err != nil || !same(is, after) {
			return nil, fmt.Errorf("%s has a form that only an editor can change", name)
		}
		return []byte(text), nil
	})
}

func same(a, b Config) bool {
	return a.Profile == b.Profile && (len(a.Profiles) == 0 && len(b.Profiles) == 0 || reflect.DeepEqual(a.Profiles, b.Profiles))
}

// tableHead is the head of a table, as of a profile.
var tableHead = regexp.MustCompile(`^\s*\[`)

// rewritten is the text of a file with what has changed.
func rewritten(text string, before, after Config) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	all := strings.SplitAfter(text, "\n")
	if before.Profile != after.Profile {
		top := slices.IndexFunc(all, tableHead.MatchString)
		if top < 0 {
			top = len(all)
		}
		all = slices.Concat(set(all[:top:top], "profile", after.Profile), all[top:])
	}
	for name, p := range after.Profiles {
		if old, ok := before.Profiles[name]; ok && old == p {
			continue
		}
		from, to := section(all, name)
		if from < 0 {
			from, to = len(all), len(all)
			all = append(all, "[profiles."+tableKey(name)+"]\n")
			to++
		}
		part := slices.Clone(all[from:to])
		old := before.Profiles[name]
		for _, f := range []struct{ key, old, now string }{
			{"team", old.Team, p.Team}, {"project", old.Project, p.Project}, {"token", old.Token, p.Token}, {"api_url", old.APIURL, p.APIURL},
		} {
			if f.old != f.now {
				part = slices.Concat(part[:1:1], set(part[1:], f.key, f.now))
			}
		}
		all = slices.Concat(all[:from], part, all[to:])
	}
	for name := range before.Profiles {
		if _, ok := after.Profiles[name]; ok {
			continue
		}
		if from, to := section(all, name); from >= 0 {
			all = slices.Delete(all, from, to)
		}
	}
	return strings.Join(all, "")
}

// section is where the table of a profile is in the lines of a file; from is -1 if
// it has none.
func section(all []string, name string) (from, to int) {
	for i, line := range all {
		var head struct {
			Profiles map[string]map[string]any `toml:"profiles"`
		}
		if !tableHead.MatchString(line) || toml.Unmarshal([]byte(line), &head) != nil {
			continue
		}
		if _, ok := head.Profiles[name]; !ok || len(head.Profiles[name]) > 0 {
			continue
		}
		end := slices.IndexFunc(all[i+1:], tableHead.MatchString)
		if end < 0 {
			return i, len(all)
		}
		return i, i + 1 + end
	}
	return -1, -1
}

// set gives a key a value in the lines of a table; no value takes it out.
func set(lines []string, key, value string) []string {
	is := regexp.MustCompile(`^\s*"?` + key + `"?\s*=`)
	at := slices.IndexFunc(lines, is.MatchString)
	line := key + " = " + quoted(value) + "\n"
	switch {
	case at >= 0 && value == "":
		return slices.Concat(lines[:at], lines[at+1:])
	case at >= 0:
		return slices.Concat(lines[:at], []string{line}, lines[at+1:])
	case value == "":
		return lines
	}
	// Behind the last key, before the blank lines and comments that belong to what follows.
	end := len(lines)
	for end > 0 && (strings.TrimSpace(lines[end-1]) == "" || strings.HasPrefix(strings.TrimSpace(lines[end-1]), "#")) {
		end--
	}
	return slices.Concat(lines[:end], []string{line}, lines[end:])
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func tableKey(name string) string {
	if bareKey.MatchString(name) {
		return name
	}
	return quoted(name)
}

// quoted is a text in TOML.
func quoted(text string) string {
	data, err := toml.Marshal(map[string]string{"x": text})
	if err != nil {
		return `""`
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(data), "x = "), "\n")
}
