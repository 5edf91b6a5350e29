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
	// Drive names the drive, which is made when there is none.
	Drive string
	// Copy mounts a copy of the drive as it is when the box is made. It goes
	// with the box.
	Copy bool
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

// RemoveDrive removes a drive. Removing one that is not there is no error.
func (h *Host) RemoveDrive(id string) error { return removeAll(h.driveDir(id)) }

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
		dir, err := b.host.openDrive(m.Drive)
		if err != nil {
			return err
		}
		if m.Dir = dir; m.Copy {
			m.Dir = filepath.Join(b.dir, "m"+strconv.Itoa(i))
		}
		mounts[i] = m
	}
	b.cfg.Mounts = mounts
	return nil
}

// copyMounts fills the copies.
func (b *Box) copyMounts() error {
	for _, m := range b.cfg.Mounts {
		if !m.Copy {
			continue
		}
		if err := b.host.copyFiles(b.host.driveDir(m.Drive), m.Dir); err != nil {
			return err
		}
	}
	return nil
}
