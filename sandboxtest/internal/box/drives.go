package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// drives stores the drives of a host, each as a directory of numbered versions. The highest
// version is the drive's content and never changes: a sandbox's files become the next
// version in one step, so that no crash leaves a drive without its files. Older versions
// stay for sandboxes that still use them.
type drives struct {
	dir string

	mu      sync.Mutex
	held    map[string]int  // how many users a version has, by its directory
	removed map[string]bool // the removed drives that have held versions
}

// drivesName is the directory of the drives, below the host's.
const drivesName = "drives"

func newDrives(dir string) *drives {
	return &drives{dir: dir, held: make(map[string]int), removed: make(map[string]bool)}
}

// check returns an error for the first missing drive.
func (d *drives) check(ids []string) error {
	for _, id := range ids {
		if _, err := os.Stat(d.dirOf(id)); err != nil {
			return incompleteError("a drive", err)
		}
	}
	return nil
}

func (d *drives) dirOf(id string) string { return filepath.Join(d.dir, id) }

func (d *drives) versionDir(id string, n int) string {
	return filepath.Join(d.dirOf(id), strconv.Itoa(n))
}

// lastVersion returns the number of the version with a drive's content, or -1 if there is none.
func (d *drives) lastVersion(id string) (int, error) {
	entries, err := os.ReadDir(d.dirOf(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1, err
	}
	last := -1
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			last = max(last, n)
		}
	}
	return last, nil
}

// hold returns the directory of a drive's content, which does not change until release. A
// new drive is empty. give makes the sandbox's user own its directory.
func (d *drives) hold(id string, give func(dir string) error) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.lastVersion(id)
	if err != nil {
		return "", err
	}
	dir := d.versionDir(id, max(n, 0))
	if n < 0 {
		if err := backend.MkdirAll(d.dirOf(id), 0o711); err != nil {
			return "", err
		}
		if err := backend.Mkdir(dir, 0o755); err != nil {
			return "", err
		}
		if err := give(dir); err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
	}
	d.held[dir]++
	return dir, nil
}

// release ends a hold. The last hold of a replaced version, or of a removed drive, removes
// its files.
func (d *drives) release(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held[dir]--; d.held[dir] > 0 {
		return nil
	}
	delete(d.held, dir)
	id := filepath.Base(filepath.Dir(dir))
	if d.removed[id] {
		return d.removeLocked(id)
	}
	return d.removeOldLocked(id)
}

// save moves the tree at dir to make it the content of a drive.
func (d *drives) save(id, dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.lastVersion(id)
	if err != nil {
		return err
	}
	if err := backend.MkdirAll(d.dirOf(id), 0o711); err != nil {
		return err
	}
	if err := backend.MoveTree(dir, d.versionDir(id, n+1)); err != nil {
		return err
	}
	return d.removeOldLocked(id)
}

// removeOldLocked removes the versions of a drive that are neither its content nor held.
// Such versions were replaced, or belong to a killed process.
func (d *drives) removeOldLocked(id string) error {
	last, err := d.lastVersion(id)
	if err != nil {
		return err
	}
	return d.removeVersions(id, d.versionDir(id, last))
}

// removeVersions removes the versions of a drive that are not held, except one.
func (d *drives) removeVersions(id, except string) error {
	entries, err := os.ReadDir(d.dirOf(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if dir := filepath.Join(d.dirOf(id), e.Name()); dir != except && d.held[dir] == 0 {
			errs = append(errs, backend.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// remove removes a drive. Versions that sandboxes use stay until they are released.
func (d *drives) remove(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.removeLocked(id)
}

func (d *drives) removeLocked(id string) error {
	if err := d.removeVersions(id, ""); err != nil {
		return err
	}
	for dir := range d.held {
		if filepath.Dir(dir) == d.dirOf(id) {
			d.removed[id] = true
			return nil
		}
	}
	delete(d.removed, id)
	return backend.RemoveAll(d.dirOf(id))
}

// keepOnly removes all drives except the given ones, of which it removes versions that a
// killed process has left.
func (d *drives) keepOnly(ids []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if slices.Contains(ids, e.Name()) {
			errs = append(errs, d.removeOldLocked(e.Name()))
		} else {
			errs = append(errs, d.removeLocked(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// MakeDrive creates an empty drive.
func (h *Host) MakeDrive(id string) error { return backend.MkdirAll(h.drives.dirOf(id), 0o711) }

// RemoveDrive removes a drive. It succeeds if there is none. Sandboxes that have it mounted
// read-only keep its files.
func (h *Host) RemoveDrive(id string) error { return h.drives.remove(id) }

// KeepDrives removes every drive except those given.
func (h *Host) KeepDrives(ids []string) error { return h.drives.keepOnly(ids) }

// CopyDrive creates a drive with a copy of another drive's files.
func (h *Host) CopyDrive(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := h.drives.hold(from, h.giveToUser)
	if err != nil {
		return fmt.Errorf("box: copy a drive: %w", err)
	}
	made := h.store.boxDir(backend.NewID()) // if this process dies first, the next one removes it
	if err = h.copyFiles(dir, made); err == nil {
		err = h.drives.save(to, made)
	}
	if err = errors.Join(err, h.drives.release(dir)); err != nil {
		return errors.Join(fmt.Errorf("box: copy a drive: %w", err), backend.RemoveAll(made), h.RemoveDrive(to))
	}
	return nil
}

// giveToUser makes the sandbox's user own a new directory, if sandboxes have users.
func (h *Host) giveToUser(dir string) error {
	if h.Mode() == Folder || os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(dir, backend.UserID, backend.GroupID)
}

// copyFiles copies a tree with its owners, if sandboxes have users.
func (h *Host) copyFiles(from, to string) error {
	if err := backend.CopyTree(from, to); err != nil {
		return err
	}
	if h.Mode() == Folder || os.Geteuid() != 0 {
		return nil
	}
	return copyOwners(from, to)
}
