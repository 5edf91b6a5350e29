package box

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountPoint is one mount of a list.
type mountPoint struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mountPoint) mount() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.kind+m.source, m.target, err)
	}
	return nil
}

func mountAll(list []mountPoint) error {
	for _, m := range list {
		if err := m.mount(); err != nil {
			return err
		}
	}
	return nil
}

// bind shows a directory or file at another place, to read only.
func bindReadOnly(source, target string) error {
	return mountAll([]mountPoint{
		{source: source, target: target, flags: unix.MS_BIND},
		{target: target, flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
	})
}

// buildDev writes a /dev with what programs expect, which all boxes share to
// read only; devices can be written all the same.
func buildDev(dev string) error {
	for _, node := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		var st unix.Stat_t
		if err := unix.Stat("/dev/"+node, &st); err != nil {
			return fmt.Errorf("stat /dev/%s: %w", node, err)
		}
		name := filepath.Join(dev, node)
		if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(st.Rdev)); err != nil {
			return fmt.Errorf("mknod %s: %w", name, err)
		}
		if err := os.Chmod(name, 0o666); err != nil {
			return err
		}
	}
	for _, link := range [][2]string{
		{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
	} {
		if err := os.Symlink(link[0], filepath.Join(dev, link[1])); err != nil {
			return err
		}
	}
	return errors.Join(os.Mkdir(filepath.Join(dev, "pts"), 0o755), os.Mkdir(filepath.Join(dev, "shm"), 0o755))
}

// pseudo are file systems that are not the host's files.
var pseudo = []string{
	"autofs", "bdev", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
	"fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "sysfs", "tmpfs", "tracefs",
}

// extraMounts lists the directories where the host has mounted more files of
// its own: overlayfs shows only what is on the root file system.
func extraMounts(stateDir string) ([]string, error) {
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var dirs []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 1 || slices.Contains(pseudo, kind[0]) {
			continue
		}
		dir := unescapeMount.Replace(fields[4])
		if dir == "/" || slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/run", "/tmp", "/boot", "/var/tmp", stateDir},
			func(own string) bool { return dir == own || strings.HasPrefix(dir, own+"/") }) {
			continue
		}
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs) // parents first
	return dirs, lines.Err()
}

var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// overlayOptions are those of a box's root. volatile spares waiting until all
// files are on the disk when a box stops, and redirect_dir lets directories of
// lower layers be renamed.
const overlayOptions = "redirect_dir=on,index=off,metacopy=off,volatile"

// mountRoot puts a box's root together at root, in the calling thread's mount
// namespace, and makes it the root. upper and work are relative to the working
// directory, as the lower ones.
func mountRoot(root string, lower []string, upper, work, dev string, extra []string) error {
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", strings.Join(lower, ":"), upper, work, overlayOptions)
	if len(data) >= os.Getpagesize() {
		return fmt.Errorf("%w: their names don't fit in a page", ErrTooManyLayers)
	}
	err := mountAll([]mountPoint{
		{source: "sandbox", target: root, kind: "overlay", data: data},
		{source: dev, target: root + "/dev", flags: unix.MS_BIND},
		{target: root + "/dev", flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOEXEC | unix.MS_NOSUID},
		{source: "devpts", target: root + "/dev/pts", kind: "devpts", flags: unix.MS_NOSUID | unix.MS_NOEXEC, data: "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{source: "tmpfs", target: root + "/dev/shm", kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
		{source: "sysfs", target: root + "/sys", kind: "sysfs", flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	})
	if err != nil {
		return err
	}
	for _, dir := range extra {
		// A box that has removed the directory does without it.
		if info, err := os.Lstat(root + dir); err != nil || !info.IsDir() {
			continue
		}
		if err := bindReadOnly(dir, root+dir); err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return os.Chdir("/")
}
