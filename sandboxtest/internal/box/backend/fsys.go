package backend

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
)

// FileSystem is the file system of a sandbox. Names are clean absolute paths of the
// sandbox. Programs of the sandbox can replace a file at any time, for example by a pipe.
// Open and Create use OpenFlags, so that they never wait.
type FileSystem interface {
	// Open opens a file for reading.
	Open(name string) (*os.File, error)
	// Create opens a file for writing and truncates it. A new file is for its owner alone.
	Create(name string) (*os.File, error)
	Mkdir(name string) error
	Lstat(name string) (fs.FileInfo, error)
	Stat(name string) (fs.FileInfo, error)
	Symlink(target, name string) error
	Link(old, name string) error
	Remove(name string) error
	Chmod(name string, mode fs.FileMode) error
	Chtimes(name string, mtime time.Time) error
}

// CreateFlags are for files that are written.
const CreateFlags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | OpenFlags

// maxPath is the kernel's limit.
const maxPath = 4096

// CleanPath returns a clean absolute path in the sandbox. name may be relative to cwd, which
// may be relative to workDir. ".." does not lead above the root.
func CleanPath(name, cwd, workDir string) (string, error) {
	cwd = cmp.Or(cwd, workDir)
	if strings.ContainsRune(name, 0) || strings.ContainsRune(cwd, 0) {
		return "", fmt.Errorf("box: %w: NUL byte", ErrBadPath)
	}
	if !path.IsAbs(cwd) {
		cwd = path.Join(workDir, cwd)
	}
	if !path.IsAbs(name) {
		name = cwd + "/" + name
	}
	name = path.Clean("/" + name)
	if len(name) >= maxPath {
		return "", fmt.Errorf("box: %w: longer than %d bytes", ErrBadPath, maxPath)
	}
	return name, nil
}

// OpenFile opens a file for reading. withFS calls its argument with the file system.
func OpenFile(withFS func(func(FileSystem) error) error, name string) (file io.ReadCloser, err error) {
	err = withFS(func(f FileSystem) (err error) {
		opened, err := inside.OpenRegular(name, f.Stat, f.Open)
		if err == nil {
			file = opened
		}
		return err
	})
	return file, err
}

// MakeDir makes a directory. With parents it makes those too, and succeeds if the
// directory exists.
func MakeDir(f FileSystem, name string, parents bool) error {
	if parents {
		return mkdirAllIn(f, name)
	}
	return f.Mkdir(name)
}

// mkdirAllIn makes a directory and its missing parents.
func mkdirAllIn(f FileSystem, name string) error {
	info, err := f.Stat(name)
	if err == nil {
		if info.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: name, Err: inside.ErrNotDir}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := path.Dir(name); parent != name {
		if err := mkdirAllIn(f, parent); err != nil {
			return err
		}
	}
	err = f.Mkdir(name)
	if errors.Is(err, fs.ErrExist) {
		// Another program has created it, or it is a dangling link.
		if info, serr := f.Stat(name); serr == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// BelowRoot returns a name relative to the root.
func BelowRoot(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return filepath.FromSlash(name)
}
