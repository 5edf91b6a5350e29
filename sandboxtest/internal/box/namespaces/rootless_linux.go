package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Without the host's root there is one user, who owns everything in a sandbox. That user is
// root of the namespaces and, in another user namespace, the sandbox's user. overlayfs
// can't use "/" as a layer then, because other file systems are mounted in it. Instead, the
// host's directories are bound read-only. The user could not write to them anyway.

// rootlessOptions make overlayfs use attributes that a user without root can write.
// Renaming a directory of a lower layer fails with EXDEV.
const rootlessOptions = "index=off,metacopy=off,volatile,userxattr"

// ownDirs are the directories of a sandbox that do not come from the host. They include the
// usual mount points, so that drives can be mounted there.
var ownDirs = []string{
	"/dev", "/home" + "/" + backend.User, "/lost+found", "/media", "/mnt", "/proc", "/run", "/shared", "/srv", "/sys", "/tmp", "/var/lock", "/var/run", "/var/tmp", "/vercel",
}

func (n *Backend) setUpRootless() error {
	dev := n.mounts + "/dev"
	for _, node := range devices {
		if err := errors.Join(writeFile(dev+"/"+node, "", 0o666), mountPoint{source: "/dev/" + node, target: dev + "/" + node, flags: unix.MS_BIND}.mount()); err != nil {
			return err
		}
	}
	if err := linkDev(dev); err != nil {
		return err
	}
	for _, a := range backend.Accounts {
		base := baseLayer{dir: filepath.Join(n.mounts, baseName(a))}
		extra, err := buildRootlessBase(base.dir, a)
		if err == nil {
			err = base.makeRunDir()
		}
		if err == nil && len(n.trusted) > 0 {
			err = os.WriteFile(base.name(trustedName), n.trusted, 0o644)
		}
		if err == nil {
			err = writeAccounts(filepath.Join(n.mounts, etcName(a)), n.TUN, backend.SearchPath(), a)
		}
		if err != nil {
			return err
		}
		n.lower[a.Name], n.extra = "../ns/"+baseName(a), extra
	}
	return n.writeBundles()
}

// writeBundles adds the trusted authority to copies of the machine's lists.
func (n *Backend) writeBundles() error {
	if len(n.trusted) == 0 {
		return nil
	}
	n.bundles, n.bundle = make(map[string]string), trustedName
	for _, name := range bundles {
		target, err := filepath.EvalSymlinks(name)
		if err != nil || n.bundles[target] != "" {
			continue // few machines have more than one
		}
		old, err := os.ReadFile(target)
		if err != nil {
			continue // the sandbox's user can't read it either
		}
		file := fmt.Sprintf("%s/trust-%d", n.mounts, len(n.bundles))
		if err := writeFile(file, withAuthority(old, n.trusted), 0o644); err != nil {
			return err
		}
		n.bundles[target] = file
		if n.bundle == trustedName {
			n.bundle = name
		}
	}
	return nil
}

// showBundles binds the copies that writeBundles has made over the machine's lists in a
// sandbox's root.
func (n *Backend) showBundles(root string) error {
	for target, file := range n.bundles {
		if info, err := os.Lstat(root + target); err != nil || !info.Mode().IsRegular() {
			continue // the sandbox has its own directory there
		}
		if err := bindReadOnly(file, root+target); err != nil {
			return err
		}
	}
	return nil
}

// buildRootlessBase writes the sandbox's own directories, and returns the host's
// directories to bind.
func buildRootlessBase(base string, account backend.Account) (extra []string, err error) {
	for _, dir := range append(account.Dirs(), "/dev", "/home", "/media", "/mnt", "/proc", "/run/lock", "/shared", "/srv", "/sys", "/tmp", "/var/tmp") {
		if err := os.MkdirAll(base+dir, 0o755); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/run/lock"} {
		if err := os.Chmod(base+dir, 0o777|fs.ModeSticky); err != nil {
			return nil, err
		}
	}
	for _, link := range [][2]string{{"/run", "/var/run"}, {"/run/lock", "/var/lock"}} {
		if err := os.Symlink(link[0], base+link[1]); err != nil {
			return nil, err
		}
	}
	for _, parent := range []string{"/", "/home", "/var"} {
		shown, err := showDirs(base, parent)
		if err != nil {
			return nil, err
		}
		extra = append(extra, shown...)
	}
	return extra, nil
}

// showDirs copies the symbolic links in parent, a directory of the host, to the base layer.
// It makes a mount point there for each directory in parent, and returns these directories.
func showDirs(base, parent string) (shown []string, err error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := filepath.Join(parent, entry.Name())
		if slices.Contains(ownDirs, name) || name == "/home" || name == "/var" {
			continue
		}
		switch {
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return nil, err
			}
			if err := os.Symlink(target, base+name); err != nil {
				return nil, err
			}
		case entry.IsDir():
			if unix.Access(name, unix.X_OK) != nil {
				continue
			}
			if err := os.Mkdir(base+name, 0o755); err != nil {
				return nil, err
			}
			shown = append(shown, name)
		}
	}
	return shown, nil
}

// accountFiles binds the sandbox's files about users and names over the host's.
func (n *Backend) accountFiles(root string, account backend.Account) error {
	for _, name := range []string{"passwd", "group", "hosts", "hostname", "resolv.conf"} {
		target := filepath.Join(root, "etc", name)
		if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() {
			continue // for example resolv.conf, if it is a link into /run
		}
		if err := bindReadOnly(filepath.Join(n.mounts, etcName(account), name), target); err != nil {
			return err
		}
	}
	return nil
}

// asBoxUser makes a command run in a user namespace of its own, whose only user is the
// sandbox's. The namespace is a child of the one in which we are root, so the command has
// no rights over the sandbox. unshare contains the words that start the program of that
// name. The program gets the command's name, not its path, because it passes the same word
// as argv[0]. It finds the command in PATH. The LD_ variables are set for the command
// alone, not for unshare.
func asBoxUser(cmd *exec.Cmd, unshare ...string) {
	var loader []string
	cmd.Env = slices.DeleteFunc(slices.Clone(cmd.Env), func(v string) bool {
		if !strings.HasPrefix(v, "LD_") {
			return false
		}
		loader = append(loader, v)
		return true
	})
	if loader != nil {
		cmd.Args = slices.Concat([]string{"/usr/bin/env"}, loader, cmd.Args)
	}
	args := append(slices.Clone(unshare), "--user", fmt.Sprintf("--map-user=%d", backend.UserID), fmt.Sprintf("--map-group=%d", backend.GroupID), "--")
	cmd.Args = append(args, cmd.Args...)
	cmd.Path = unshare[0]
}
