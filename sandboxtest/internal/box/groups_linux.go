package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A box is limited by a control group of version 2, where this process's user
// may make some: beside its own, in a tree that was delegated to the user.
// Nothing of the groups that exist is changed. Resource limits of processes
// (setrlimit) would not do: they count what a user has on the whole machine, or
// address space, of which V8, Go and Java reserve far more than they use.

// neededControllers are those that [Limits] need.
var neededControllers = []string{"memory", "pids"}

// groupPrefix begins the names of the groups of a host, followed by its process
// and an ID.
const groupPrefix = "sandbox-boxes-"

// values are the files of a group and what is written to them.
func (l Limits) values() map[string]string {
	v := make(map[string]string)
	if l.Memory > 0 {
		v["memory.max"] = strconv.FormatInt(l.Memory, 10)
	}
	if l.Processes > 0 {
		v["pids.max"] = strconv.Itoa(l.Processes)
	}
	return v
}

// ownGroup returns where the groups are mounted, and this process's own, from
// /proc/self/mountinfo and /proc/self/cgroup.
func ownGroup(mounts, cgroups string) (top, own string, err error) {
	path := ""
	for line := range strings.Lines(cgroups) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = rest
		}
	}
	if path == "" || strings.HasPrefix(path, "/..") { // or one of another namespace
		return "", "", errors.New("this process has no control group of version 2")
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		if rel, err := filepath.Rel(unescapeMount.Replace(fields[3]), path); err == nil && filepath.IsLocal(rel) {
			top = unescapeMount.Replace(fields[4])
			return top, filepath.Join(top, rel), nil
		}
	}
	return "", "", errors.New("control groups of version 2 are not mounted")
}

// delegatedGroup returns the closest group, from own up to top, in which groups
// with the needed controllers may be made. What root may do says nothing, so
// that there the mark counts that systemd gives to groups that it delegates.
func delegatedGroup(top, own string, root bool, marked func(dir string) bool) (string, error) {
	for dir := own; ; dir = filepath.Dir(dir) {
		if offersGroups(dir) && (!root || isDelegated(top, dir, marked)) {
			return dir, nil
		}
		if dir == top || dir == "/" {
			return "", errors.New("no control group with the controllers memory and pids is delegated to this user")
		}
	}
}

// offersGroups reports whether this process may make groups with the needed
// controllers in a group, and move processes to them.
func offersGroups(dir string) bool {
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
		return false
	}
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	enabled := strings.Fields(string(data))
	return err == nil && !slices.ContainsFunc(neededControllers, func(c string) bool { return !slices.Contains(enabled, c) })
}

func isDelegated(top, dir string, marked func(dir string) bool) bool {
	for ; dir != top && dir != "/"; dir = filepath.Dir(dir) {
		if marked(dir) {
			return true
		}
	}
	return false
}

// markedByManager reports whether systemd has delegated a group.
func markedByManager(dir string) bool {
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		var value [8]byte
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// groups is the group that has those of a host's boxes.
type groups struct{ dir string }

// findGroups makes it where this process may. Root of a user namespace has the
// rights of the user whose namespace it is.
func findGroups(rootless bool) (*groups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	top, own, err := ownGroup(string(mounts), string(cgroups))
	if err != nil {
		return nil, err
	}
	parent, err := delegatedGroup(top, own, os.Geteuid() == 0 && !rootless, markedByManager)
	if err != nil {
		return nil, err
	}
	return newGroups(parent, neededControllers)
}

// newGroups makes the group of a host, with controllers for those of its boxes,
// and removes those of hosts that are gone.
func newGroups(parent string, controllers []string) (*groups, error) {
	sweepGroups(parent)
	g := &groups{filepath.Join(parent, fmt.Sprint(groupPrefix, os.Getpid(), "-", newID()))}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	for _, c := range controllers {
		if err := writeControl(g.dir, "cgroup.subtree_control", "+"+c); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// sweepGroups removes the groups of hosts whose process is gone. The kernel
// keeps those that have processes.
func sweepGroups(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
	for _, dir := range left {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), "-")
		if pid, err := strconv.Atoi(text); err == nil && isGone(pid) {
			removeGroups(dir)
		}
	}
}

func removeGroups(dir string) {
	below, _ := os.ReadDir(dir)
	for _, entry := range below {
		if entry.IsDir() {
			_ = unix.Rmdir(filepath.Join(dir, entry.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

// writeControl writes to a file of a group, which is there or does not exist.
func writeControl(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// close removes it. What stays is for the next host to sweep.
func (g *groups) close() {
	if g != nil {
		removeGroups(g.dir)
	}
}

// group is a box's.
type group struct {
	dir string
	fd  handle
}

// add makes the group of a box; nil has none.
func (g *groups) add(id string, values map[string]string) (*group, error) {
	if g == nil {
		return nil, nil
	}
	b := &group{dir: filepath.Join(g.dir, id)}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		return nil, fmt.Errorf("limit the box: %w", err)
	}
	for name, value := range values {
		if err := writeControl(b.dir, name, value); err != nil {
			return nil, errors.Join(fmt.Errorf("limit the box: %w", err), b.close())
		}
	}
	fd, err := unix.Open(b.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("limit the box: %w", err), b.close())
	}
	b.fd.set(fd)
	return b, nil
}

// in calls start, which starts cmd in the group.
func (b *group) in(attr *syscall.SysProcAttr, start func() error) error {
	if b == nil {
		return start()
	}
	return b.fd.use(func(fd int) error {
		attr.UseCgroupFD, attr.CgroupFD = true, fd
		return start()
	})
}

// close removes the group when its processes are gone.
func (b *group) close() error {
	if b == nil {
		return nil
	}
	err := b.fd.close()
	_ = unix.Rmdir(b.dir) // else the host removes it at its end
	return err
}
