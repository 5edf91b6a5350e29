package cli

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// location is an end of a copy: a path here, a path in a sandbox, or the
// standard streams.
type location struct {
	sandbox string // empty for a path here
	path    string
	stream  bool // "-"
}

func (l location) String() string {
	if l.sandbox != "" {
		return l.sandbox + ":" + l.path
	}
	return l.path
}

var sandboxName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// parseLocation tells NAME:PATH from a path here. A path with a slash before its
// first colon is one here, and so is a Windows drive.
func parseLocation(s string) (location, error) {
	if s == "-" {
		return location{path: s, stream: true}, nil
	}
	name, rest, ok := strings.Cut(s, ":")
	drive := len(name) == 1 && (strings.HasPrefix(rest, `\`) || runtime.GOOS == "windows")
	switch {
	case !ok || strings.ContainsAny(name, `/\`) || drive:
		return location{path: s}, nil
	case sandboxName.MatchString(name) && rest == "":
		return location{sandbox: name, path: "."}, nil
	case sandboxName.MatchString(name) && (rest == "~" || strings.HasPrefix(rest, "~/")):
		return location{}, usagef("~ is a shell's; a path that does not begin with a slash is in the working directory, as in %s:%s", name, cmp.Or(strings.TrimLeft(rest, "~/"), "."))
	case !sandboxName.MatchString(name):
		return location{}, usagef("invalid path %q; use SANDBOX_NAME:PATH, and ./%s for a file here", s, s)
	}
	return location{sandbox: name, path: rest}, nil
}

// intoDir reports whether a path asks for a directory to copy into.
func (l location) intoDir() bool {
	return strings.HasSuffix(l.path, "/") || l.path == "." || l.path == ".." || strings.HasSuffix(l.path, "/.") || strings.HasSuffix(l.path, "/..") ||
		l.sandbox == "" && strings.HasSuffix(l.path, string(filepath.Separator))
}

// namesFile refuses a path that asks for a directory, in which a stream would have
// no name.
func (l location) namesFile() error {
	if l.intoDir() {
		return usagef("standard input needs the name of a file, not of a directory")
	}
	return nil
}

// content reports whether the content of a directory is meant and not the
// directory itself.
func (l location) content() bool {
	return strings.HasSuffix(l.path, "/.") || l.path == "." || l.sandbox == "" && strings.HasSuffix(l.path, string(filepath.Separator)+".")
}

// base is the last element of the path.
func (l location) base() string {
	if l.sandbox != "" {
		return path.Base(l.path)
	}
	return filepath.Base(l.path)
}

// within is the path of a name in the directory of a location.
func (l location) within(name string) location {
	if l.sandbox != "" {
		l.path = path.Join(l.path, name)
	} else {
		l.path = filepath.Join(l.path, name)
	}
	return l
}

// isLocalDir reports whether there is a directory of that name here.
func isLocalDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// splitUpload splits SOURCE[:DEST] of --upload.
func splitUpload(s string) (from, to string) {
	i := strings.LastIndex(s, ":")
	if i < 0 || i == 1 && runtime.GOOS == "windows" {
		return s, "."
	}
	return s[:i], s[i+1:]
}
