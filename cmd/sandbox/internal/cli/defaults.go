package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// defaultsFile has defaults for the sandboxes of a folder, by the names of
	// the options of create.
	defaultsFile = "sandbox.toml"
	// defaultsVariable names another file, or "none".
	defaultsVariable = "SANDBOX_DEFAULTS"
	maxDefaults      = 64 << 10
)

// defaultOptions are the options that a folder may give defaults for: what a new
// sandbox is like. They are those of whoever has made the folder, and nobody is
// asked, so that none chooses a sandbox, sends anything, opens or attaches
// anything, or runs. Of a row, all are left out when one is given on the command
// line.
var defaultOptions = [][]string{
	{"image", "runtime"}, {"region"}, {"failover-regions"}, {"timeout"}, {"vcpus"}, {"tag"}, {"snapshot-expiration"},
	{"keep-last-snapshots"}, {"keep-last-snapshots-for"}, {"delete-evicted-snapshots"},
}

// startsFrom are the options that an image or a runtime would contradict.
var startsFrom = []string{"snapshot"}

// defaultValue is what a file says of an option.
type defaultValue struct {
	option string
	values []string
}

// applyDefaults gives a command that makes a sandbox the defaults of the folder, and
// says which, if nothing is wrong with its options. Those of taken don't get any.
func (a *app) applyDefaults(cmd *cobra.Command, s *settingsOptions, taken ...string) error {
	if err := s.rehearse(cmd.Context(), a.stdio); err != nil {
		return err
	}
	file, own := a.env.lookup(defaultsVariable)
	switch {
	case file == "none":
		return nil
	case file == "":
		file, own = defaultsFile, false
	}
	data, err := readDefaults(file)
	if err != nil {
		if !own && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	values, err := parseDefaults(file, data)
	if err != nil || len(values) == 0 {
		return err
	}
	flags := cmd.Flags()
	given := func(option string) bool { return flags.Changed(option) || slices.Contains(taken, option) }
	var chosen []defaultValue
	for _, v := range values {
		row := slices.IndexFunc(defaultOptions, func(row []string) bool { return slices.Contains(row, v.option) })
		elsewhere := row == 0 && slices.ContainsFunc(startsFrom, given)
		if !elsewhere && !slices.ContainsFunc(defaultOptions[row], given) {
			chosen = append(chosen, v)
		}
	}
	if !own && len(chosen) > 0 {
		fmt.Fprintf(a.err, "note: %s of this folder sets %s; %s=none ignores it\n", file, strings.Join(mapped(chosen, func(v defaultValue) string { return v.option }), ", "), defaultsVariable)
	}
	for _, v := range chosen {
		f := flags.Lookup(v.option)
		if _, several := f.Value.(pflag.SliceValue); !several && len(v.values) > 1 {
			return usagef("%s: %s has one value", file, v.option)
		}
		for _, text := range v.values {
			if err := flags.Set(v.option, text); err != nil {
				if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
					err = invalid.Unwrap()
				}
				return usagef("%s: %s: %v", file, v.option, err)
			}
		}
	}
	return nil
}

// readDefaults reads a small file, and waits for no pipe.
func readDefaults(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, usagef("%s is not a file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDefaults+1))
	if err == nil && len(data) > maxDefaults {
		err = usagef("%s has more than %d KiB", file, maxDefaults>>10)
	}
	return data, err
}

// parseDefaults reads what a file says, in the order of the options.
func parseDefaults(file string, data []byte) ([]defaultValue, error) {
	var all map[string]any
	if err := toml.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &all); err != nil {
		return nil, usagef("%v", ofTOML(file, err))
	}
	var values []defaultValue
	for _, option := range slices.Concat(defaultOptions...) {
		value, ok := all[option]
		if !ok {
			continue
		}
		delete(all, option)
		list, several := value.([]any)
		if !several {
			list = []any{value}
		}
		v := defaultValue{option: option}
		for _, item := range list {
			switch item.(type) {
			case string, int64, bool:
				text := fmt.Sprint(item)
				if option == "tag" && !strings.Contains(text, "=") { // which has the value of a variable
					return nil, usagef("%s: tag is NAME=VALUE", file)
				}
				v.values = append(v.values, text)
			default:
				return nil, usagef("%s: %s is a text, a whole number, true or false, or a list of them", file, option)
			}
		}
		values = append(values, v)
	}
	for key := range all {
		return nil, &usageError{
			message: fmt.Sprintf("%s: %s can't have a default", file, quote(key)),
			hint:    "these options of create can: " + strings.Join(slices.Concat(defaultOptions...), ", "),
		}
	}
	return values, nil
}

// ofTOML adds the line and the column to an error of a file in TOML.
func ofTOML(name string, err error) error {
	if at, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := at.Position()
		return fmt.Errorf("%s:%d:%d: %w", name, row, column, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}
