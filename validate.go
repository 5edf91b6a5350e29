package sandbox

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/filefilter"
	"github.com/go-vercel/sandbox/internal/wire"
)

// checkName refuses names that would reach another route of the API.
func checkName(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "is empty; a sandbox name is needed")
	case name == ".", name == "..", slices.Contains(wire.ReservedNames, name):
		return invalid(field, "%q can't be the name of a sandbox: the API has another meaning for it", name)
	}
	return checkText(field, name)
}

// checkID refuses IDs that would reach another route of the API. The argument
// is called id everywhere.
func checkID(id string) error {
	const field = "id"
	switch id {
	case "":
		return invalid(field, "is empty; an ID is needed")
	case ".", "..", "tree":
		return invalid(field, "%q can't be an ID: the API has another meaning for it", id)
	}
	return checkText(field, id)
}

// checkRoute refuses names and IDs that would reach another route than the
// operation's, wherever they come from: an argument, JSON or the API itself.
func checkRoute(req *api.Request) error {
	for i, value := range req.Path {
		check := checkID
		if req.Op.Placeholders[i] == "sandbox" {
			check = func(name string) error { return checkName("name", name) }
		}
		if err := check(value); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, s string) error {
	if err := wire.CheckText(s); err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}

// checkNewName refuses names that no sandbox can have.
func checkNewName(field, name string) error {
	if err := checkName(field, name); err != nil {
		return err
	}
	switch {
	case len(name) > wire.MaxName:
		return invalid(field, "has %d characters; a name has at most %d", len(name), wire.MaxName)
	case !wire.SandboxName(name):
		return invalid(field, "%q can't be the name of a sandbox: letters, digits, - and _ are allowed", name)
	}
	return nil
}

func checkDuration(field string, d time.Duration) error {
	if d < 0 {
		return invalid(field, "%v is negative", d)
	}
	if d > 0 && d < time.Millisecond {
		return invalid(field, "%v is below a millisecond, the API's unit", d)
	}
	return nil
}

// checkRange refuses a duration that is set but outside of the API's range.
func checkRange(field string, d, least, most time.Duration) error {
	if err := checkDuration(field, d); err != nil || d == 0 {
		return err
	}
	if d < least || d > most {
		return invalid(field, "%v is outside %v to %v", d, least, most)
	}
	return nil
}

// checkVCPUs refuses sizes that no sandbox can have.
func checkVCPUs(field string, n int) error {
	switch {
	case n < 0:
		return invalid(field, "%d is negative", n)
	case n != 0 && !wire.VCPUs(n):
		return invalid(field, "%d is odd; 1 or an even number is needed", n)
	}
	return nil
}

// checkPort refuses numbers that are not ports.
func checkPort(field string, port int) error {
	if port < 1 || port > wire.MaxPort {
		return invalid(field, "%d is outside 1 to %d", port, wire.MaxPort)
	}
	return nil
}

// checkPorts refuses ports that can't be exposed.
func checkPorts(field string, ports []int) error {
	if len(ports) > wire.MaxPorts {
		return invalid(field, "%d ports are given; at most %d can be exposed", len(ports), wire.MaxPorts)
	}
	for i, p := range ports {
		if p < wire.MinPort || p > wire.MaxPort {
			return invalid(field, "port %d (number %d of the list) can't be exposed: it is outside %d to %d", p, i+1, wire.MinPort, wire.MaxPort)
		}
	}
	return nil
}

func checkTags(field string, tags map[string]string) error {
	if len(tags) > wire.MaxTags {
		return invalid(field, "%d tags are given; a sandbox has at most %d", len(tags), wire.MaxTags)
	}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		v := tags[k]
		switch {
		case k == "":
			return invalid(field, "a tag has no key")
		case utf8.RuneCountInString(k) > wire.MaxTagKey:
			return invalid(field, "the key %.20q… has %d characters; at most %d are allowed", k, utf8.RuneCountInString(k), wire.MaxTagKey)
		case utf8.RuneCountInString(v) > wire.MaxTagValue:
			return invalid(field, "the value of %q has %d characters; at most %d are allowed", k, utf8.RuneCountInString(v), wire.MaxTagValue)
		}
		if err := cmp.Or(checkText(field, k), checkText(field, v)); err != nil {
			return err
		}
	}
	return nil
}

// checkSandboxEnv refuses an environment that no sandbox can have. How the API
// counts is not documented; names and values alone are a lower bound.
func checkSandboxEnv(field string, env Env) error {
	if err := checkEnv(field, env); err != nil {
		return err
	}
	size := 0
	for k, v := range env {
		size += len(k) + len(v)
	}
	if size > wire.MaxEnv {
		return invalid(field, "names and values have %d bytes; a sandbox's environment has at most %d in all", size, wire.MaxEnv)
	}
	return nil
}

func checkEnv(field string, env Env) error {
	if err := wire.CheckEnv(env); err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}

// defaultCwd is the working directory if the API does not report one.
const defaultCwd = "/vercel/sandbox"

// absolutePath resolves name in cwd and cleans it.
func absolutePath(cwd, name string) (string, error) {
	cwd = cmp.Or(cwd, defaultCwd)
	if !path.IsAbs(cwd) {
		return "", invalid("Cwd", "the working directory %q is not an absolute path", cwd)
	}
	if strings.IndexByte(cwd, 0) >= 0 || strings.IndexByte(name, 0) >= 0 {
		return "", invalid("Path", "%q in %q contains a NUL byte", name, cwd)
	}
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	return path.Join(cwd, name), nil
}

// filePath is absolutePath for the path of a file. It refuses paths that are
// known to name a directory, because a file in an archive would replace it.
func filePath(cwd, name string) (string, error) {
	if name == "" {
		return "", invalid("Path", "is empty")
	}
	abs, err := absolutePath(cwd, name)
	if err != nil {
		return "", err
	}
	cwd = cmp.Or(cwd, defaultCwd)
	if isWithin(path.Clean(cwd), abs) {
		return "", invalid("Path", "%q is a directory (%s), which a file would replace", name, abs)
	}
	return abs, nil
}

// isWithin reports whether the absolute clean path p is dir or in it.
func isWithin(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// entryName returns the name in an archive that is unpacked at /.
func entryName(abs string) string { return strings.TrimPrefix(abs, "/") }

// newFilter checks the patterns of UploadOptions and DownloadDirOptions.
func newFilter(include, exclude []string) (*filefilter.Filter, error) {
	f, err := filefilter.New(include, exclude)
	if e, ok := errors.AsType[*filefilter.Error](err); ok {
		return nil, invalid(e.List, "%q: %v", e.Pattern, e.Err)
	}
	return f, err
}
