package backend

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// OnThread runs f on an OS thread that ends with it, so that f may change the thread's
// namespaces, user and capabilities.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go UseUpThread(func() { done <- guard.Tried(f) })
	return <-done
}

// UseUpThread calls f on an OS thread that ends afterwards. It is never the process's first
// thread, which can't end, and whose namespaces /proc/self shows.
func UseUpThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return // locked, so the thread ends
	}
	// While this goroutine is locked to the first thread, a new goroutine runs on another
	// one.
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
	runtime.UnlockOSThread()
}

// SeparateThread gives the calling thread its own working directory, root and umask.
// Files get the modes that they have on the platform, independently of this process's
// umask.
func SeparateThread() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	unix.Umask(0o022)
	return nil
}

// Threads are long-lived OS threads with their own namespaces.
type Threads struct {
	work chan func()
	wg   sync.WaitGroup
}

// NewThreads returns a pool without threads.
func NewThreads() *Threads { return &Threads{work: make(chan func())} }

// Add starts one more thread, which runs setUp first and ends if that fails.
func (t *Threads) Add(setUp func() error) error {
	done := make(chan error, 1)
	t.wg.Add(1)
	go UseUpThread(func() {
		defer t.wg.Done()
		err := guard.Tried(setUp)
		done <- err
		if err != nil {
			return
		}
		for f := range t.work {
			f()
		}
	})
	return <-done
}

// Do runs f on one of the threads.
func (t *Threads) Do(f func() error) error {
	done := make(chan error, 1)
	t.work <- func() { done <- guard.Tried(f) }
	return <-done
}

// Close ends the threads.
func (t *Threads) Close() {
	close(t.work)
	t.wg.Wait()
}

// Handle is a file descriptor that may be closed while others use it.
type Handle struct {
	mu   sync.RWMutex
	fd   int
	open bool
}

// Set sets the handle's descriptor.
func (h *Handle) Set(fd int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fd, h.open = fd, fd >= 0
}

// Use returns ErrStopped if the descriptor is closed.
func (h *Handle) Use(f func(fd int) error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if !h.open {
		return ErrStopped
	}
	return f(h.fd)
}

// Close closes the descriptor, once nothing uses it.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		return nil
	}
	h.open = false
	return unix.Close(h.fd)
}

// OpenNamespace opens a namespace of the calling thread.
func OpenNamespace(kind string) (int, error) {
	name := "/proc/thread-self/ns/" + kind
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return fd, nil
}

// keptCapabilities are root's capabilities in a sandbox: those that package managers, sudo
// and the tools for users need, and none that reaches the host's kernel or devices.
var keptCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_NET_RAW, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
	unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
}

// LimitCapabilities removes all capabilities except keptCapabilities from programs that
// the calling thread starts, even as root.
func LimitCapabilities() error {
	var kept uint64
	for _, c := range keptCapabilities {
		kept |= 1 << c
	}
	for c := range uintptr(64) {
		if kept&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if err == unix.EINVAL {
				return nil // this kernel has no further capabilities
			}
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// ActAs gives the calling thread the sandbox user's rights on files.
func ActAs(uid, gid int, groups []uint32) error {
	list := make([]uint32, 0, len(groups)+1)
	list = append(list, uint32(gid))
	list = append(list, groups...)
	if err := setThreadGroups(list); err != nil {
		return err
	}
	// These two calls return the previous ID instead of an error, so check the result.
	for _, id := range []struct {
		trap uintptr
		to   int
	}{{unix.SYS_SETFSGID, gid}, {unix.SYS_SETFSUID, uid}} {
		_, _, _ = unix.RawSyscall(id.trap, uintptr(id.to), 0, 0)
		if now, _, _ := unix.RawSyscall(id.trap, ^uintptr(0), 0, 0); int(now) != id.to {
			return fmt.Errorf("act as user %d: %w", uid, unix.EPERM)
		}
	}
	return nil
}

// AsUser calls f with the rights of a user on files.
func AsUser(uid, gid int, f func() error) error {
	return OnThread(func() error {
		if err := ActAs(uid, gid, nil); err != nil {
			return err
		}
		return f()
	})
}
