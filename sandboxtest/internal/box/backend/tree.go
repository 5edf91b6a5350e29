package backend

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Mkdir creates a directory with a mode, whatever the umask of this process.
func Mkdir(name string, mode fs.FileMode) error {
	if err := os.Mkdir(name, mode); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// MkdirAll creates a directory and its missing parents, all with the mode. It succeeds if
// the directory exists.
func MkdirAll(name string, mode fs.FileMode) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(name); parent != name {
		if err := MkdirAll(parent, mode); err != nil {
			return err
		}
	}
	err := Mkdir(name, mode)
	if info, statErr := os.Stat(name); errors.Is(err, fs.ErrExist) && statErr == nil && info.IsDir() {
		return nil // another process has created it
	}
	return err
}

// NewID returns a short random name. It is short because the names of all layers of an
// overlayfs mount must fit into one page.
func NewID() string {
	return strings.ToLower(rand.Text()[:8])
}

// RemoveAll removes a tree even if a directory in it is not writable.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	// Use a root, so that a link that replaces a directory in the meantime can't lead
	// outside.
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		_ = os.Chmod(dir, 0o700)
	}
	if root, err := os.OpenRoot(dir); err == nil {
		_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = root.Chmod(path, 0o700)
			}
			return nil
		})
		_ = root.Close()
	}
	return os.RemoveAll(dir)
}

// DiskUsage returns the disk space of the files in a tree.
func DiskUsage(dir string) (int64, error) {
	var size int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a last process of the sandbox has just removed it
		}
		if err == nil && info.Mode().IsRegular() {
			size += storedSize(info)
		}
		return err
	})
	return size, err
}
