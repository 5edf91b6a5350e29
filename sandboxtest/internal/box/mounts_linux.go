package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountDrives shows the box's drives in a root that was put together, which no
// process has seen yet.
func mountDrives(root string, mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	// A link among the box's files must not lead the mount out of the box.
	inside, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer inside.Close()
	for _, m := range mounts {
		name := rel(m.Path)
		if err := inside.MkdirAll(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the mount point %s: %w", m.Path, err)
		}
		f, err := inside.Open(name)
		if err != nil {
			return fmt.Errorf("open the mount point %s: %w", m.Path, err)
		}
		point := fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd())
		err = mountPoint{source: m.Dir, target: point, flags: unix.MS_BIND}.mount()
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// copyOwners gives the files of a copy the owners of the originals.
func copyOwners(from, to string) error {
	return filepath.WalkDir(to, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		sub, err := filepath.Rel(to, name)
		if err != nil {
			return err
		}
		info, err := os.Lstat(filepath.Join(from, sub))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		st := info.Sys().(*unixStat)
		return os.Lchown(name, int(st.Uid), int(st.Gid))
	})
}
