package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

const opaqueAttr = "trusted.overlay.opaque"

// baseName is the directory of the account's lowest layer.
func baseName(a backend.Account) string { return "base-" + a.Name }

// viewName is the directory that shows that layer over the host's root.
func viewName(a backend.Account) string { return "view-" + a.Name }

// etcName is the directory of the account's files if there is no root into which they can
// be written.
func etcName(a backend.Account) string { return "etc-" + a.Name }

// baseLayer is the layer between the root that provides a sandbox's programs and the
// sandbox's own files.
type baseLayer struct {
	dir string
	// owners says whether its files have owners other than this process's user.
	owners bool
}

func (b baseLayer) name(name string) string { return filepath.Join(b.dir, name) }

func (b baseLayer) chown(name string, uid, gid int) error {
	if !b.owners {
		return nil
	}
	return os.Chown(b.name(name), uid, gid)
}

// build writes the user and the own directories of a new sandbox. It also hides directories
// of the machine's root that sandboxes must not see: the homes, and the directories in
// hidden.
func (b baseLayer) build(hidden []string, homes []home, account backend.Account) error {
	type ownDir struct {
		name   string
		mode   fs.FileMode
		uid    int
		opaque bool
	}
	dirs := []ownDir{
		{"/", 0o755, 0, false},
		{"/etc", 0o755, 0, false},
		{"/home", 0o755, 0, false},
		{"/shared", 0o755, 0, true},
		{"/var", 0o755, 0, false},
		{"/tmp", 0o777 | fs.ModeSticky, 0, true},
		{"/var/tmp", 0o777 | fs.ModeSticky, 0, true},
		{"/run", 0o755, 0, true},
		{"/run/lock", 0o777 | fs.ModeSticky, 0, true},
		{"/proc", 0o555, 0, true},
		{"/sys", 0o555, 0, true},
		{"/dev", 0o755, 0, true},
	}
	for _, name := range account.Dirs() {
		dir := ownDir{name, 0o755, backend.UserID, true}
		if name == account.Home && name != account.WorkDir {
			dir.mode = 0o750
		}
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		name := b.name(dir.name)
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
		if err := errors.Join(os.Chmod(name, dir.mode), b.chown(dir.name, dir.uid, dir.uid)); err != nil {
			return err
		}
		if dir.opaque {
			if err := unix.Setxattr(name, opaqueAttr, []byte("y"), 0); err != nil {
				return fmt.Errorf("mark %s opaque: %w", name, err)
			}
		}
	}
	if err := b.openPathDirs(); err != nil {
		return err
	}
	var errs []error
	for _, h := range homes {
		errs = append(errs, b.emptyHome(h))
	}
	for _, dir := range hidden {
		errs = append(errs, b.cover(dir))
	}
	return errors.Join(errs...)
}

// writeAccounts writes the files in etc that describe the sandbox's users and network. They
// hide the machine's files. resolver is set if the sandbox has its own resolver. path is
// the sandbox's PATH.
func writeAccounts(etc string, resolver bool, path string, account backend.Account) error {
	name, shell := account.Name, backend.DefaultShell
	if inside.CheckExecutable(shell) != nil {
		shell = "/bin/sh"
	}
	user := fmt.Sprintf("%s:x:%d:%d::%s:%s", name, backend.UserID, backend.GroupID, account.Home, shell)
	uid, gid := strconv.Itoa(backend.UserID), strconv.Itoa(backend.GroupID)
	for _, file := range []struct {
		name, id, entry string
		root            string // the entry of root, if the machine's file has none
		mode            fs.FileMode
	}{
		{"passwd", uid, user, "root:x:0:0::/root:" + shell, 0o644},
		{"group", gid, fmt.Sprintf("%s:x:%d:", name, backend.GroupID), "root:x:0:", 0o644},
		// Don't lock the account: PAM would refuse it sudo.
		{"shadow", "", name + ":*:19000:0:99999:7:::", "root:*:19000:0:99999:7:::", 0o640},
		{"gshadow", "", name + ":!::", "root:*::", 0o640},
	} {
		old, err := os.ReadFile("/etc/" + file.name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		var out strings.Builder
		rooted := false
		for line := range strings.Lines(string(old)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) < 2 || fields[0] == name || file.id != "" && len(fields) > 2 && fields[2] == file.id {
				continue // the host's user with that name or number
			}
			rooted = rooted || fields[0] == backend.RootUser
			out.WriteString(strings.TrimSpace(line) + "\n")
		}
		if !rooted {
			out.WriteString(file.root + "\n")
		}
		out.WriteString(file.entry + "\n")
		if err := writeFile(filepath.Join(etc, file.name), out.String(), file.mode); err != nil {
			return err
		}
	}
	host := firewall.HostAddr.String()
	if !resolver {
		host = "127.0.0.1" // the network is the host's
	}
	hosts := "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n" + host + " " + firewall.HostName + "\n"
	for name, text := range map[string]string{
		"hostname": "sandbox\n", "hosts": hosts, "resolv.conf": resolvConf(resolver),
	} {
		if err := writeFile(filepath.Join(etc, name), text, 0o644); err != nil {
			return err
		}
	}
	sudoers := filepath.Join(etc, "sudoers.d")
	if err := os.MkdirAll(sudoers, 0o750); err != nil {
		return err
	}
	rules := fmt.Sprintf("Defaults secure_path=%q\n%s ALL=(ALL:ALL) NOPASSWD: ALL\n", path, name)
	return writeFile(filepath.Join(sudoers, "90-"+name), rules, 0o440)
}

// resolvConf returns the host's file. If own is set, it names the sandbox's own resolver,
// which asks the host's.
func resolvConf(own bool) string {
	data, _ := os.ReadFile("/etc/resolv.conf")
	if !own {
		return string(data)
	}
	var out strings.Builder
	out.WriteString("nameserver " + firewall.ResolverAddr.String() + "\n")
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && (fields[0] == "search" || fields[0] == "options") {
			out.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return out.String()
}

func writeFile(name, text string, mode fs.FileMode) error {
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// openPathDirs lets the sandbox's user pass through directories that lead to programs in
// PATH, even if the host forbids that, as for /root.
func (b baseLayer) openPathDirs() error {
	for _, dir := range filepath.SplitList(backend.SearchPath()) {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // PATH may name missing directories
		}
		for dir = filepath.Dir(dir); dir != "/"; dir = filepath.Dir(dir) {
			info, err := os.Lstat(dir)
			if err != nil {
				return err
			}
			if info.Mode().Perm()&0o001 != 0 {
				continue
			}
			if err := b.copyDir(dir, info.Mode()|0o011); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyDir creates a directory of the root, with its parents, in the base layer. It shows
// the root's files.
func (b baseLayer) copyDir(dir string, mode fs.FileMode) error {
	name := b.name(dir)
	if dir == "/" {
		return nil
	}
	if made, err := os.Lstat(name); err == nil {
		mode |= made.Mode().Perm() // keep permissions that were added before
	} else if errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(dir)
		info, err := os.Lstat(parent)
		if err != nil {
			return err
		}
		if err := b.copyDir(parent, info.Mode()); err != nil {
			return err
		}
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
	} else {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	return errors.Join(b.chown(dir, int(st.Uid), int(st.Gid)), os.Chmod(name, mode))
}

// covered reports whether the layer hides a directory of the machine.
func (b baseLayer) covered(dir string) bool {
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if _, err := unix.Getxattr(b.name(at), opaqueAttr, make([]byte, 1)); err == nil {
			return true
		}
		if made, err := os.Lstat(b.name(at)); err == nil && made.Mode()&fs.ModeCharDevice != 0 {
			return true
		}
	}
	return false
}

// cover hides a directory of the machine unless it is already hidden.
func (b baseLayer) cover(dir string) error {
	if b.covered(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	info, err := os.Lstat(parent)
	if err != nil {
		return err
	}
	if err := b.copyDir(parent, info.Mode()); err != nil {
		return err
	}
	err = unix.Mknod(b.name(dir), unix.S_IFCHR, 0)
	if made, statErr := os.Lstat(b.name(dir)); errors.Is(err, fs.ErrExist) && statErr == nil && made.IsDir() {
		return unix.Setxattr(b.name(dir), opaqueAttr, []byte("y"), 0) // the layer has something below it
	}
	return err
}
