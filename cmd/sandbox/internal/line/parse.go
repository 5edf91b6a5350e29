package line

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/wire"
)

// ParseText reads a text. It refuses an empty text, which may come from an unset variable.
// Otherwise that could select another account, all sandboxes, or every address to listen
// on.
func ParseText(s string) (string, error) {
	if s == "" {
		return "", errors.New("it is empty; leave it out for the default")
	}
	return s, nil
}

// ParseAny reads a text that may be empty, as in the official CLI.
func ParseAny(s string) (string, error) { return s, nil }

// ParseStatuses reads a list of statuses. It refuses an unknown status, because no sandbox
// ever has it.
func ParseStatuses(s string) (string, error) {
	for status := range strings.SplitSeq(s, ",") {
		if _, err := parseOneOf(Statuses...)(status); err != nil {
			return "", err
		}
	}
	return s, nil
}

// ParsePositive reads an integer above zero.
func ParsePositive(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number above 0", s)
	}
	return n, nil
}

// ParseBetween returns a parser of integers from low to high. what names the value in errors.
func ParseBetween(low, high int, what string) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("invalid %s %q: it must be an integer between %d and %d", what, s, low, high)
		}
		return n, nil
	}
}

func parseOneOf(allowed ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("invalid value %q; expected one of: %s", s, strings.Join(allowed, ", "))
		}
		return s, nil
	}
}

// ParseBool reads true or false.
func ParseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("invalid value %q; expected true or false", s)
}

// ParseVCPUs reads a number of vCPUs.
func ParseVCPUs(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || !wire.VCPUs(n) {
		return 0, fmt.Errorf("invalid vCPU count %q: it must be 1 or an even number", s)
	}
	return n, nil
}

// ParseSnapshotID reads the ID of a snapshot.
func ParseSnapshotID(s string) (string, error) {
	if !strings.HasPrefix(s, "snap_") {
		return "", fmt.Errorf("malformed snapshot ID %q: snapshot IDs begin with snap_", s)
	}
	return s, nil
}

// ParseNetworkID reads the ID of a network.
func ParseNetworkID(s string) (string, error) {
	if s = strings.TrimSpace(s); s == "" || len(s) > 255 {
		return "", errors.New("a network ID has between 1 and 255 characters")
	}
	return s, nil
}

// ParseRegion reads the name of a region.
func ParseRegion(s string) (string, error) {
	if s = strings.TrimSpace(s); s == "" {
		return "", errors.New("the region is empty")
	}
	return s, nil
}

// ParseRegions reads "A,B" or "none". It skips empty names and duplicates.
func ParseRegions(s string) ([]string, error) {
	if strings.TrimSpace(s) == "none" {
		return []string{}, nil
	}
	var regions []string
	for r := range strings.SplitSeq(s, ",") {
		if r = strings.TrimSpace(r); r != "" && !slices.Contains(regions, r) {
			regions = append(regions, r)
		}
	}
	if len(regions) == 0 || slices.Contains(regions, "none") {
		return nil, fmt.Errorf("%q is not a list of regions; use A,B or none", s)
	}
	return regions, nil
}

// ParseCredentials reads a list of known credentials.
func ParseCredentials(s string) ([]string, error) {
	list := strings.Split(s, ",")
	for i, c := range list {
		var err error
		if list[i], err = parseOneOf("npm")(strings.TrimSpace(c)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ParseDuration reads a duration.
func ParseDuration(s string) (time.Duration, error) { return units.ParseDuration(s) }

// durationBetween returns a parser of durations from least to most.
func durationBetween(least, most time.Duration) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := units.ParseDuration(s)
		if err == nil && (d < least || d > most) {
			err = fmt.Errorf("%v is outside %v to %s", d, least, strings.TrimSuffix(most.String(), "0m0s"))
		}
		return d, err
	}
}

// ParseSize reads a size above zero.
func ParseSize(s string) (int64, error) {
	n, err := units.ParseBytes(s)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is not a size", s)
	}
	return n, err
}

// ParseExpiration reads the lifetime of snapshots, or "none".
func ParseExpiration(s string) (time.Duration, error) {
	if s == "none" {
		return 0, nil
	}
	d, err := units.ParseDuration(s)
	if err == nil && d > 0 && d < wire.MinExpiration {
		err = fmt.Errorf("%v is below %v; none keeps snapshots", d, wire.MinExpiration)
	}
	return d, err
}

// ParseNewName reads the name of a new sandbox. If it is empty, the API chooses one.
func ParseNewName(s string) (string, error) {
	if s != "" && !wire.SandboxName(s) {
		return "", nameError(s)
	}
	return s, nil
}

// ParseName reads the name of a sandbox. It refuses characters that can't be part of an
// address.
func ParseName(s string) (string, error) {
	if s == "" || s == "." || s == ".." || slices.Contains(wire.ReservedNames, s) || strings.ContainsAny(s, "/\\?#%*,:; \t\n\x00") || !utf8.ValidString(s) {
		return "", nameError(s)
	}
	return s, nil
}

func nameError(s string) error {
	return fmt.Errorf("%s can't be the name of a sandbox: a name has at most %d letters, digits, - and _, and the API has another meaning for %s",
		strconv.Quote(s), wire.MaxName, strings.Join(wire.ReservedNames, ", "))
}

// ParseDriveName reads the name of a drive.
func ParseDriveName(s string) (string, error) {
	if !wire.PlainName(s, wire.MaxDriveName) {
		return "", fmt.Errorf("%s can't be the name of a drive: a name has at most %d letters, digits, - and _", strconv.Quote(s), wire.MaxDriveName)
	}
	return s, nil
}

var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// ParseUser reads a username.
func ParseUser(s string) (string, error) {
	if !userName.MatchString(s) {
		return "", fmt.Errorf("%s can't be a username: one has at most 32 lowercase letters, digits, - and _, and begins with a letter or _", strconv.Quote(s))
	}
	return s, nil
}

// ParseDirectory reads a directory of a sandbox. If it is empty, the API chooses one.
func ParseDirectory(s string) (string, error) {
	if err := wire.CheckText(s); err != nil {
		return "", fmt.Errorf("the directory %w", err)
	}
	return s, nil
}

// ParseCIDR reads a network such as 10.0.0.0/8.
func ParseCIDR(s string) (string, error) {
	if _, err := netip.ParsePrefix(s); err != nil {
		return "", fmt.Errorf("%q is not a network such as 10.0.0.0/8", s)
	}
	return s, nil
}

// Pair is KEY=VALUE, or KEY alone if its value comes from the environment.
type Pair struct {
	Key, Value string
	Inherit    bool
}

// ParsePair reads NAME=VALUE.
func ParsePair(s string) (Pair, error) {
	key, value, ok := strings.Cut(s, "=")
	if key == "" {
		return Pair{}, errors.New("there is no name before the value; use NAME=VALUE") // don't show the value, which may be a secret
	}
	return Pair{Key: key, Value: value, Inherit: !ok}, nil
}

// parseVariable reads NAME=VALUE of an environment variable, or NAME alone.
func parseVariable(s string) (Pair, error) {
	p, err := ParsePair(s)
	if i := strings.IndexAny(s, ": \t\n"); err == nil && p.Inherit && i >= 0 {
		return Pair{}, fmt.Errorf("%q is followed by %q, not by %q; use NAME=VALUE", s[:i], s[i:i+1], "=") // the rest may be a secret
	}
	return p, err
}

// Mount is DRIVE:/PATH[:MODE].
type Mount struct{ Drive, Path, Mode string }

// ParseMount reads DRIVE:PATH[:MODE].
func ParseMount(s string) (Mount, error) {
	parts := strings.Split(s, ":")
	m := Mount{Mode: "read-write"}
	switch {
	case len(parts) < 2 || len(parts) > 3, parts[0] == "", !strings.HasPrefix(parts[1], "/"):
		return Mount{}, fmt.Errorf("invalid mount %q; use drive:/path or drive:/path:snapshot", s)
	case len(parts) == 3:
		m.Mode = parts[2]
	}
	if m.Mode != "read-write" && m.Mode != "snapshot" {
		return Mount{}, fmt.Errorf("invalid mode %q of mount %q; the modes are snapshot and read-write", m.Mode, s)
	}
	m.Drive, m.Path = parts[0], parts[1]
	return m, nil
}

// PointerTo returns a parser of pointers, which stay nil if the option is not set.
func PointerTo[T any](parse func(string) (T, error)) func(string) (*T, error) {
	return func(s string) (*T, error) {
		v, err := parse(s)
		return &v, err
	}
}

// Checked returns a check that calls a parser.
func Checked[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

// Statuses are the states of a sandbox.
var Statuses = []string{
	string(sandbox.StatusRunning), string(sandbox.StatusStopped), string(sandbox.StatusStopping), string(sandbox.StatusPending),
	string(sandbox.StatusSnapshotting), string(sandbox.StatusFailed), string(sandbox.StatusAborted),
}

// ParsePort reads a port that a sandbox can expose.
var ParsePort = ParseBetween(wire.MinPort, wire.MaxPort, "port")

var (
	ParseTimeout        = durationBetween(wire.MinTimeout, wire.MaxTimeout)
	ParseCommandTimeout = durationBetween(wire.MinCommandTimeout, wire.MaxCommandTimeout)
)
