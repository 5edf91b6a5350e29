package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// renewOverlays replaces the work directories of the overlays, because one that was used
// by a volatile overlay can't be mounted again.
func renewOverlays(mounts []backend.Mount) error {
	for _, m := range mounts {
		if m.Lower == "" {
			continue
		}
		if err := errors.Join(backend.RemoveAll(m.Work()), os.Mkdir(m.Work(), 0o700)); err != nil {
			return err
		}
	}
	return nil
}

// mountPointOf returns the mount that shows a drive's files at a mount point. The names of
// an overlay are relative to the working directory wd, so that they need no escapes.
func mountPointOf(m backend.Mount, point, wd, options string) (mountPoint, error) {
	if m.Lower == "" {
		return mountPoint{source: m.Dir, target: point, flags: unix.MS_BIND}, nil
	}
	var names [3]string
	for i, dir := range []string{m.Lower, m.Upper(), m.Work()} {
		name, err := filepath.Rel(wd, dir)
		if err != nil {
			return mountPoint{}, err
		}
		names[i] = name
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", names[0], names[1], names[2], options)
	return mountPoint{source: "drive", target: point, kind: "overlay", data: data}, nil
}

// mountDrives mounts the sandbox's drives in an assembled root that no process uses yet.
// The options are those of overlays, and wd is the working directory.
func mountDrives(root string, mounts []backend.Mount, wd, options string) error {
	if len(mounts) == 0 {
		return nil
	}
	// A link among the sandbox's files must not lead the mount out of the sandbox.
	inside, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer inside.Close()
	for _, m := range mounts {
		name := backend.BelowRoot(m.Path)
		if err := inside.MkdirAll(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the mount point %s: %w", m.Path, err)
		}
		f, err := inside.Open(name)
		if err != nil {
			return fmt.Errorf("open the mount point %s: %w", m.Path, err)
		}
		point, err := mountPointOf(m, fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd()), wd, options)
		if err == nil {
			err = point.mount()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
