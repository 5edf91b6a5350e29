package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/sudo"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// Backend owns the mount namespace in which roots are assembled. Only a few threads are
// in it, so the rest of the process never sees its mounts. They disappear with the
// threads, however those end.
type Backend struct {
	log    *slog.Logger
	dir    string   // the store
	mounts string   // a tmpfs below dir that only the threads see
	hidden []string // directories of the machine that sandboxes don't see, including dir
	self   string   // the name of this program below mounts
	pool   *backend.Threads
	lower  map[string]string // the lowest layers by the account's name, as in the mount option lowerdir
	extra  []string          // directories of the host that are bound into sandboxes
	homes  []home            // of the machine's users
	TUN    bool              // each sandbox has its own network

	rootless   bool
	unfiltered bool   // this kernel can't refuse system calls; see backend.RefuseCalls
	trusted    []byte // see Options.Trusted of package box
	// bundles maps the machine's lists of trusted authorities to the copies that a rootless
	// sandbox uses. bundle is one of these names.
	bundles map[string]string
	bundle  string

	// The threads' namespaces, to which they return.
	mnt, net, uts, ipc int
}

// NewBackend returns a backend that works with the process's own rights. rootless means
// that the process is root only of a user namespace without other users. tried is set if a
// sandbox has run on this machine before.
func NewBackend(dir string, log *slog.Logger, rootless bool, seen backend.Visible, tried bool) (*Backend, error) {
	n := &Backend{
		rootless: rootless, trusted: seen.Trusted, homes: homes(seen.HomeFolders), hidden: seen.Hidden, TUN: haveTUN(), log: log, dir: dir, mounts: filepath.Join(dir, "ns"), pool: backend.NewThreads(),
		lower: make(map[string]string, len(backend.Accounts)),
		mnt:   -1, net: -1, uts: -1, ipc: -1,
	}
	refused := backend.OnThread(backend.RefuseCalls)
	n.unfiltered = refused != nil
	err := n.pool.Add(n.setUp)
	for range bootThreads - 1 {
		if err == nil {
			err = n.pool.Add(n.enterMounts)
		}
	}
	if err == nil && !tried {
		err = n.trySandbox()
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if n.unfiltered {
		log.Warn("sandboxes share the kernel's keyrings with this machine", "reason", refused)
	}
	if !n.TUN {
		log.Info("there is no /dev/net/tun: sandboxes share the host's network unless it is denied")
	}
	return n, nil
}

func (n *Backend) Layered() bool   { return true }
func (n *Backend) Networked() bool { return n.TUN }

// MaxLayers is below the kernel's limit of 500, because the base needs some. The names of
// so many layers fit into a page.
const MaxLayers = 400

func (n *Backend) MaxLayers() int { return MaxLayers }

// separateThread separates the calling thread, and programs that it starts, from this
// process where namespaces don't.
func (n *Backend) separateThread() error {
	if err := backend.SeparateThread(); err != nil {
		return err
	}
	// Without root all sandboxes share the new session keyring of the agent, because a user
	// can't have many.
	if !n.rootless {
		backend.NewSessionKeyring()
	}
	if n.unfiltered {
		return nil
	}
	return backend.RefuseCalls()
}

// bootThreads is the number of sandboxes that can start at the same time. They mostly wait
// for the kernel's grace periods.
const bootThreads = 4

// enterMounts moves the calling thread into the backend's mount namespace.
func (n *Backend) enterMounts() error {
	if err := n.separateThread(); err != nil {
		return err
	}
	return unix.Setns(n.mnt, unix.CLONE_NEWNS)
}

// onBootThread runs f on a thread that lives as long as the process that f starts, until
// dead is closed.
func (n *Backend) onBootThread(f func() error, dead <-chan struct{}) error {
	if !n.rootless {
		return n.pool.Do(f)
	}
	done := make(chan error, 1)
	go backend.UseUpThread(func() {
		err := n.enterMounts()
		if err == nil {
			err = guard.Tried(f)
		}
		done <- err
		if err == nil {
			<-dead
		}
	})
	return <-done
}

// setUp runs on the first thread.
func (n *Backend) setUp() error {
	if err := n.separateThread(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare the mount namespace: %w", err)
	}
	if err := os.MkdirAll(n.mounts, 0o700); err != nil {
		return err
	}
	err := mountAll([]mountPoint{
		{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE},
		{source: "tmpfs", target: n.mounts, kind: "tmpfs", data: "mode=0711"},
	})
	if err != nil {
		return err
	}
	dirs := []string{"dev", "root", nothingName}
	for _, a := range backend.Accounts {
		dirs = append(dirs, baseName(a), viewName(a), etcName(a))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(n.mounts+"/"+dir, 0o755); err != nil {
			return err
		}
	}
	if err := n.bindSelf(); err != nil {
		return err
	}
	if n.rootless {
		err = n.setUpRootless()
	} else {
		err = n.setUpAsRoot()
	}
	if err != nil {
		return err
	}
	if err := n.emptyHomes(); err != nil {
		return err
	}
	for kind, fd := range map[string]*int{"mnt": &n.mnt, "net": &n.net, "uts": &n.uts, "ipc": &n.ipc} {
		if *fd, err = backend.OpenNamespace(kind); err != nil {
			return err
		}
	}
	return nil
}

func (n *Backend) setUpAsRoot() error {
	err := buildDev(n.mounts + "/dev")
	if err != nil {
		return err
	}
	if n.extra, err = extraMounts(n.dir); err != nil {
		return err
	}
	for _, a := range backend.Accounts {
		base := baseLayer{dir: filepath.Join(n.mounts, baseName(a)), owners: true}
		err := errors.Join(base.build(n.hidden, n.homes, a), writeAccounts(base.name("/etc"), n.TUN, backend.SearchPath(), a), base.makeRunDir(),
			base.addSudo(backend.SearchPath(), sudo.Program), base.trust(n.trusted))
		if err == nil {
			err = n.chooseLower(a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chooseLower decides how sandboxes see the host's root. overlayfs refuses a lower layer
// within another one, and if the layers are on the root file system, they are within "/". A
// read-only overlay of the base over "/" is a separate file system, which contains no
// layers. It uses one of the two levels to which overlays can be stacked, so it is used
// only if necessary.
func (n *Backend) chooseLower(a backend.Account) error {
	var root, store unix.Stat_t
	if err := errors.Join(unix.Stat("/", &root), unix.Stat(n.dir, &store)); err != nil {
		return err
	}
	// Sandboxes are mounted with the store's directory l as working directory.
	if root.Dev != store.Dev {
		n.lower[a.Name] = "../ns/" + baseName(a) + ":/"
		return nil
	}
	n.lower[a.Name] = "../ns/" + viewName(a)
	// A relative name needs no escapes.
	if err := os.Chdir(n.mounts); err != nil {
		return err
	}
	return mountPoint{source: "base", target: filepath.Join(n.mounts, viewName(a)), kind: "overlay", flags: unix.MS_RDONLY,
		data: "lowerdir=" + baseName(a) + ":/,redirect_dir=on"}.mount()
}

// trySandbox runs a sandbox once, which is the best check of the kernel and the host's programs.
func (n *Backend) trySandbox() error {
	dir := filepath.Join(n.dir, "b", backend.NewID())
	m := &Machine{backend: n, dir: dir, account: backend.RuntimeAccount}
	defer func() { _ = backend.RemoveAll(dir) }()
	if err := m.makeDirs(); err != nil {
		return err
	}
	if err := m.Boot(context.Background()); err != nil {
		return err
	}
	cmd := &exec.Cmd{Args: []string{"true"}}
	spec := &backend.Spec{Path: "true"}
	if err := spec.Complete(m.account, backend.SearchPath()); err != nil {
		return errors.Join(err, m.Halt(nil))
	}
	proc, err := m.Launch(cmd, spec)
	if err == nil && proc.Wait().Code != 0 {
		err = errors.New("a command that should succeed fails")
	}
	return errors.Join(err, m.Halt(nil))
}

func (n *Backend) NewMachine(_ string, cfg backend.Config, dir string, layers []string) (backend.Machine, error) {
	return n.MakeMachine(dir, layers, cfg)
}

// MakeMachine creates the machine of a sandbox.
func (n *Backend) MakeMachine(dir string, layers []string, cfg backend.Config) (*Machine, error) {
	m := &Machine{
		backend: n, dir: dir, layers: layers, deny: cfg.DenyNetwork, hostname: cfg.Hostname, account: cfg.AccountOrDefault(), firewall: cfg.Firewall,
		mounts: cfg.Mounts,
	}
	return m, m.makeDirs()
}

func (n *Backend) Close() error {
	n.pool.Close()
	for _, fd := range []int{n.mnt, n.net, n.uts, n.ipc} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	err := os.Remove(n.mounts)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}
