package backend

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Mkdir makes a directory of that mode, whatever the umask of this process, which
// belongs to whoever has started it.
func Mkdir(name string, mode fs.FileMode) error {
	if err := os.Mkdir(name, mode); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// MkdirAll makes a directory, unless there is one, and its missing parents, all of
// that mode.
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
		return nil // another has made it
	}
	return err
}

// NewID makes a short random name; short because overlayfs takes the names of
// all layers of a chain in one page.
func NewID() string {
	return strings.ToLower(rand.Text()[:8])
}

// RemoveAll removes a tree even where a directory in it can't be written to.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	// Through a root, so that a link that takes a directory's place meanwhile
	// leads nowhere else.
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
