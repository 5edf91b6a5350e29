package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeOverlay makes the directories of an overlay over the drive's files. Its root
// looks like that of the drive.
func (m Mount) makeOverlay() error {
	if err := mkdirs(m.upper(), 0o711); err != nil {
		return err
	}
	info, err := os.Stat(m.Lower)
	if err != nil {
		return err
	}
	st := info.Sys().(*unixStat)
	if os.Geteuid() == 0 {
		if err := os.Chown(m.upper(), int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(m.upper(), info.Mode().Perm())
}

// renewOverlays replaces the work directories of the overlays, since one with the
// mark of a volatile overlay can't be mounted again.
func renewOverlays(mounts []Mount) error {
	for _, m := range mounts {
		if m.Lower == "" {
			continue
		}
		if err := errors.Join(removeAll(m.work()), os.Mkdir(m.work(), 0o700)); err != nil {
			return err
		}
	}
	return nil
}

// mountPoint is what shows the mount's files at a point. The names of an overlay
// are relative to the working directory wd, which avoids escapes.
func (m Mount) mountPoint(point, wd, options string) (mountPoint, error) {
	if m.Lower == "" {
		return mountPoint{source: m.Dir, target: point, flags: unix.MS_BIND}, nil
	}
	var names [3]string
	for i, dir := range []string{m.Lower, m.upper(), m.work()} {
		name, err := filepath.Rel(wd, dir)
		if err != nil {
			return mountPoint{}, err
		}
		names[i] = name
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", names[0], names[1], names[2], options)
	return mountPoint{source: "drive", target: point, kind: "overlay", data: data}, nil
}

// mountDrives mounts the box's drives in an assembled root that no process uses
// yet. The options are those of overlays, and wd is the working directory.
func mountDrives(root string, mounts []Mount, wd, options string) error {
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
		point, err := m.mountPoint(fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd()), wd, options)
		if err == nil {
			err = point.mount()
		}
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
		if err := os.Lchown(name, int(st.Uid), int(st.Gid)); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		return copyStamps(filepath.Join(from, sub), name, info) // since a change of owner clears some
	})
}
