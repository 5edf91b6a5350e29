package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// openMounts finds the directories of the sandbox's mounts, and holds the drives' content.
func (b *Box) openMounts() error {
	// Don't change the caller's slice.
	mounts := make([]backend.Mount, len(b.cfg.Mounts))
	for i, m := range b.cfg.Mounts {
		if cleaned, err := backend.CleanPath(m.Path, "/", "/"); err != nil || cleaned != m.Path || m.Path == "/" {
			return fmt.Errorf("%w: mount point %.80q", backend.ErrBadPath, m.Path)
		}
		dir, err := b.host.drives.hold(m.Drive, b.host.giveToUser)
		if err != nil {
			return err
		}
		b.drives = append(b.drives, dir)
		m.Dir = filepath.Join(b.dir, "m"+strconv.Itoa(i))
		if !m.Keep && b.host.backend.Layered() {
			m.Lower = dir
		}
		mounts[i] = m
	}
	b.cfg.Mounts = mounts
	return nil
}

// fillMounts creates the directories of the mounts.
func (b *Box) fillMounts() error {
	for i, m := range b.cfg.Mounts {
		var err error
		if m.Lower != "" {
			err = makeOverlay(m)
		} else {
			err = b.host.copyFiles(b.drives[i], m.Dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// saveMounts saves the sandbox's files to the drives.
func (b *Box) saveMounts() error {
	var errs []error
	for _, m := range b.cfg.Mounts {
		if _, err := os.Lstat(m.Dir); m.Keep && err == nil { // fillMounts has created it
			errs = append(errs, b.host.drives.save(m.Drive, m.Dir))
		}
	}
	return errors.Join(errs...)
}

// releaseDrives releases the drives. Call it when nothing uses them any more.
func (b *Box) releaseDrives() error {
	var errs []error
	for _, dir := range b.drives {
		errs = append(errs, b.host.drives.release(dir))
	}
	b.drives = nil
	return errors.Join(errs...)
}
