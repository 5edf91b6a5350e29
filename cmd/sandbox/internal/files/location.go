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

// Location is the source or destination of a copy: a local path, a path in a sandbox, or
// a standard stream.
type Location struct {
	Sandbox string // empty for a local path
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

// ParseLocation reads NAME:PATH, a path in a sandbox, or else a local path. A text with a
// slash before the first colon is a local path, and so is one with a Windows drive.
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
		return Location{}, line.Usagef("~ has no meaning here; a path that does not begin with a slash is in the working directory, as in %s:%s", name, cmp.Or(strings.TrimLeft(rest, "~/"), "."))
	case !SandboxName.MatchString(name):
		return Location{}, line.Usagef("invalid path %q; use SANDBOX_NAME:PATH, and ./%s for a file here", s, s)
	}
	return Location{Sandbox: name, Path: rest}, nil
}

// intoDir reports whether the path requests a directory to copy into.
func (l Location) intoDir() bool {
	return strings.HasSuffix(l.Path, "/") || l.Path == "." || l.Path == ".." || strings.HasSuffix(l.Path, "/.") || strings.HasSuffix(l.Path, "/..") ||
		l.Sandbox == "" && strings.HasSuffix(l.Path, string(filepath.Separator))
}

// NamesFile returns an error if the path requests a directory. A stream has no name for a
// file in it.
func (l Location) NamesFile() error {
	if l.intoDir() {
		return line.Usagef("standard input needs the name of a file, not of a directory")
	}
	return nil
}

// meansContent reports whether the path means the content of a directory, and not the
// directory itself.
func (l Location) meansContent() bool {
	return strings.HasSuffix(l.Path, "/.") || l.Path == "." || l.Sandbox == "" && strings.HasSuffix(l.Path, string(filepath.Separator)+".")
}

// base returns the last element of the path.
func (l Location) base() string {
	if l.Sandbox != "" {
		return path.Base(l.Path)
	}
	return filepath.Base(l.Path)
}

// within returns the location of a name in the directory l.
func (l Location) within(name string) Location {
	if l.Sandbox != "" {
		l.Path = path.Join(l.Path, name)
	} else {
		l.Path = filepath.Join(l.Path, name)
	}
	return l
}

// isLocalDir reports whether a local directory with the name exists.
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
