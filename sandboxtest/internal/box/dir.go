package box

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

const lockName = "lock"

// openDir takes the host's directory for itself; without one it makes one in
// parent.
func (h *Host) openDir(dir, parent string) error {
	if dir == "" {
		sweep(parent)
		var err error
		if dir, err = os.MkdirTemp(parent, tempPrefix); err != nil {
			return err
		}
		// Processes of the box's user pass through it in folder mode.
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
		h.temp = true
	} else if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	h.dir = dir
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("directory %s is in use by another host", dir)
	}
	h.unlock = lock.Unlock
	return nil
}

func (h *Host) closeDir() error {
	var err error
	if h.temp {
		err = removeAll(h.dir)
	}
	if h.unlock != nil {
		if uerr := h.unlock(); err == nil {
			err = uerr
		}
	}
	return err
}

// sweep removes the temporary directories of hosts that died without Close:
// their lock is free.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), tempPrefix) {
			continue
		}
		dir := filepath.Join(parent, entry.Name())
		name := filepath.Join(dir, lockName)
		if _, err := os.Lstat(name); err != nil {
			continue // not locked yet by the host that is creating it
		}
		lock := flock.New(name, flock.SetFlag(os.O_RDWR))
		if ok, err := lock.TryLock(); err == nil && ok {
			_ = removeAll(dir)
			_ = lock.Unlock()
		}
	}
}

// newID makes a short random name; short because overlayfs takes the names of
// all layers of a chain in one page.
func newID() string {
	return strings.ToLower(rand.Text()[:8])
}
