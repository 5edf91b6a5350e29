package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Of the machine's home directories, boxes see only the folders in PATH and those that
// the caller shows: keys and logins are in too many places to list them all.

// besidePrograms are folders next to a folder of programs that the programs need.
var besidePrograms = []string{"include", "lib", "lib32", "lib64", "libexec", "share"}

// home is a user's directory.
type home struct {
	dir   string
	shown []shownDir
}

// shownDir is a directory in a home that boxes see. name is its name in the home, and
// real is where its files are. If real is outside the home, name is a link.
type shownDir struct {
	name, real string
	link       bool
}

// homes returns the homes of this machine. folders are shown in each of them, in addition
// to those in PATH.
func homes(folders []string) (list []home) {
	dirs := []string{"/root"}
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
		if info, err := os.Stat(dir); dir == "" || ofSystem(dir) || err != nil || !info.IsDir() {
			continue
		}
		shown := shownOf(dir, folders)
		if outer := slices.IndexFunc(list, func(h home) bool { return isBelow(dir, h.dir) }); outer >= 0 {
			list[outer].add(strings.TrimPrefix(dir, list[outer].dir+"/"), shown)
			continue
		}
		list = append(list, home{dir, shown})
	}
	return list
}

// add shows in this home what another home shows.
func (h *home) add(name string, shown []shownDir) {
	for _, s := range shown {
		s.name = filepath.Join(name, s.name)
		if !slices.ContainsFunc(h.shown, func(of shownDir) bool { return isBelow(s.name, of.name) }) {
			h.shown = append(h.shown, s)
		}
	}
}

// accountHome returns the home in the user database, whatever the environment says.
func accountHome() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	return u.HomeDir, nil
}

// ofSystem reports whether a directory is a home only by name, as those of daemons: it
// contains what all programs need, or what a box has itself.
func ofSystem(dir string) bool {
	for _, of := range []string{"/bin", "/etc", "/lib", "/lib32", "/lib64", "/nix", "/proc", "/sbin", "/sys", "/usr"} {
		if isBelow(dir, of) || isBelow(of, dir) {
			return true
		}
	}
	return slices.Contains(ownDirs, dir) || slices.Contains([]string{"/home", "/opt", "/var", "/var/lib"}, dir) || slices.Contains(filepath.SplitList(backend.SearchPath()), dir)
}

// shownOf returns the directories of a home that boxes see.
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
			shown = append(shown, shownDir{name, real, !isBelow(real, dir)})
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

// privateNames are the private parts of directories that the environment has moved out of
// the home: logins and tokens, and what agents and browsers store.
var privateNames = map[string][]string{
	"XDG_CACHE_HOME": {"sandbox-devserver", "sandbox-sessions"},
	"XDG_CONFIG_HOME": {
		"1Password", "BraveSoftware", "chromium", "com.vercel.cli", "gcloud", "gh", "git/credentials", "google-chrome", "op", "opencode", "sandbox-cli", "temporalio",
	},
	"XDG_DATA_HOME":  {"com.vercel.cli", "keyrings", "opencode"},
	"XDG_STATE_HOME": {"sandbox-cli/daemon"},
}

// privatePaths returns where privateNames are, or would be once they are created, and the
// targets of those that are links.
func privatePaths() (paths []string) {
	for variable, names := range privateNames {
		dir := os.Getenv(variable)
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				paths = append(paths, firstMissing(path))
				continue
			} else if err != nil {
				continue
			}
			paths = append(paths, path)
			if real := realPath(path); real != "" && !slices.Contains(paths, real) {
				paths = append(paths, real)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// firstMissing returns the first of a path's directories that does not exist, or the path
// itself: a later login would be created there.
func firstMissing(path string) string {
	parent := filepath.Dir(path)
	real, err := filepath.EvalSymlinks(parent)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		return firstMissing(parent)
	}
	if err == nil {
		parent = real
	}
	return filepath.Join(parent, filepath.Base(path))
}

// coverPrivate hides homes and other private files in the layer. Boxes can write their
// own there.
func (b baseLayer) coverPrivate(list []home) error {
	var errs []error
	for _, h := range list {
		errs = append(errs, b.emptyHome(h))
	}
	for _, path := range privatePaths() {
		errs = append(errs, b.cover(path))
	}
	return errors.Join(errs...)
}

const redirectAttr = "trusted.overlay.redirect"

// emptyHome hides a home, except for the shown folders.
func (b baseLayer) emptyHome(h home) error {
	if b.covered(h.dir) {
		return nil
	}
	open := func(dir string) error {
		info, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		return b.copyDir(dir, info.Mode()|0o011)
	}
	info, err := os.Lstat(h.dir)
	if err == nil {
		err = b.copyDir(h.dir, info.Mode())
	}
	if err == nil {
		err = unix.Setxattr(b.name(h.dir), opaqueAttr, []byte("y"), 0)
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", h.dir, err)
	}
	for _, s := range h.shown {
		name := filepath.Join(h.dir, s.name)
		for dir := filepath.Dir(name); isBelow(dir, h.dir); dir = filepath.Dir(dir) {
			if err := open(dir); err != nil {
				return err
			}
		}
		if s.link {
			if err := os.Symlink(s.real, b.name(name)); err != nil {
				return err
			}
			continue
		}
		info, err := os.Lstat(s.real)
		if err == nil {
			err = b.copyDir(name, info.Mode())
		}
		if err == nil {
			// The kernel continues there in the layer below, as for a renamed directory.
			err = unix.Setxattr(b.name(name), redirectAttr, []byte(s.real), 0)
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
	}
	return nil
}

// emptyHomes prepares what is bound over homes in those directories of the machine that
// are bound into a box's root: layers can't hide anything there.
func (n *Backend) emptyHomes() error {
	for i, h := range n.homes {
		empty := n.emptyOf(i)
		if err := os.Mkdir(empty, 0o755); err != nil {
			return err
		}
		for _, s := range h.shown {
			name := filepath.Join(empty, s.name)
			if !s.link {
				if err := os.MkdirAll(name, 0o755); err != nil {
					return err
				}
				continue
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(s.real, name)); err != nil {
				return err
			}
		}
	}
	// What is mounted in a home is private, too.
	n.extra = slices.DeleteFunc(n.extra, func(dir string) bool {
		return slices.ContainsFunc(n.homes, func(h home) bool {
			return dir != h.dir && isBelow(dir, h.dir) && !slices.ContainsFunc(h.shown, func(s shownDir) bool { return isBelow(dir, s.real) })
		})
	})
	return nil
}

func (n *Backend) emptyOf(i int) string { return fmt.Sprintf("%s/home-%d", n.mounts, i) }

// coverShown hides homes and other private files in those directories of the machine that
// are bound into a box's root.
func (n *Backend) coverShown(root string, shown []string) error {
	bound := func(path string) bool {
		return slices.ContainsFunc(shown, func(dir string) bool { return isBelow(path, dir) })
	}
	for i, h := range n.homes {
		target := filepath.Join(root, h.dir)
		if info, err := os.Lstat(target); !bound(h.dir) || err != nil || !info.IsDir() {
			continue
		}
		if err := bindReadOnly(n.emptyOf(i), target); err != nil {
			return err
		}
		for _, s := range h.shown {
			if s.link {
				continue
			}
			if err := bindReadOnly(s.real, filepath.Join(target, s.name)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) {
				return err // one that was removed meanwhile, or that the user can't enter
			}
		}
	}
	for _, path := range append(privatePaths(), n.hidden...) {
		if !bound(path) {
			continue
		}
		target := filepath.Join(root, path)
		info, err := os.Lstat(target)
		if err != nil {
			continue // which the box's user can't read either
		}
		cover := "/dev/null"
		if info.IsDir() {
			cover = filepath.Join(n.mounts, nothingName)
		} else if !info.Mode().IsRegular() {
			continue // a link, whose place is covered itself
		}
		if err := bindReadOnly(cover, target); err != nil {
			return err
		}
	}
	return nil
}

// nothingName is an empty directory among the backend's mounts.
const nothingName = "nothing"

// isBelow reports whether a path is dir or below it.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
