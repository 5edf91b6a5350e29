package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Box is the machine of one session: a file system and, while it runs, processes. It is
// safe for concurrent use.
type Box struct {
	host    *Host
	cfg     backend.Config
	id      string
	dir     string
	drives  []string // directories of the held versions, in the order of the mounts
	machine backend.Machine

	mu       sync.Mutex
	running  bool
	booted   bool // see bootLocked
	stopping bool
	consumed bool // frozen or removed: its files are gone
	procs    map[*Process]struct{}
	calls    sync.WaitGroup  // that use the running machine
	runCtx   context.Context // ends with ErrStopped when the Box stops
	endRun   context.CancelCauseFunc
	cpu      time.Duration // of processes that have ended
}

// Running reports whether processes can be started.
func (b *Box) Running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running && !b.stopping
}

func (b *Box) startLocked() {
	b.runCtx, b.endRun = context.WithCancelCause(context.Background())
	b.running = true
}

// bootLocked boots the machine of a running Box, unless it is booted. It is called at the
// first use: many tests run no command in a sandbox, and a boot starts two programs.
func (b *Box) bootLocked() error {
	if b.booted {
		return nil
	}
	if err := b.machine.Boot(b.runCtx); err != nil {
		return err
	}
	b.booted = true
	return nil
}

// use keeps the Box running until the returned function is called.
func (b *Box) use() (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running || b.stopping {
		return nil, backend.ErrStopped
	}
	if err := b.bootLocked(); err != nil {
		return nil, err
	}
	b.calls.Add(1)
	return b.calls.Done, nil
}

// Stop ends every process of the Box, detached ones too, with SIGKILL, and returns when
// they are gone. The files stay: Restart continues with them, and Freeze turns them into a
// layer. Stopping a stopped Box is not an error.
func (b *Box) Stop() error {
	b.mu.Lock()
	if !b.running {
		b.mu.Unlock()
		return nil
	}
	b.stopping = true
	booted := b.booted
	b.endRun(backend.ErrStopped)
	b.mu.Unlock()

	var err error
	if booted {
		err = b.halt()
	}
	b.calls.Wait()
	b.mu.Lock()
	late := len(b.procs) > 0 // processes that were being started
	b.mu.Unlock()
	if late {
		err = errors.Join(err, b.halt())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running, b.booted, b.stopping = false, false, false
	if err != nil {
		return fmt.Errorf("box: stop: %w", err)
	}
	return nil
}

// Restart starts a stopped Box again on the same files.
func (b *Box) Restart() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.consumed:
		return fmt.Errorf("box: restart: %w", backend.ErrStopped)
	case b.running:
		return fmt.Errorf("box: restart: %w", errRunning)
	}
	b.startLocked()
	return nil
}

// Freeze turns the files of a stopped Box into a layer, and returns its ID and how much
// larger it is than the layer that the Box started from. The Box can't be used afterwards:
// make new ones from the layer. In namespace mode the cost does not depend on the size of
// the files.
func (b *Box) Freeze() (backend.LayerID, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.consumed:
		return "", 0, fmt.Errorf("box: freeze: %w", backend.ErrStopped)
	case b.running:
		return "", 0, fmt.Errorf("box: freeze: %w", errRunning)
	}
	dir, size, err := b.machine.Freeze()
	if err != nil {
		return "", 0, fmt.Errorf("box: freeze: %w", err)
	}
	var parent backend.LayerID
	if b.host.backend.Layered() {
		parent = b.cfg.Layer
	}
	id, err := b.host.store.add(dir, parent)
	if err != nil {
		return "", 0, fmt.Errorf("box: freeze: %w", err)
	}
	return id, size, b.removeLocked()
}

// Remove stops the Box and removes its files. Removing a removed or frozen Box is not an
// error.
func (b *Box) Remove() error {
	if err := b.Stop(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.removeLocked()
}

func (b *Box) removeLocked() error {
	if b.consumed {
		return nil
	}
	b.consumed = true
	err := b.saveMounts()
	err = errors.Join(err, backend.RemoveAll(b.dir), b.releaseDrives())
	b.host.store.release(b.cfg.Layer)
	b.host.forget(b)
	return err
}

// Usage is the resource usage of a Box since it was created.
type Usage struct {
	// CPU is the user and system time of the processes.
	CPU time.Duration
	// NetworkIn and NetworkOut are bytes received and sent. They are zero in folder mode.
	NetworkIn, NetworkOut int64
}

// Usage returns the resource usage so far.
func (b *Box) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := Usage{CPU: b.cpu}
	for p := range b.procs {
		u.CPU += backend.ProcessCPU(p.Pid())
	}
	if b.machine != nil {
		u.NetworkIn, u.NetworkOut = b.machine.Network()
	}
	return u
}

// Dial connects to a server on a TCP port of the Box. If Boxes have their own networks, it
// returns ErrLoopbackOnly for a server that listens only on loopback addresses.
func (b *Box) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("box: dial: port %d is not in 1..65535", port)
	}
	done, err := b.use()
	if err != nil {
		return nil, fmt.Errorf("box: dial: %w", err)
	}
	defer done()
	return b.machine.Dial(ctx, port)
}

// Disconnect breaks all connections to the outside. Programs have to connect again, and the
// Firewall decides about the new connections.
func (b *Box) Disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.machine != nil {
		b.machine.Disconnect()
	}
}

// ReadFile opens a regular file. The caller closes it.
// Errors match fs.ErrNotExist and the like; a relative path is below cwd, and an
// empty cwd is the working directory.
func (b *Box) ReadFile(path, cwd string) (io.ReadCloser, error) {
	name, err := b.path(path, cwd)
	if err != nil {
		return nil, err
	}
	done, err := b.use()
	if err != nil {
		return nil, fmt.Errorf("box: read: %w", err)
	}
	defer done()
	return b.machine.ReadFile(name)
}

// Mkdir creates a directory and its missing parents. It succeeds if the directory exists.
func (b *Box) Mkdir(path, cwd string) error { return b.mkdir(path, cwd, true) }

// MkdirNew creates a directory in an existing one. If the name is taken, the error
// matches fs.ErrExist.
func (b *Box) MkdirNew(path, cwd string) error { return b.mkdir(path, cwd, false) }

func (b *Box) mkdir(path, cwd string, parents bool) error {
	name, err := b.path(path, cwd)
	if err != nil {
		return err
	}
	done, err := b.use()
	if err != nil {
		return fmt.Errorf("box: mkdir: %w", err)
	}
	defer done()
	return b.machine.Mkdir(name, parents)
}

// Extract unpacks a gzipped tar archive below cwd (empty means the working directory) as
// the Box's user. "..", absolute names and symlinks are resolved within the Box. If an
// entry can't be unpacked, Extract returns ErrBadArchive or the file system's error, and
// the entries before it stay. If ctx ends or the Box stops, Extract gives up and returns as
// soon as Read has returned.
func (b *Box) Extract(ctx context.Context, archive io.Reader, cwd string) error {
	dir, err := b.path(".", cwd)
	if err != nil {
		return err
	}
	done, err := b.use()
	if err != nil {
		return fmt.Errorf("box: extract: %w", err)
	}
	// Read the archive in a separate goroutine, so that a stalled one does not delay the
	// stop of the Box.
	r, w := io.Pipe()
	abort := func(cause context.Context) func() bool {
		return context.AfterFunc(cause, func() { _ = r.CloseWithError(context.Cause(cause)) })
	}
	defer abort(ctx)()
	defer abort(b.runCtx)()
	var pump sync.WaitGroup
	pump.Go(func() {
		_, err := io.Copy(w, archive)
		_ = w.CloseWithError(err)
	})
	err = b.machine.Extract(ctx, r, dir)
	_ = r.Close()
	done()
	pump.Wait()
	return err
}

// path returns a clean absolute path in the Box.
func (b *Box) path(path, cwd string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("box: %w: empty", backend.ErrBadPath)
	}
	return backend.CleanPath(path, cwd, b.Account().WorkDir)
}

// Account returns the account of the sandbox's user.
func (b *Box) Account() backend.Account { return b.cfg.AccountOrDefault() }

// halt ends the processes, and waits until the commands have ended.
func (b *Box) halt() error {
	b.mu.Lock()
	procs := slices.Collect(maps.Keys(b.procs))
	b.mu.Unlock()
	commands := make([]backend.Command, len(procs))
	for i, p := range procs {
		commands[i] = p
	}
	err := b.machine.Halt(commands)
	for _, p := range procs {
		<-p.Done()
	}
	return err
}
