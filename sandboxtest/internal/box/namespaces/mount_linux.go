package namespaces

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
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

// bindReadOnly binds a file, or a directory with its mounts, to another place,
// read-only.
func bindReadOnly(source, target string) error {
	if err := (mountPoint{source: source, target: target, flags: unix.MS_BIND | unix.MS_REC}).mount(); err != nil {
		return err
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW, attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// devices are the devices in a sandbox.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// buildDev writes a /dev with the usual devices. All sandboxes share it read-only, which
// does not prevent writing to the devices.
func buildDev(dev string) error {
	for _, node := range devices {
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
	return linkDev(dev)
}

// linkDev writes the links in /dev.
func linkDev(dev string) error {
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

// pseudo are the types of file systems that do not contain the host's files.
var pseudo = []string{
	"autofs", "bdev", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
	"fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "sysfs", "tmpfs", "tracefs",
}

// extraMounts lists the host's other mounts, because overlayfs shows only the root file
// system.
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

// overlayOptions are the options of a sandbox's root. volatile avoids a wait for the disk
// when a sandbox stops, and redirect_dir makes it possible to rename directories of lower
// layers.
const overlayOptions = "index=off,metacopy=off,volatile,redirect_dir=on"

// rootSpec lists the parts of a sandbox's root. The names of the layers are relative to the
// working directory.
type rootSpec struct {
	target      string
	lower       []string // newest first
	upper, work string
	options     string // of overlayfs
	dev         string
	devpts      string   // options
	extra       []string // directories of the host
}

// mount assembles the root in the calling thread's mount namespace.
func (r *rootSpec) mount() error {
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", strings.Join(r.lower, ":"), r.upper, r.work, r.options)
	if len(data) >= os.Getpagesize() {
		return fmt.Errorf("%w: their names don't fit in a page", backend.ErrTooManyLayers)
	}
	dev := r.target + "/dev"
	err := mountAll([]mountPoint{
		{source: "sandbox", target: r.target, kind: "overlay", data: data},
		{source: r.dev, target: dev, flags: unix.MS_BIND | unix.MS_REC},
		{target: dev, flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOEXEC | unix.MS_NOSUID},
		{source: "devpts", target: dev + "/pts", kind: "devpts", flags: unix.MS_NOSUID | unix.MS_NOEXEC, data: "newinstance,ptmxmode=0666" + r.devpts},
		{source: "tmpfs", target: dev + "/shm", kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
	})
	if err != nil {
		return err
	}
	// A network namespace that belongs to another user has no /sys.
	sys := mountPoint{source: "sysfs", target: r.target + "/sys", kind: "sysfs", flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC}
	if sys.mount() != nil {
		if err := bindReadOnly("/sys", sys.target); err != nil {
			return err
		}
	}
	for _, name := range r.extra {
		// The sandbox may have removed the directory.
		if _, err := os.Lstat(r.target + name); err != nil {
			continue
		}
		err := bindReadOnly(name, r.target+name)
		if _, gone := os.Lstat(name); err != nil && errors.Is(gone, fs.ErrNotExist) {
			continue // removed meanwhile, such as the home of a former user
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pivot makes dir the root of the calling thread and of the processes in its
// mount namespace.
func pivot(dir string) error {
	if err := os.Chdir(dir); err != nil {
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
