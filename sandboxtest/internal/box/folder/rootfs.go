package folder

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// rootFS presents a folder as the file system of a sandbox, with the mounted drives.
// os.Root keeps names and symlinks from leading out of either.
type rootFS struct {
	root   *os.Root
	dir    string // the host's name of root, which programs find out
	mounts []rootMount
}

type rootMount struct {
	path string
	dir  string // the host's
	root *os.Root
}

// resolve returns the root that contains a name, and the name within it.
func (f rootFS) resolve(name string) (*os.Root, string) {
	clean := path.Clean("/" + name)
	if rest, ok := below(clean, f.dir); ok {
		clean = path.Clean("/" + rest)
	}
	for _, m := range f.mounts {
		for _, dir := range []string{m.path, m.dir} {
			if rest, ok := below(clean, dir); ok {
				return m.root, backend.BelowRoot(rest)
			}
		}
	}
	return f.root, backend.BelowRoot(clean)
}

// below returns the part of a clean name after dir. ok means that name is dir or in it.
func below(name, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(name, filepath.ToSlash(dir))
	return rest, ok && dir != "" && (rest == "" || rest[0] == '/')
}

func (f rootFS) Open(name string) (*os.File, error) {
	root, name := f.resolve(name)
	return root.OpenFile(name, backend.OpenFlags, 0)
}

func (f rootFS) Create(name string) (*os.File, error) {
	root, name := f.resolve(name)
	return root.OpenFile(name, backend.CreateFlags, 0o600)
}

func (f rootFS) Mkdir(name string) error {
	root, name := f.resolve(name)
	return root.Mkdir(name, 0o755)
}

func (f rootFS) Lstat(name string) (fs.FileInfo, error) {
	root, name := f.resolve(name)
	return root.Lstat(name)
}

func (f rootFS) Stat(name string) (fs.FileInfo, error) {
	root, name := f.resolve(name)
	return root.Stat(name)
}

func (f rootFS) Link(old, name string) error {
	from, oldThere := f.resolve(old)
	to, newThere := f.resolve(name)
	if from != to {
		return &os.LinkError{Op: "link", Old: old, New: name, Err: syscall.EXDEV}
	}
	return from.Link(oldThere, newThere)
}

func (f rootFS) Remove(name string) error {
	root, name := f.resolve(name)
	return root.Remove(name)
}

func (f rootFS) Chmod(name string, mode fs.FileMode) error {
	root, name := f.resolve(name)
	return root.Chmod(name, mode)
}

func (f rootFS) Chtimes(name string, mtime time.Time) error {
	root, name := f.resolve(name)
	return root.Chtimes(name, mtime, mtime)
}

// Symlink makes the link relative: an absolute target is meant within the sandbox, but the
// host's programs would resolve it outside.
func (f rootFS) Symlink(target, name string) error {
	if path.IsAbs(target) && ownPrefix(path.Clean(target)) != "" {
		if short, err := filepath.Rel(filepath.FromSlash(path.Dir(name)), filepath.FromSlash(target)); err == nil {
			target = filepath.ToSlash(short)
		}
	}
	root, name := f.resolve(name)
	return root.Symlink(filepath.FromSlash(target), name)
}
