package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Mount is a drive at a path of a box.
type Mount struct {
	// Path is absolute and clean.
	Path string
	// Drive names the drive, which is made when there is none. The box works on
	// its files as they are when it is made.
	Drive string
	// Keep makes what the box has made of the files the drive's own when it is
	// frozen or removed.
	Keep bool
	// Dir is where the files are on the host. [Host.New] sets it.
	Dir string
}

func (h *Host) driveDir(id string) string { return filepath.Join(h.dir, "drives", id) }

// openDrive makes the directory of a drive, which belongs to the box's user.
func (h *Host) openDrive(id string) (string, error) {
	dir := h.driveDir(id)
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return "", err
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		// What keepDrive was interrupted in.
		if err := os.Rename(dir+oldSuffix, dir); err == nil {
			return dir, nil
		}
	}
	err := os.Mkdir(dir, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		return dir, nil
	case err != nil:
		return "", err
	}
	return dir, h.giveToUser(dir)
}

// giveToUser makes a new directory that of the box's user, where boxes have
// users.
func (h *Host) giveToUser(dir string) error {
	if h.Mode() == Folder || os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(dir, UserID, GroupID)
}

// oldSuffix marks the files of a drive that newer ones are about to replace.
const oldSuffix = ".old"

// keepDrive makes the files in dir those of a drive, in a way that no crash
// leaves it without any.
func (h *Host) keepDrive(id, dir string) error {
	drive, err := h.openDrive(id)
	if err != nil {
		return err
	}
	err = errors.Join(removeAll(drive+oldSuffix), os.Rename(drive, drive+oldSuffix))
	if err == nil {
		err = os.Rename(dir, drive)
	}
	if err == nil {
		err = removeAll(drive + oldSuffix)
	}
	return err
}

// RemoveDrive removes a drive. Removing one that is not there is no error.
func (h *Host) RemoveDrive(id string) error {
	dir := h.driveDir(id)
	return errors.Join(removeAll(dir+oldSuffix), removeAll(dir))
}

// CopyDrive makes a drive that begins with the files of another one.
func (h *Host) CopyDrive(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := h.openDrive(from)
	if err == nil {
		err = h.copyFiles(dir, h.driveDir(to))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("box: copy a drive: %w", err), h.RemoveDrive(to))
	}
	return nil
}

// copyFiles copies a tree with its owners, where boxes have users.
func (h *Host) copyFiles(from, to string) error {
	if err := copyTree(from, to); err != nil {
		return err
	}
	if h.Mode() == Folder || os.Geteuid() != 0 {
		return nil
	}
	return copyOwners(from, to)
}

// openMounts finds the directories of the box's mounts.
func (b *Box) openMounts() error {
	// The caller's slice is not ours to write to.
	mounts := make([]Mount, len(b.cfg.Mounts))
	for i, m := range b.cfg.Mounts {
		if cleaned, err := cleanPath(m.Path, "/", "/"); err != nil || cleaned != m.Path || m.Path == "/" {
			return fmt.Errorf("%w: mount point %.80q", ErrBadPath, m.Path)
		}
		if _, err := b.host.openDrive(m.Drive); err != nil {
			return err
		}
		m.Dir = filepath.Join(b.dir, "m"+strconv.Itoa(i))
		mounts[i] = m
	}
	b.cfg.Mounts = mounts
	return nil
}

// copyMounts fills the directories of the mounts.
func (b *Box) copyMounts() error {
	for _, m := range b.cfg.Mounts {
		if err := b.host.copyFiles(b.host.driveDir(m.Drive), m.Dir); err != nil {
			return err
		}
	}
	return nil
}

// keepMounts gives the drives what the box has made of them.
func (b *Box) keepMounts() error {
	var errs []error
	for _, m := range b.cfg.Mounts {
		if _, err := os.Lstat(m.Dir); m.Keep && err == nil { // it was made
			errs = append(errs, b.host.keepDrive(m.Drive, m.Dir))
		}
	}
	return errors.Join(errs...)
}
