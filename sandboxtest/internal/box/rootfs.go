package box

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// rootFS is a folder as the file system of a box. os.Root sees to it that no
// name and no symlink leads out of it.
type rootFS struct{ root *os.Root }

// rel is a name below the root.
func rel(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return filepath.FromSlash(name)
}

func (f rootFS) Open(name string) (*os.File, error) { return f.root.Open(rel(name)) }
func (f rootFS) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return f.root.OpenFile(rel(name), flag, perm)
}
func (f rootFS) Mkdir(name string, perm fs.FileMode) error { return f.root.Mkdir(rel(name), perm) }
func (f rootFS) Lstat(name string) (fs.FileInfo, error)    { return f.root.Lstat(rel(name)) }
func (f rootFS) Stat(name string) (fs.FileInfo, error)     { return f.root.Stat(rel(name)) }
func (f rootFS) Link(old, name string) error               { return f.root.Link(rel(old), rel(name)) }
func (f rootFS) Remove(name string) error                  { return f.root.Remove(rel(name)) }
func (f rootFS) Chmod(name string, mode fs.FileMode) error { return f.root.Chmod(rel(name), mode) }
func (f rootFS) Chtimes(name string, mtime time.Time) error {
	return f.root.Chtimes(rel(name), mtime, mtime)
}

// Symlink makes the link relative: an absolute target means one inside the
// box, which the host's programs would not know.
func (f rootFS) Symlink(target, name string) error {
	if path.IsAbs(target) && ownPrefix(path.Clean(target)) != "" {
		if short, err := filepath.Rel(filepath.FromSlash(path.Dir(name)), filepath.FromSlash(target)); err == nil {
			target = filepath.ToSlash(short)
		}
	}
	return f.root.Symlink(filepath.FromSlash(target), rel(name))
}
