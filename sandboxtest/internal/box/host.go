package box

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/folder"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// Mode is a way in which a host runs sandboxes.
type Mode string

const (
	// Auto means Namespace mode if possible, and Folder mode otherwise.
	Auto Mode = ""
	// Namespace gives each sandbox its own root, processes and network.
	Namespace Mode = "namespace"
	// Folder runs host processes in a folder.
	Folder Mode = "folder"
)

// tempPrefix is the prefix of hosts' temporary directories.
const tempPrefix = "sandbox-host-"

// Options configures a Host. The zero value works.
type Options struct {
	// Dir keeps the layers across restarts of the host. It is created if missing, and
	// locked while the host is open. Empty means a temporary directory that Close
	// removes.
	Dir string
	// Mode is the required mode. Empty means Auto, which never runs Folder with the
	// rights of root.
	Mode Mode
	// Trusted returns a certificate authority, as PEM, that programs in sandboxes trust in
	// addition to the machine's, in namespace mode. It is called once the directory is
	// locked, for each way that is tried. Nil means none.
	Trusted func() ([]byte, error)
	// Contents returns what Dir must contain for a host of a kind. It is called once the
	// directory is locked. If something is missing, NewHost fails without changing
	// anything. Nil requires nothing.
	Contents func(kind string) (Contents, error)
	// Hidden are folders that sandboxes don't see, in addition to Dir.
	Hidden []string
	// HomeFolders are folders in users' home directories that sandboxes see, in addition to
	// those in PATH.
	HomeFolders []string
	// Logger receives unusual events. Nil means no log.
	Logger *slog.Logger
}

// Contents are layers and drives.
type Contents struct {
	Layers []backend.LayerID
	Drives []string
}

// Host owns a directory of layers and the sandboxes that use them. It is safe for
// concurrent use.
type Host struct {
	way     way
	dir     string
	temp    bool
	reasons error // why better ways are not available
	log     *slog.Logger
	guard   *guard.Guard
	backend backend.Backend
	store   *store
	drives  *drives
	unlock  func() error
	// boxesDir contains the sandboxes if they can't be in dir; see openFolders.
	boxesDir    string
	boxesUnlock func() error

	flattening sync.Mutex // of chains, one at a time

	mu     sync.Mutex
	boxes  map[string]*Box
	closed bool
}

// NewHost opens a host. Close ends its processes, except for an agent that hosts of this
// process share, and removes everything that it has put on the machine.
func NewHost(opts Options) (*Host, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	ways := waysOf(opts.Mode)
	if len(ways) == 0 {
		return nil, fmt.Errorf("box: unknown mode %q, want %q, %q or empty", opts.Mode, Namespace, Folder)
	}
	var reasons error
	for _, way := range ways {
		for _, parent := range tempParents(opts.Dir, way.mode) {
			h, err := open(opts, way, parent)
			if err == nil {
				h.reasons = reasons
				if way.rootless && reasons != nil {
					h.log.Warn("sandboxes have one user only and no sudo", "reason", reasons)
				}
				return h, nil
			}
			reasons = errors.Join(reasons, err)
			if !errors.Is(err, ErrUnavailable) {
				return nil, fmt.Errorf("box: %w", reasons)
			}
		}
	}
	if opts.Mode == Auto {
		reasons = errors.Join(errors.New("this process is root, and commands in folder mode would be root, too: run it as an ordinary user, allow it namespaces, or request folder mode"), reasons)
	}
	return nil, fmt.Errorf("box: %w", reasons)
}

// way is a mode together with the rights that it uses.
type way struct {
	mode Mode
	// rootless is set if the namespaces are created in a user namespace.
	rootless bool
	// guest is set if commands run as nobody instead of this process's root.
	guest bool
}

// kind names the layers of a way. Other ways can't use them.
func (w way) kind() string {
	if w.rootless {
		return "rootless"
	}
	return string(w.mode)
}

// waysOf returns the ways to provide a mode, best first. Root of a mere user namespace can
// use only the rootless way. Commands get the rights of the machine's root on its files
// only if Folder is requested, and even then as the last resort.
func waysOf(mode Mode) []way {
	var ways []way
	if mode == Auto || mode == Namespace {
		if os.Geteuid() == 0 {
			ways = append(ways, way{mode: Namespace})
		}
		ways = append(ways, way{mode: Namespace, rootless: true})
	}
	root := os.Geteuid() == 0
	if (mode == Auto || mode == Folder) && root && folder.HaveGuests {
		ways = append(ways, way{mode: Folder, guest: true})
	}
	if mode == Folder || mode == Auto && !root {
		ways = append(ways, way{mode: Folder})
	}
	return ways
}

// tempParents returns the places for temporary directories, in order of preference. They
// are not used if Options.Dir is set. overlayfs can't store its layers on another
// overlay, which a container's root is, but it can on shared memory.
func tempParents(dir string, mode Mode) []string {
	if dir == "" && mode == Namespace {
		return []string{os.TempDir(), "/dev/shm"}
	}
	return []string{os.TempDir()}
}

func open(opts Options, way way, parent string) (*Host, error) {
	h := &Host{way: way, log: opts.Logger, guard: guard.New(opts.Logger), boxes: make(map[string]*Box)}
	if err := h.openDir(opts.Dir, parent); err != nil {
		return nil, errors.Join(err, h.closeDir())
	}
	if err := h.openBackend(opts); err != nil {
		return nil, errors.Join(err, h.closeDir())
	}
	return h, nil
}

func (h *Host) openBackend(opts Options) (err error) {
	var want Contents
	if opts.Contents != nil {
		if want, err = opts.Contents(h.way.kind()); err != nil {
			return err
		}
	}
	h.drives = newDrives(filepath.Join(h.dir, drivesName))
	if err := h.drives.check(want.Drives); err != nil {
		return err
	}
	seen := backend.Visible{HomeFolders: opts.HomeFolders}
	if seen.Hidden, err = realFolders(append(slices.Clone(opts.Hidden), h.dir)); err != nil {
		return err
	}
	if opts.Trusted != nil {
		if seen.Trusted, err = opts.Trusted(); err != nil {
			return err
		}
	}
	dir := filepath.Join(h.dir, h.way.kind())
	if h.store, err = openStore(dir, want.Layers); err != nil {
		return err
	}
	for _, err := range h.store.damaged {
		h.log.Error("a snapshot is damaged: it can't be used, nor can those that depend on it; no files were removed", "error", err)
	}
	if h.way.mode == Folder {
		return h.openFolders(dir)
	}
	if h.backend, err = newNamespaces(dir, h.log, h.way.rootless, seen); err != nil {
		return fmt.Errorf("%s mode in %s: %w: %w", h.way.kind(), h.dir, ErrUnavailable, err)
	}
	return nil
}

// openFolders creates the backend of folder mode. Its layers are in dir. If commands run as
// a guest that can't enter the host's directory, the sandboxes' files are in another
// directory.
func (h *Host) openFolders(dir string) (err error) {
	folders := &folder.Backend{Layers: filepath.Join(dir, "l")}
	h.backend = folders
	if !h.way.guest {
		return nil
	}
	fail := func(err error) error {
		return fmt.Errorf("folder mode as nobody: %w: %w", ErrUnavailable, err)
	}
	if folders.Guest, err = folder.NewGuest(); err != nil {
		return fail(err)
	}
	// Commands must not change what the host stores.
	for _, kept := range []string{filepath.Join(dir, "l"), filepath.Join(h.dir, drivesName)} {
		if err := errors.Join(os.MkdirAll(kept, 0o700), os.Chmod(kept, 0o700)); err != nil {
			return err
		}
	}
	reasons := folders.Guest.Enters(h.store.boxes)
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		if reasons == nil {
			return nil
		}
		var err error
		if h.boxesDir, h.boxesUnlock, err = TempDir(parent, tempPrefix); err != nil {
			return err
		}
		h.store.boxes = filepath.Join(h.boxesDir, h.way.kind(), "b")
		err = errors.Join(os.Chmod(h.boxesDir, 0o711), backend.MkdirAll(h.store.boxes, 0o711))
		if err == nil {
			err = folders.Guest.Enters(h.store.boxes)
		}
		if err == nil {
			return nil
		}
		reasons = errors.Join(reasons, err, h.closeBoxesDir())
	}
	return fail(reasons)
}

// closeBoxesDir removes the sandboxes' separate directory, if any.
func (h *Host) closeBoxesDir() error {
	if h.boxesDir == "" {
		return nil
	}
	err := errors.Join(backend.RemoveAll(h.boxesDir), h.boxesUnlock())
	h.boxesDir = ""
	return err
}

// Mode returns the mode in use, never Auto.
func (h *Host) Mode() Mode { return h.way.mode }

// Rootless reports whether a host in namespace mode works without the rights of the
// machine's root. Its sandboxes then have only one user.
func (h *Host) Rootless() bool { return h.way.rootless }

// Gated reports whether sandboxes have firewalls. Each sandbox then has its own network,
// and its programs trust Options.Trusted. Its Firewall connects the network to the outside,
// and can disconnect it while the sandbox runs.
func (h *Host) Gated() bool { return h.backend.Networked() }

// Kind returns the kind of layers that the host can use. Layers of another kind may be in
// the same directory, but can't be used.
func (h *Host) Kind() string { return h.way.kind() }

// Reasons returns why better ways to run sandboxes are not available. Nil means that the
// best way is in use.
func (h *Host) Reasons() error { return h.reasons }

// New makes and starts a Box.
func (h *Host) New(ctx context.Context, cfg backend.Config) (*Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	layer, chain, err := h.store.acquire(cfg.Layer, h.backend.Layered())
	if err != nil {
		return nil, fmt.Errorf("box: %w", err)
	}
	if cfg.Layer, chain, err = h.flatten(layer, chain); err != nil {
		h.store.release(cfg.Layer)
		return nil, fmt.Errorf("box: %w", err)
	}
	b := &Box{host: h, cfg: cfg, id: backend.NewID(), procs: make(map[*Process]struct{})}
	if err := h.start(ctx, b, chain); err != nil {
		h.store.release(cfg.Layer)
		return nil, fmt.Errorf("box: %w", err)
	}
	return b, nil
}

func (h *Host) start(ctx context.Context, b *Box, chain []string) error {
	if err := backend.CheckFileLimit(); err != nil {
		return err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return backend.ErrStopped
	}
	h.boxes[b.id] = b
	h.mu.Unlock()

	b.mu.Lock()
	defer b.mu.Unlock()
	b.dir = h.store.boxDir(b.id)
	err := b.openMounts()
	var m backend.Machine
	if err == nil {
		m, err = h.backend.NewMachine(b.id, b.cfg, b.dir, chain)
	}
	if err == nil {
		b.machine = m
		err = b.fillMounts()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		h.forget(b)
		return errors.Join(err, backend.RemoveAll(b.dir), b.releaseDrives())
	}
	b.startLocked()
	return nil
}

func (h *Host) forget(b *Box) {
	h.mu.Lock()
	delete(h.boxes, b.id)
	h.mu.Unlock()
	if agent, ok := h.backend.(interface{ Forget(id string) }); ok {
		agent.Forget(b.id)
	}
}

// RemoveLayer removes a layer. Its ID becomes invalid at once. Its files are removed when
// no sandbox or other layer depends on it.
func (h *Host) RemoveLayer(id backend.LayerID) error { return h.store.remove(id) }

// KeepOnly removes every layer except those given and those that they depend on.
func (h *Host) KeepOnly(ids []backend.LayerID) error { return h.store.keepOnly(ids) }

// Close stops every sandbox and removes everything except the layers. It removes those too
// if the directory is temporary. It may be called more than once.
func (h *Host) Close() error {
	// Wait until a chain that is being flattened no longer needs the backend.
	h.flattening.Lock()
	defer h.flattening.Unlock()
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	boxes := slices.Collect(maps.Values(h.boxes))
	h.mu.Unlock()

	var wg sync.WaitGroup
	errs := make([]error, len(boxes))
	slots := make(chan struct{}, 32)
	for i, b := range boxes {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = b.Remove()
		})
	}
	wg.Wait()
	return errors.Join(errors.Join(errs...), h.backend.Close(), h.closeDir())
}

// Errors of hosts that callers test for with errors.Is.
var (
	// ErrUnavailable means that the required mode is not available on this machine.
	ErrUnavailable = errors.New("mode not available on this machine")
	// errRunning means that the Box has to be stopped first.
	errRunning = errors.New("sandbox is running")
	// ErrNoLayer means that there is no layer with that ID.
	ErrNoLayer = errors.New("no such layer")
)
