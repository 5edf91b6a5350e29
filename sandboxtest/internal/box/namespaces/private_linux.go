package namespaces

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Sandboxes see home directories of the machine as empty, except for the folders in PATH
// and those in Options.HomeFolders. Keys and logins are in too many places to list and hide
// each.

// besidePrograms are folders that programs need, next to the folder of the programs.
var besidePrograms = []string{"include", "lib", "lib32", "lib64", "libexec", "share"}

// home is a home directory. Sandboxes see only the shown parts.
type home struct {
	dir   string
	shown []shownDir
}

// shownDir is a directory of the machine that sandboxes see, read-only, under a name in a
// home.
type shownDir struct{ name, real string }

// homes returns the home directories of this machine, and the directories that its
// environment uses instead. In each, sandboxes see the given folders and those in PATH.
func homes(folders []string) (list []home) {
	dirs := []string{"/root"}
	for _, variable := range []string{"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"} {
		if dir := os.Getenv(variable); filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, of := range []func() (string, error){os.UserHomeDir, accountHome} {
		if dir, err := of(); err == nil && filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	users, _ := os.ReadDir("/home") // a machine may have none
	for _, user := range users {
		dirs = append(dirs, filepath.Join("/home", user.Name()))
	}
	for i, dir := range dirs {
		dirs[i] = realPath(dir)
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if info, err := os.Stat(dir); dir == "" || isSystemDir(dir) || err != nil || !info.IsDir() {
			continue
		}
		shown := shownOf(dir, folders)
		if outer := slices.IndexFunc(list, func(h home) bool { return isBelow(dir, h.dir) }); outer >= 0 {
			list[outer].addShown(strings.TrimPrefix(dir, list[outer].dir+"/"), shown)
			continue
		}
		list = append(list, home{dir, shown})
	}
	return list
}

// addShown adds the shown parts of another home, which is the directory name in this one.
func (h *home) addShown(name string, shown []shownDir) {
	for _, s := range shown {
		s.name = filepath.Join(name, s.name)
		if !slices.ContainsFunc(h.shown, func(of shownDir) bool { return isBelow(s.name, of.name) }) {
			h.shown = append(h.shown, s)
		}
	}
}

// accountHome returns the user's home in the user database, which the environment does not
// change.
func accountHome() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	return u.HomeDir, nil
}

// isSystemDir reports whether a directory is a home only in name, like that of a daemon.
// Either all programs need its contents, or a sandbox has its own.
func isSystemDir(dir string) bool {
	for _, of := range []string{"/bin", "/etc", "/lib", "/lib32", "/lib64", "/nix", "/proc", "/sbin", "/sys", "/usr"} {
		if isBelow(dir, of) || isBelow(of, dir) {
			return true
		}
	}
	return slices.Contains(ownDirs, dir) || slices.Contains([]string{"/home", "/opt", "/var", "/var/lib"}, dir) || slices.Contains(filepath.SplitList(backend.SearchPath()), dir)
}

// shownOf returns the directories of a home that sandboxes see.
func shownOf(dir string, folders []string) (shown []shownDir) {
	names := slices.Clone(folders)
	for _, entry := range filepath.SplitList(backend.SearchPath()) {
		for _, entry := range []string{entry, realPath(entry)} {
			in, ok := strings.CutPrefix(entry, dir+"/")
			if !ok {
				continue
			}
			names = append(names, in)
			prefix, last := filepath.Dir(in), filepath.Base(in)
			// The folders next to ~/bin and ~/.local/bin contain more than files of
			// programs.
			if prefix == "." || prefix == ".local" || last != "bin" && last != "sbin" {
				continue
			}
			for _, name := range besidePrograms {
				names = append(names, filepath.Join(prefix, name))
			}
		}
	}
	for i := range names {
		names[i] = filepath.Clean(names[i])
	}
	slices.Sort(names)
	for _, name := range names {
		real := realPath(filepath.Join(dir, name))
		// A link may lead to the whole home.
		if !filepath.IsLocal(name) || name == "." || real == "" || isBelow(dir, real) ||
			slices.ContainsFunc(shown, func(s shownDir) bool { return isBelow(name, s.name) }) {
			continue
		}
		if info, err := os.Stat(real); err == nil && info.IsDir() {
			shown = append(shown, shownDir{name, real})
		}
	}
	return shown
}

// realPath returns a name without links, or "" if it does not exist.
func realPath(name string) string {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return ""
	}
	return real
}

// emptyHome hides the contents of a home in the layer. Sandboxes can write their own files
// there. The shown parts of the home are bound over directories that it creates in the
// layer.
func (b baseLayer) emptyHome(h home) error {
	if b.covered(h.dir) {
		return nil
	}
	info, err := os.Lstat(h.dir)
	if err != nil {
		return err
	}
	mode := info.Mode()
	if len(h.shown) > 0 {
		mode |= 0o011
	}
	err = b.copyDir(h.dir, mode)
	if err == nil {
		err = unix.Setxattr(b.name(h.dir), opaqueAttr, []byte("y"), 0)
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", h.dir, err)
	}
	return makeMountPoints(b.name(h.dir), h)
}

// makeMountPoints creates the mount points for the shown parts of a home.
func makeMountPoints(dir string, h home) error {
	var errs []error
	for _, s := range h.shown {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, s.name), 0o755))
	}
	return errors.Join(errs...)
}

// emptyHomes creates empty directories that are bound over homes. They hide homes that are
// in directories of the machine which are bound into a sandbox's root. A layer can't hide
// those.
func (n *Backend) emptyHomes() error {
	for i, h := range n.homes {
		if err := errors.Join(os.Mkdir(n.emptyHomeDir(i), 0o755), makeMountPoints(n.emptyHomeDir(i), h)); err != nil {
			return err
		}
	}
	// Don't bind file systems that are mounted in a home: they are private, too.
	n.extra = slices.DeleteFunc(n.extra, func(dir string) bool {
		return slices.ContainsFunc(n.homes, func(h home) bool {
			return dir != h.dir && isBelow(dir, h.dir) && !slices.ContainsFunc(h.shown, func(s shownDir) bool { return isBelow(dir, s.real) })
		})
	})
	return nil
}

func (n *Backend) emptyHomeDir(i int) string { return fmt.Sprintf("%s/home-%d", n.mounts, i) }

// showHomes binds the shown parts of homes into a sandbox's root. It also hides homes and
// other private files in the machine's directories that are bound there.
func (n *Backend) showHomes(root string) error {
	inside, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer inside.Close()
	// hide hides the directories in n.hidden that are below dir, which is bound to name.
	hide := func(dir, name string) (err error) {
		for _, path := range n.hidden {
			if isBelow(path, dir) {
				err = errors.Join(err, bindInside(inside, filepath.Join(n.mounts, nothingName), name+strings.TrimPrefix(path, dir)))
			}
		}
		return err
	}
	var errs []error
	for _, dir := range n.extra {
		errs = append(errs, hide(dir, dir))
	}
	for i, h := range n.homes {
		if slices.ContainsFunc(n.extra, func(dir string) bool { return isBelow(h.dir, dir) }) {
			errs = append(errs, bindInside(inside, n.emptyHomeDir(i), h.dir))
		}
		for _, s := range h.shown {
			name := filepath.Join(h.dir, s.name)
			errs = append(errs, bindInside(inside, s.real, name), hide(s.real, name))
		}
	}
	return errors.Join(errs...)
}

// bindInside binds a directory over another in a sandbox's root, read-only, unless one of
// them is missing. It does not follow a link of the sandbox out of the root.
func bindInside(inside *os.Root, source, name string) error {
	point, err := inside.OpenFile(backend.BelowRoot(name), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil // the sandbox has removed or replaced it, or its user can't reach it
	}
	defer point.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("show %s: %w", name, err)
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err == nil {
		err = unix.MoveMount(tree, "", int(point.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	}
	if err = errors.Join(err, unix.Close(tree)); err != nil {
		return fmt.Errorf("show %s: %w", name, err)
	}
	return nil
}

// nothingName is an empty directory among the backend's mounts.
const nothingName = "nothing"

// isBelow reports whether a path is dir or below it.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
