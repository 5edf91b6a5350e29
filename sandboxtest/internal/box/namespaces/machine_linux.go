package namespaces

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/inherited"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/sudo"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// Machine is the machine of a sandbox, with its own namespaces. Its first process only
// keeps them in existence. When that process dies, the kernel kills all others.
type Machine struct {
	backend  *Backend
	dir      string
	layers   []string
	deny     bool
	hostname string
	account  backend.Account
	firewall *firewall.Firewall
	mounts   []backend.Mount

	mu    sync.Mutex
	init  *exec.Cmd
	dead  chan struct{} // closed when the first process is gone
	net   *network
	pidfd backend.Handle // of the first process
	// Bytes that earlier boots of the sandbox have transferred.
	in, out int64
}

// initScript mounts /proc, which only a process of the sandbox can do. Then it reaps
// orphans forever: a waiting shell reaps every child, and it waits for a child that reads
// from a pipe without data.
const initScript = `mount -t proc -o nosuid,nodev,noexec proc "$1/proc" && echo ok || exit 1
exec </dev/null >/dev/null 2>&1
while :; do (read never <&3) & wait; done`

func (m *Machine) makeDirs() error {
	if err := backend.Mkdir(m.dir, 0o711); err != nil {
		return err
	}
	return backend.Mkdir(m.Upper(), 0o755)
}

func (m *Machine) Upper() string { return filepath.Join(m.dir, "u") }
func (m *Machine) Work() string  { return filepath.Join(m.dir, "w") }

func (m *Machine) Boot(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A work directory that was used by a volatile overlay can't be mounted again.
	if err := backend.RemoveAll(m.Work()); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(m.Work(), 0o700), renewOverlays(m.mounts)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = make(chan struct{})
	err := m.backend.onBootThread(m.bootOnThread, m.dead)
	if m.init != nil {
		cmd, dead := m.init, m.dead
		go backend.UseUpThread(func() { // the wait blocks a thread; let that thread end
			defer close(dead)
			_ = cmd.Wait()
		})
	}
	if err != nil {
		err = errors.Join(err, m.shutDownLocked())
	}
	return err
}

// bootOnThread boots the sandbox. It runs on one of the backend's threads, whose namespaces
// it changes and, if possible, restores.
func (m *Machine) bootOnThread() (err error) {
	n := m.backend
	defer func() {
		if n.rootless {
			return // the thread ends; it may not return to the host's namespaces
		}
		for _, ns := range []struct{ fd, kind int }{
			{n.mnt, unix.CLONE_NEWNS}, {n.net, unix.CLONE_NEWNET}, {n.uts, unix.CLONE_NEWUTS}, {n.ipc, unix.CLONE_NEWIPC},
		} {
			if serr := unix.Setns(ns.fd, ns.kind); serr != nil {
				err = errors.Join(err, fmt.Errorf("return from the sandbox's namespaces: %w", serr))
			}
		}
	}()
	kinds := unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	uplink := n.TUN && !m.deny
	shared := !n.TUN && !m.deny
	if !shared {
		kinds |= unix.CLONE_NEWNET
	}
	if err := unix.Unshare(kinds); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if m.net, err = newNetwork(shared, uplink); err != nil {
		return err
	}
	if !n.rootless { // otherwise the host's process connects it, which has the firewall
		m.net.start(n.log, m.firewall)
	}
	root, err := m.mountRoot()
	if err != nil {
		return err
	}
	// Start init before the old root is gone: only the host's root may mount /proc where
	// none is visible.
	if err := m.startInit(root); err != nil {
		return err
	}
	if err := pivot(root); err != nil {
		return err
	}
	if err := m.setHostname(); err != nil {
		return err
	}
	return protectProc()
}

// protectProc keeps programs of a sandbox, even as root, from changing the machine through
// /proc. Only the directories of processes stay writable. Files that reveal other sandboxes
// become empty.
func protectProc() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		info, err := entry.Info()
		if err != nil || name[0] >= '0' && name[0] <= '9' {
			continue // a process
		}
		switch mode := info.Mode(); {
		case slices.Contains([]string{"keys", "key-users", "timer_list"}, name):
			err = mountPoint{source: "/dev/null", target: "/proc/" + name, flags: unix.MS_BIND}.mount()
		case mode.IsDir(), mode.IsRegular() && mode.Perm()&0o222 != 0:
			err = bindReadOnly("/proc/"+name, "/proc/"+name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mountRoot mounts the sandbox's files and drives, and returns the root.
func (m *Machine) mountRoot() (target string, err error) {
	n := m.backend
	layers := filepath.Join(n.dir, "l")
	if err := os.Chdir(layers); err != nil {
		return "", err
	}
	up := filepath.Join("../b", filepath.Base(m.dir))
	root := rootSpec{
		target: n.mounts + "/root", upper: up + "/u", work: up + "/w",
		options: overlayOptions, dev: n.mounts + "/dev", devpts: ",mode=0620,gid=5",
	}
	root.extra = n.extra
	root.lower = append(slices.Clone(m.layers), n.lower[m.account.Name])
	if n.rootless {
		root.options, root.devpts = rootlessOptions, ",mode=0600"
	}
	if err := root.mount(); err != nil {
		return "", err
	}
	if err := n.showSelf(root.target); err != nil {
		return "", err
	}
	if err := n.showHomes(root.target); err != nil {
		return "", err
	}
	if n.rootless {
		if err := errors.Join(n.accountFiles(root.target, m.account), n.showBundles(root.target)); err != nil {
			return "", err
		}
	}
	return root.target, mountDrives(root.target, m.mounts, layers, root.options)
}

// setHostname sets the host name of the sandbox, and makes that name resolve to 127.0.0.1.
func (m *Machine) setHostname() error {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, m.hostname)
	name = cmp.Or(name, "sandbox")
	name = name[:min(len(name), 63)]
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	hosts, err := inside.ReadSystemFile("/etc/hosts")
	if err != nil || m.backend.rootless || slices.Contains(strings.Fields(string(hosts)), name) {
		return nil // the file was removed or replaced on purpose
	}
	f, err := os.OpenFile("/etc/hosts", os.O_WRONLY|os.O_APPEND|backend.OpenFlags, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "127.0.0.1 %s\n", name)
	return errors.Join(err, f.Close())
}

func (m *Machine) startInit(root string) error {
	out, child, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	// The process holds both ends of this pipe, so that reads never return.
	never, silent, err := os.Pipe()
	if err != nil {
		return errors.Join(err, child.Close())
	}
	pidfd := -1
	cmd := &exec.Cmd{
		Path: "/bin/sh", Args: []string{"sh", "-c", initScript, "init", root}, Dir: "/", // as init, busybox would run the machine's inittab
		Env:    []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Stdout: child, Stderr: child, ExtraFiles: []*os.File{never, silent},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID,
			Setsid:     true, // so that it gets no Ctrl-C
			// The thread lives as long as the host, so the sandbox ends with this process,
			// however it ends.
			Pdeathsig: syscall.SIGKILL,
			PidFD:     &pidfd,
		},
	}
	inherited.Close(cmd)
	err = cmd.Start()
	_, _, _ = child.Close(), never.Close(), silent.Close()
	if err != nil {
		return fmt.Errorf("start the first process: %w", err)
	}
	m.init = cmd
	m.pidfd.Set(pidfd)
	_ = out.SetReadDeadline(time.Now().Add(30 * time.Second))
	var output bytes.Buffer
	for buf := make([]byte, 512); !strings.HasSuffix(output.String(), "ok\n"); {
		n, err := out.Read(buf)
		output.Write(buf[:n])
		if err != nil {
			if err == io.EOF {
				err = errors.New("it has ended")
			}
			return fmt.Errorf("start the first process: %w: %.200q", err, output.String())
		}
	}
	return nil
}

// enter moves the calling thread into the sandbox. The thread can't return.
func (m *Machine) enter(kinds int) error {
	if err := backend.SeparateThread(); err != nil {
		return err
	}
	err := m.pidfd.Use(func(fd int) error { return unix.Setns(fd, kinds) })
	switch {
	case err == unix.ESRCH:
		return backend.ErrStopped
	case err != nil:
		return fmt.Errorf("enter the sandbox: %w", err)
	}
	return nil
}

// ownNamespaces returns the kinds of namespaces that the sandbox does not share.
func (m *Machine) ownNamespaces() int {
	kinds := unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.net != nil && !m.net.shared {
		kinds |= unix.CLONE_NEWNET
	}
	return kinds
}

func (m *Machine) Launch(cmd *exec.Cmd, spec *backend.Spec) (backend.Running, error) {
	return backend.StartChild(backend.UseUpThread, cmd, func() (err error) {
		if err := m.enter(m.ownNamespaces()); err != nil {
			return err
		}
		if err := errors.Join(backend.LimitCapabilities(), m.backend.separateThread()); err != nil {
			return err
		}
		if err := backend.CheckDir(spec.Dir, spec.Dir); err != nil {
			return err
		}
		cmd.Dir, cmd.Env = spec.Dir, spec.Env
		if len(m.backend.trusted) > 0 {
			cmd.Env = inside.MergeEnv(trustEnv(m.trustedList()), cmd.Env)
		}
		if path := backend.SearchPath(); m.backend.rootless && inside.PathOf(cmd.Env) == path {
			cmd.Env = inside.MergeEnv(cmd.Env, []string{"PATH=" + sudo.BinDir + ":" + path})
		}
		if cmd.Path, err = inside.LookPath(spec.Path, spec.Dir, cmd.Env); err != nil {
			return backend.StartError(spec.Path, err)
		}
		backend.NewSession(cmd, spec.TTY != nil)
		switch {
		case !m.backend.rootless:
			cmd.SysProcAttr.Credential = m.credential(spec.User)
		case spec.User == backend.RootUser: // the user of this thread
		default:
			asBoxUser(cmd, "/usr/bin/unshare")
		}
		return backend.Start(cmd, spec.Path)
	})
}

// trustedList returns the sandbox's file of trusted authorities.
func (m *Machine) trustedList() string {
	if m.backend.rootless {
		return m.backend.bundle
	}
	return bundleName
}

// credential returns a user of the sandbox with the groups in the sandbox's files. It runs
// inside the sandbox.
func (m *Machine) credential(user string) *syscall.Credential {
	if user == backend.RootUser {
		return &syscall.Credential{Groups: []uint32{0}}
	}
	return &syscall.Credential{Uid: backend.UserID, Gid: backend.GroupID, Groups: inside.SupplementaryGroups(m.account.Name)}
}

func (m *Machine) files(f func(backend.FileSystem) error) error {
	return backend.OnThread(func() error {
		if err := m.enter(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if !m.backend.rootless {
			if err := backend.ActAs(backend.UserID, backend.GroupID, inside.SupplementaryGroups(m.account.Name)); err != nil {
				return err
			}
		}
		return f(backend.ThreadFS{})
	})
}

func (m *Machine) ReadFile(name string) (io.ReadCloser, error) {
	return backend.OpenFile(m.files, name)
}

func (m *Machine) Mkdir(name string, parents bool) error {
	return m.files(func(f backend.FileSystem) error { return backend.MakeDir(f, name, parents) })
}

func (m *Machine) Extract(ctx context.Context, archive io.Reader, dir string) error {
	return m.files(func(f backend.FileSystem) error { return backend.Extract(ctx, f, archive, dir) })
}

// HandOver returns the files with which the host's process can connect the sandbox to the
// outside.
func (m *Machine) HandOver() ([]*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.net == nil {
		return nil, backend.ErrStopped
	}
	return m.net.handOver()
}

func (m *Machine) OpenTerminal(size backend.Size, user string) (term *backend.Terminal, err error) {
	err = backend.OnThread(func() error {
		if err := m.enter(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if term, err = backend.OpenTerminal(size); err != nil {
			return err
		}
		if user == backend.RootUser || m.backend.rootless {
			return nil
		}
		if err = term.Slave.Chown(backend.UserID, 5); err != nil {
			return errors.Join(err, term.Slave.Close(), term.Master.Close())
		}
		return nil
	})
	return term, err
}

func (m *Machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	m.mu.Lock()
	n := m.net
	m.mu.Unlock()
	if n == nil {
		return nil, backend.ErrStopped
	}
	return n.dial(ctx, port)
}

func (m *Machine) Disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.net != nil {
		m.net.nat.Disconnect()
	}
}

func (m *Machine) Network() (in, out int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, out = m.in, m.out
	if m.net != nil {
		i, o := m.net.nat.Transferred()
		in, out = in+i, out+o
	}
	return in, out
}

func (m *Machine) Ended(int) {}

func (m *Machine) Halt([]backend.Command) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shutDownLocked()
}

// shutDownLocked kills the first process, and with it all others, and releases what the
// boot acquired.
func (m *Machine) shutDownLocked() error {
	if m.init != nil {
		_ = m.init.Process.Kill()
		// The first process ends only once all others of the sandbox have ended.
		<-m.dead
		m.init = nil
	}
	err := m.pidfd.Close()
	if m.net != nil {
		in, out := m.net.nat.Transferred()
		m.in, m.out = m.in+in, m.out+out
		err = errors.Join(err, m.net.close())
		m.net = nil
	}
	return err
}

// Freeze returns the upper directory without copying it.
func (m *Machine) Freeze() (string, int64, error) {
	size, err := backend.DiskUsage(m.Upper())
	return m.Upper(), size, err
}
