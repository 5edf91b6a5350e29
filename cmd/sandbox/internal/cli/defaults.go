package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/internal/redact"
)

const (
	// defaultsFile has defaults for the sandboxes of a folder, by the names of
	// the options of create.
	defaultsFile = "sandbox.toml"
	// defaultsVariable names another file, which is taken without a question, or
	// "none".
	defaultsVariable = "SANDBOX_DEFAULTS"
	maxDefaults      = 64 << 10
	// maxShown is how much of it is asked about: what is longer could push its
	// beginning off the screen.
	maxShown = 1000
)

// defaultOptions are the options that a folder may give defaults for. Of a row, all
// are left out when one is given on the command line. Those that hand out what is
// on this machine, or name things, are none.
var defaultOptions = [][]string{
	{"image", "runtime", "snapshot"}, {"network-policy", "allowed-domain", "allowed-cidr", "denied-cidr", "network-policy-file"},
	{"region"}, {"failover-regions"}, {"timeout"}, {"vcpus"}, {"publish-port"}, {"mount"}, {"tag"}, {"snapshot-expiration"},
	{"keep-last-snapshots"}, {"keep-last-snapshots-for"}, {"delete-evicted-snapshots"},
}

// defaultValue is what a file says of an option.
type defaultValue struct {
	option string
	values []string
}

// applyDefaults gives a command that makes a sandbox the defaults of the folder,
// as far as its user agrees to them, if nothing is wrong with its options. Those of
// taken don't get any.
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
	if !own {
		if use, err := a.agreesTo(cmd.Context(), file, data, values); err != nil || !use {
			return err
		}
	}
	flags := cmd.Flags()
	given := func(option string) bool { return flags.Changed(option) || slices.Contains(taken, option) }
	var chosen []defaultValue
	for _, v := range values {
		row := slices.IndexFunc(defaultOptions, func(row []string) bool { return slices.Contains(row, v.option) })
		if !slices.ContainsFunc(defaultOptions[row], given) {
			chosen = append(chosen, v)
		}
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
		return nil, usagef("%s: %v", file, err)
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

// agreesTo reports whether the user agrees to the defaults of a folder, which are
// those of whoever has made it: they may attach drives, and open ports. An answer
// holds until the file changes.
func (a *app) agreesTo(ctx context.Context, file string, data []byte, values []defaultValue) (bool, error) {
	dirs := a.dirs()
	path, err := filepath.Abs(file)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(data)
	known := hex.EncodeToString(sum[:])
	agreed, err := dirs.Agreed(path)
	if err != nil || agreed == known {
		return err == nil, err
	}
	if !a.opts.yes && !a.asks() {
		a.warn(file+" of this folder is not used: it has not been agreed to", "agree at a terminal or with --yes, or set "+defaultsVariable+"="+file)
		return false, nil
	}
	says := strings.Join(mapped(values, func(v defaultValue) string { return v.option + " = " + strings.Join(v.values, ", ") }), "; ")
	if !a.opts.yes && len(says) > maxShown {
		return false, withHint(usagef("%s has more values than can be shown to be agreed to", file), "read it, then set %s=%s", defaultsVariable, file)
	}
	err = a.confirm(ctx, file+" of this folder has defaults for its sandboxes: "+redact.Printable(says)+". Use them from now on?")
	if _, declined := errors.AsType[*exitError](err); declined {
		fmt.Fprintln(a.err, "They are not used.")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, dirs.Agree(path, known)
}
