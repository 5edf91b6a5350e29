package backend

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// FileSystem is the file system of a box. Names are clean absolute paths in the box.
// Programs in the box can replace a file by anything at any time, so Open and OpenFile
// never wait: they add OpenFlags.
type FileSystem interface {
	Open(name string) (*os.File, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Mkdir(name string, perm fs.FileMode) error
	Lstat(name string) (fs.FileInfo, error)
	Stat(name string) (fs.FileInfo, error)
	Symlink(target, name string) error
	Link(old, name string) error
	Remove(name string) error
	Chmod(name string, mode fs.FileMode) error
	Chtimes(name string, mtime time.Time) error
}

// maxPath is the kernel's limit.
const maxPath = 4096

// CleanPath returns a clean absolute path in the box. name may be relative to cwd, which
// may be relative to workDir. ".." does not lead above the root.
func CleanPath(name, cwd, workDir string) (string, error) {
	if cwd == "" {
		cwd = workDir
	}
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

// OpenFile opens a file for reading in a borrowed file system.
func OpenFile(lend func(func(FileSystem) error) error, name string) (file io.ReadCloser, size int64, err error) {
	err = lend(func(f FileSystem) (err error) {
		opened, n, err := openRegular(f, name)
		if err == nil {
			file, size = opened, n
		}
		return err
	})
	return file, size, err
}

// openRegular opens a regular file, which has a size and an end.
func openRegular(f FileSystem, name string) (*os.File, int64, error) {
	info, err := f.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if err := regular(name, info); err != nil {
		return nil, 0, err
	}
	file, err := f.Open(name)
	if err != nil {
		return nil, 0, err
	}
	// A program may have replaced it in the meantime.
	if info, err = file.Stat(); err == nil {
		err = regular(name, info)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func regular(name string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: name, Err: ErrIsDir}
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	return nil
}

var (
	ErrIsDir      = errors.New("is a directory")
	ErrNotDir     = errors.New("not a directory")
	ErrNotRegular = errors.New("not a regular file")
)

// MakeDir creates a directory. With parents it also creates missing parents, and succeeds
// if the directory exists.
func MakeDir(f FileSystem, name string, parents bool) error {
	if parents {
		return mkdirAllIn(f, name)
	}
	return f.Mkdir(name, 0o755)
}

// mkdirAllIn makes a directory and its missing parents.
func mkdirAllIn(f FileSystem, name string) error {
	info, err := f.Stat(name)
	if err == nil {
		if info.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: name, Err: ErrNotDir}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := path.Dir(name); parent != name {
		if err := mkdirAllIn(f, parent); err != nil {
			return err
		}
	}
	err = f.Mkdir(name, 0o755)
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
