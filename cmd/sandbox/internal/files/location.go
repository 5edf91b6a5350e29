package files

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// Location is an end of a copy: a path here, a path in a sandbox, or the
// standard streams.
type Location struct {
	Sandbox string // empty for a path here
	Path    string
	Stream  bool // "-"
}

func (l Location) String() string {
	if l.Sandbox != "" {
		return l.Sandbox + ":" + l.Path
	}
	return l.Path
}

var SandboxName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// ParseLocation tells NAME:PATH, in a sandbox, from a path on this machine. A slash
// before the first colon makes it a path on this machine, and so does a Windows drive.
func ParseLocation(s string) (Location, error) {
	if s == "-" {
		return Location{Path: s, Stream: true}, nil
	}
	name, rest, ok := strings.Cut(s, ":")
	drive := len(name) == 1 && (strings.HasPrefix(rest, `\`) || runtime.GOOS == "windows")
	switch {
	case !ok || strings.ContainsAny(name, `/\`) || drive:
		return Location{Path: s}, nil
	case SandboxName.MatchString(name) && rest == "":
		return Location{Sandbox: name, Path: "."}, nil
	case SandboxName.MatchString(name) && (rest == "~" || strings.HasPrefix(rest, "~/")):
		return Location{}, line.Usagef("~ is a shell's; a path that does not begin with a slash is in the working directory, as in %s:%s", name, cmp.Or(strings.TrimLeft(rest, "~/"), "."))
	case !SandboxName.MatchString(name):
		return Location{}, line.Usagef("invalid path %q; use SANDBOX_NAME:PATH, and ./%s for a file here", s, s)
	}
	return Location{Sandbox: name, Path: rest}, nil
}

// intoDir reports whether a path asks for a directory to copy into.
func (l Location) intoDir() bool {
	return strings.HasSuffix(l.Path, "/") || l.Path == "." || l.Path == ".." || strings.HasSuffix(l.Path, "/.") || strings.HasSuffix(l.Path, "/..") ||
		l.Sandbox == "" && strings.HasSuffix(l.Path, string(filepath.Separator))
}

// NamesFile refuses a path that asks for a directory, in which a stream would have
// no name.
func (l Location) NamesFile() error {
	if l.intoDir() {
		return line.Usagef("standard input needs the name of a file, not of a directory")
	}
	return nil
}

// content reports whether the content of a directory is meant and not the
// directory itself.
func (l Location) content() bool {
	return strings.HasSuffix(l.Path, "/.") || l.Path == "." || l.Sandbox == "" && strings.HasSuffix(l.Path, string(filepath.Separator)+".")
}

// base is the last element of the path.
func (l Location) base() string {
	if l.Sandbox != "" {
		return path.Base(l.Path)
	}
	return filepath.Base(l.Path)
}

// within is the path of a name in the directory of a location.
func (l Location) within(name string) Location {
	if l.Sandbox != "" {
		l.Path = path.Join(l.Path, name)
	} else {
		l.Path = filepath.Join(l.Path, name)
	}
	return l
}

// isLocalDir reports whether there is a directory of that name here.
func isLocalDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// SplitUpload splits SOURCE[:DEST] of --upload.
func SplitUpload(s string) (from, to string) {
	i := strings.LastIndex(s, ":")
	if i < 0 || i == 1 && runtime.GOOS == "windows" {
		return s, "."
	}
	return s[:i], s[i+1:]
}
