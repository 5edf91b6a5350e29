package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// imageMounts are the images that a backend's boxes can stand on.
type imageMounts struct {
	mu   sync.Mutex
	open map[ImageID]*imageMount
}

// imageMount is one of them.
type imageMount struct {
	lower string // the lowest layers, as boxes name them
	tree  string // the image's files
	base  string // what boxes have over them
}

func (n *namespaceBackend) addImage(id ImageID, tree string) error {
	n.images.mu.Lock()
	defer n.images.mu.Unlock()
	if n.images.open[id] != nil {
		return nil
	}
	var m *imageMount
	err := n.pool.do(func() (err error) {
		m, err = n.openImage(id, tree)
		return err
	})
	if err == nil {
		n.images.open[id] = m
	}
	return err
}

// image gives an image that was added.
func (n *namespaceBackend) image(id ImageID) (*imageMount, error) {
	n.images.mu.Lock()
	defer n.images.mu.Unlock()
	if m := n.images.open[id]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNoImage, id)
}

// openImage makes the base of an image. It runs on one of the backend's threads.
func (n *namespaceBackend) openImage(id ImageID, tree string) (*imageMount, error) {
	kit, err := n.openKit()
	if err != nil {
		return nil, err
	}
	m := &imageMount{tree: n.mounts + "/tree-" + id.short(), base: n.mounts + "/image-" + id.short()}
	m.lower = "../ns/" + filepath.Base(m.base) + ":../ns/" + filepath.Base(m.tree)
	for _, dir := range []string{m.tree, m.base} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	// By a name of our own, since overlayfs takes colons and commas for its own.
	if err := bindReadOnly(tree, m.tree); err != nil {
		return nil, err
	}
	base := baseLayer{dir: m.base, root: sysroot{m.tree}, owners: !n.rootless}
	return m, n.buildImageBase(base, kit)
}

// buildImageBase writes what a box has over the files of an image. The image's
// files stay visible, except where a box needs others.
func (n *namespaceBackend) buildImageBase(b baseLayer, kit *kit) error {
	account := ImageAccount
	if info, err := b.root.lstat("/etc"); err == nil && !info.IsDir() {
		return errors.New("/etc of the image is not a directory")
	}
	for _, dir := range []struct {
		name string
		mode fs.FileMode
		need bool
	}{
		{"/etc", 0o755, true}, {"/dev", 0o755, true}, {"/proc", 0o555, true}, {"/sys", 0o555, true}, {"/run", 0o755, true},
		{"/tmp", 0o777 | fs.ModeSticky, false}, {"/shared", 0o755, false}, {"/root", 0o700, false},
	} {
		info, err := b.root.lstat(dir.name)
		switch {
		case err == nil && info.IsDir():
			err = b.copyDir(dir.name, info.Mode())
		case errors.Is(err, fs.ErrNotExist), dir.need && err == nil:
			err = errors.Join(os.Mkdir(b.name(dir.name), 0o755), os.Chmod(b.name(dir.name), dir.mode))
		}
		if err != nil {
			return err
		}
	}
	for _, dir := range account.dirs() {
		err := errors.Join(os.MkdirAll(b.name(dir), 0o755), b.chown(dir, UserID, GroupID))
		if err != nil {
			return err
		}
	}
	if err := os.MkdirAll(b.name(kitDir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(b.name(ownBin), 0o755); err != nil {
		return err
	}
	err := writeAccounts(b.name("/etc"), b.root, n.tun, imagePath, account)
	if err == nil {
		err = b.trust(n.trusted)
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(kit.dir + "/sudo"); err != nil {
		return nil
	}
	if n.rootless {
		return b.writeStarter(ownBin+"/sudo", 0o755, kit.command("sudo")...)
	}
	return b.addSudo(imagePath, kit.command("sudo")...)
}

// bases are what chains of layers over the image stand on.
func (m *imageMount) bases(attrs string) []*merger {
	return []*merger{{attrs: attrs, layers: []string{m.base, m.tree}}}
}
