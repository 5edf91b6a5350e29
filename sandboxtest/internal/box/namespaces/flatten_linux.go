package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Each stop of a sandbox adds a layer, and the kernel stacks at most 500, so chains have to
// be made shorter. This file merges a chain into a new layer, which shares the files with
// the old ones by hard links. It follows the rules of the kernel's documentation of
// overlayfs. TestFlattenedChain compares the trees before and after.
//
// A copy of the mounted chain would not be a layer. It would not record which files of the
// machine's root are deleted and which directories hide those below, and it would contain
// the whole root. Other tools (containers/storage, overlayfs-tools) change a layer: they
// merge it into the one below, which other sandboxes may use. They require root, and
// support neither the attributes of an unprivileged overlay nor a base that remains below.

// merger merges a chain into one layer, without the base below all layers. It follows the
// rules by which overlayfs looks up names.
type merger struct {
	layers []string // directories, newest first
	attrs  string   // the prefix of overlayfs's attributes
	bases  []*merger
}

// layerDir is a directory in one layer.
type layerDir struct {
	layer int
	path  string
}

// mergedDir is a directory as the whole chain shows it.
type mergedDir struct {
	dirs []layerDir // newest first
	// below is its directory in the base, or empty if there is none.
	below string
}

func (n *Backend) Flatten(chain []string, dir string) error {
	m := &merger{attrs: "trusted.overlay."}
	if n.rootless {
		m.attrs = "user.overlay."
	}
	for _, layer := range chain {
		m.layers = append(m.layers, filepath.Join(n.dir, "l", layer))
	}
	m.bases = n.machineBases(m.attrs)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// Only the backend's threads see the bases.
	return n.pool.Do(func() error { return m.merge(dir, mergedDir{dirs: m.roots(0), below: "/"}, map[string]string{}) })
}

// machineBases returns the bases of chains of layers over the machine's root.
func (n *Backend) machineBases(attrs string) (bases []*merger) {
	for _, a := range backend.Accounts {
		base := &merger{attrs: attrs, layers: []string{filepath.Join(n.mounts, baseName(a))}}
		if !n.rootless {
			base.layers = append(base.layers, "/")
		}
		bases = append(bases, base)
	}
	return bases
}

// baseHas reports whether a base has a name. If the chain has deleted such a name, the
// merged layer needs a whiteout for it. Other whiteouts are omitted: they would accumulate
// for every name that ever existed, and overlayfs would list them in a directory that no
// other layer has.
func (m *merger) baseHas(name string) (bool, error) {
	for _, base := range m.bases {
		found, isDir := mergedDir{dirs: base.roots(0)}, true
		for part := range strings.SplitSeq(strings.TrimPrefix(name, "/"), "/") {
			if !isDir {
				found.dirs = nil
			}
			var err error
			if found, isDir, err = base.lookUp(found, part); err != nil {
				return false, err
			}
		}
		if len(found.dirs) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// roots returns the roots of the layers from index from on.
func (m *merger) roots(from int) []layerDir {
	var list []layerDir
	for i := from; i < len(m.layers); i++ {
		list = append(list, layerDir{i, "/"})
	}
	return list
}

func (m *merger) name(p layerDir) string { return filepath.Join(m.layers[p.layer], p.path) }

// merge fills the new directory to with the contents of d. It then sets d's attributes,
// so that new files don't inherit them.
func (m *merger) merge(to string, d mergedDir, overlayAttrs map[string]string) error {
	seen := make(map[string]bool)
	for _, p := range d.dirs {
		entries, err := os.ReadDir(m.name(p))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if seen[e.Name()] {
				continue
			}
			seen[e.Name()] = true
			if err := m.entry(to, d, e.Name()); err != nil {
				return err
			}
		}
	}
	return m.copyAttributes(m.name(d.dirs[0]), to, overlayAttrs)
}

// entry creates d's entry with a name in the directory to.
func (m *merger) entry(to string, d mergedDir, name string) error {
	target := filepath.Join(to, name)
	sub, isDir, err := m.lookUp(d, name)
	switch {
	case err != nil:
		return err
	case len(sub.dirs) == 0 && d.below == "": // nothing is left to hide
		return nil
	case len(sub.dirs) == 0:
		has, err := m.baseHas(path.Join(d.below, name))
		if err != nil || !has {
			return err
		}
		return unix.Mknod(target, unix.S_IFCHR, 0)
	case !isDir:
		// Layers are never written to, so they can share files: the cost of a link does
		// not depend on the size, and the file keeps all its attributes.
		return os.Link(m.name(sub.dirs[0]), target)
	}
	if err := os.Mkdir(target, 0o700); err != nil {
		return err
	}
	overlayAttrs := make(map[string]string)
	switch natural := path.Join(d.below, name); {
	case d.below == "" && sub.below == "", d.below != "" && sub.below == natural:
	case sub.below == "":
		overlayAttrs[m.attrs+"opaque"] = "y"
	default: // it was renamed
		overlayAttrs[m.attrs+"redirect"] = sub.below
	}
	return m.merge(target, sub, overlayAttrs)
}

// lookUp finds a name in a directory: in all layers where it is a directory, or in the one
// layer where it is something else. It finds nothing if the name was removed.
func (m *merger) lookUp(d mergedDir, name string) (found mergedDir, isDir bool, err error) {
	q := query{names: []string{name}}
	for rest := d.dirs; len(rest) > 0; {
		at := rest[0]
		rest = rest[1:]
		hit, err := m.lookIn(at, &q, isDir)
		if err != nil {
			return mergedDir{}, false, err
		}
		if hit != nil {
			found.dirs = append(found.dirs, layerDir{at.layer, hit.path})
			isDir = hit.isDir
		}
		if q.ended {
			return found, isDir, nil
		}
		if q.moved {
			q.moved, rest = false, m.roots(at.layer+1)
		}
	}
	switch {
	case q.absolute:
		found.below = "/" + path.Join(q.names...)
	case d.below != "":
		found.below = path.Join(d.below, path.Join(q.names...))
	}
	return found, isDir, nil
}

// query is what to look for in the next layer.
type query struct {
	names    []string // from the directory on, or from the root
	absolute bool
	moved    bool // names are relative to the root of the next layer
	ended    bool // the layers below don't matter
}

type hit struct {
	path  string
	isDir bool
}

// lookIn looks into one layer. Its directories may have other names in the layers below.
func (m *merger) lookIn(at layerDir, q *query, wantDir bool) (*hit, error) {
	names, dir := q.names, at.path
	for i, name := range names {
		left := names[i+1:]
		dir = path.Join(dir, name)
		full := m.name(layerDir{at.layer, dir})
		info, err := os.Lstat(full)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if isWhiteout(info) {
			q.ended = true
			return nil, nil
		}
		if !info.IsDir() {
			q.ended = true
			if wantDir || len(left) > 0 {
				return nil, nil
			}
			return &hit{path: dir}, nil
		}
		opaque, err := getAttribute(full, m.attrs+"opaque")
		if err != nil {
			return nil, err
		}
		if opaque == "y" {
			q.ended = true
			continue
		}
		redirect, err := getAttribute(full, m.attrs+"redirect")
		if err != nil {
			return nil, err
		}
		if redirect == "" {
			continue
		}
		before := q.names[:len(q.names)-len(left)-1]
		if strings.HasPrefix(redirect, "/") {
			q.absolute, q.moved, before = true, true, nil
		}
		moved := strings.Split(strings.Trim(redirect, "/"), "/")
		if slices.ContainsFunc(moved, func(part string) bool { return part == "" || part == "." || part == ".." }) {
			return nil, fmt.Errorf("%s is redirected to %q", full, redirect)
		}
		q.names = slices.Concat(before, moved, left)
	}
	return &hit{dir, true}, nil
}

// isWhiteout reports whether a file marks its name as deleted.
func isWhiteout(info fs.FileInfo) bool {
	st := info.Sys().(*syscall.Stat_t)
	return info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// getAttribute returns an extended attribute, or "" if there is none.
func getAttribute(name, attr string) (string, error) {
	for size := 256; ; size *= 4 {
		value := make([]byte, size)
		n, err := unix.Lgetxattr(name, attr, value)
		switch {
		case err == unix.ERANGE:
			continue
		case err == unix.ENODATA, err == unix.ENOTSUP:
			return "", nil
		case err != nil:
			return "", &fs.PathError{Op: "getxattr " + attr, Path: name, Err: err}
		}
		return string(value[:n]), nil
	}
}

// copyAttributes copies the owner, the mode, the extended attributes and the times of a
// directory, and sets attrs, which are overlayfs's attributes.
func (m *merger) copyAttributes(from, to string, attrs map[string]string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	list := make([]byte, 64<<10) // Linux allows no more
	n, err := unix.Llistxattr(from, list)
	if err != nil && err != unix.ENOTSUP {
		return &fs.PathError{Op: "listxattr", Path: from, Err: err}
	}
	for attr := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
		// Skip overlayfs's attributes, except those of an overlay within the sandbox.
		if attr == "" || strings.HasPrefix(attr, m.attrs) && !strings.HasPrefix(attr, m.attrs+"overlay.") {
			continue
		}
		if attrs[attr], err = getAttribute(from, attr); err != nil {
			return err
		}
	}
	for attr, value := range attrs {
		if err := unix.Lsetxattr(to, attr, []byte(value), 0); err != nil {
			return &fs.PathError{Op: "setxattr " + attr, Path: to, Err: err}
		}
	}
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := os.Chmod(to, info.Mode()); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{unix.Timespec(st.Atim), unix.Timespec(st.Mtim)}, unix.AT_SYMLINK_NOFOLLOW)
}
