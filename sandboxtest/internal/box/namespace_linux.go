package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

type unixStat = syscall.Stat_t

// namespaceBackend holds the mount namespace in which roots are put together.
// Only a few threads are in it, so the rest of the process never sees its mounts,
// and they disappear with the threads, however those end.
type namespaceBackend struct {
	log    *slog.Logger
	dir    string   // the store
	mounts string   // the tmpfs below dir, seen by the threads only
	hidden []string // of the machine, with dir in it
	self   string   // this program, below mounts
	pool   *threads
	lower  map[string]string // the lowest layers by the account's name, as boxes name them
	extra  []string          // host directories to bind
	homes  []home            // of the machine's users
	tun    bool              // boxes have networks that lead outside

	rootless bool
	callable bool   // boxes can make the calls of refusedCalls
	trusted  []byte // see Options
	// bundles are the lists of authorities that a rootless box trusts, by the
	// machine's that they stand for, and bundle is the name of one.
	bundles map[string]string
	bundle  string

	// The threads' namespaces, to come back to.
	mnt, net, uts, ipc int
}

// machineKey is what decides whether boxes run on this machine.
type machineKey struct {
	rootless bool
	user     int
	device   uint64 // of the store
	path     string // of the programs
}

// machinesTried has the machines on which a box has run. A process that opens many
// hosts need not try again.
var machinesTried sync.Map

func newNamespaceBackend(dir string, log *slog.Logger, rootless bool, seen seen) (backend, error) {
	var store unix.Stat_t
	if err := unix.Stat(dir, &store); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	key := machineKey{rootless, os.Geteuid(), uint64(store.Dev), os.Getenv("PATH")} //nolint:unconvert // another type elsewhere
	_, tried := machinesTried.Load(key)
	var b backend
	var err error
	if rootless {
		b, err = newRemoteBackend(dir, log, seen, tried)
	} else {
		b, err = newLocalBackend(dir, log, false, seen, tried)
	}
	if err != nil {
		return nil, err
	}
	machinesTried.Store(key, true)
	return b, nil
}

// newLocalBackend works with the process's own rights. rootless means that it is
// root only of a user namespace without other users. tried says that a box has run
// before.
func newLocalBackend(dir string, log *slog.Logger, rootless bool, seen seen, tried bool) (*namespaceBackend, error) {
	n := &namespaceBackend{
		rootless: rootless, trusted: seen.Trusted, homes: homes(seen.HomeFolders), hidden: seen.Hidden, tun: haveTUN(), log: log, dir: dir, mounts: filepath.Join(dir, "ns"), pool: &threads{work: make(chan func())},
		lower: make(map[string]string, len(accounts)),
		mnt:   -1, net: -1, uts: -1, ipc: -1,
	}
	if err := onThread(refuseCalls); err != nil {
		n.callable = true
		log.Warn("boxes share the kernel's keyrings with this machine", "reason", err)
	}
	err := n.pool.add(n.setUp)
	for range bootThreads - 1 {
		if err == nil {
			err = n.pool.add(n.join)
		}
	}
	if err == nil && !tried {
		err = n.try()
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	if !n.tun {
		log.Info("there is no /dev/net/tun: boxes share the host's network unless it is denied")
	}
	return n, nil
}

func (n *namespaceBackend) layered() bool   { return true }
func (n *namespaceBackend) networked() bool { return n.tun }

// maxLayers is under the kernel's limit of 500, some of which the base takes;
// the names of so many fit in a page.
func (n *namespaceBackend) maxLayers() int { return 400 }

// standApart separates the calling thread, and what it starts, from this process
// where no namespace does.
func (n *namespaceBackend) standApart() error {
	if err := standApart(); err != nil {
		return err
	}
	// Without root the session's keyring is already a new one, for all boxes: a
	// user can't have many.
	if !n.rootless {
		newSessionKeyring()
	}
	if n.callable {
		return nil
	}
	return refuseCalls()
}

// bootThreads is the number of boxes that start at a time; mostly they wait for
// the kernel's grace periods.
const bootThreads = 4

// join brings one more thread in.
func (n *namespaceBackend) join() error {
	if err := n.standApart(); err != nil {
		return err
	}
	return unix.Setns(n.mnt, unix.CLONE_NEWNS)
}

// onBootThread runs f on a thread that lives as long as the process that f
// starts, until dead is closed.
func (n *namespaceBackend) onBootThread(f func() error, dead <-chan struct{}) error {
	if !n.rootless {
		return n.pool.do(f)
	}
	done := make(chan error, 1)
	go lockAway(func() {
		err := n.join()
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
func (n *namespaceBackend) setUp() error {
	if err := n.standApart(); err != nil {
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
	for _, a := range accounts {
		dirs = append(dirs, a.baseName(), a.viewName(), a.etcName())
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
		if *fd, err = openNamespace(kind); err != nil {
			return err
		}
	}
	return nil
}

func (n *namespaceBackend) setUpAsRoot() error {
	err := buildDev(n.mounts + "/dev")
	if err != nil {
		return err
	}
	if n.extra, err = extraMounts(n.dir); err != nil {
		return err
	}
	for _, a := range accounts {
		base := baseLayer{dir: filepath.Join(n.mounts, a.baseName()), owners: true}
		err := errors.Join(base.build(n.hidden, n.homes, a), writeAccounts(base.name("/etc"), n.tun, searchPath(), a), base.makeOwnRun(),
			base.addSudo(searchPath(), sudoProgram), base.trust(n.trusted))
		if err == nil {
			err = n.chooseLower(a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chooseLower decides how boxes see the host's root. overlayfs refuses a lower
// layer that lies inside another, and where the layers are on the root file
// system they lie inside "/". A read-only overlay of the base over "/" is a file
// system of its own, which contains no layers. It costs one of the two levels
// that overlays may be stacked, so it is taken only when needed.
func (n *namespaceBackend) chooseLower(a Account) error {
	var root, store unix.Stat_t
	if err := errors.Join(unix.Stat("/", &root), unix.Stat(n.dir, &store)); err != nil {
		return err
	}
	// Boxes are mounted with the store's l as working directory.
	if root.Dev != store.Dev {
		n.lower[a.Name] = "../ns/" + a.baseName() + ":/"
		return nil
	}
	n.lower[a.Name] = "../ns/" + a.viewName()
	// A relative name needs no escapes.
	if err := os.Chdir(n.mounts); err != nil {
		return err
	}
	return mountPoint{source: "base", target: filepath.Join(n.mounts, a.viewName()), kind: "overlay", flags: unix.MS_RDONLY,
		data: "lowerdir=" + a.baseName() + ":/,redirect_dir=on"}.mount()
}

// try runs a box once, which best shows whether the kernel and the host's
// programs suffice.
func (n *namespaceBackend) try() error {
	dir := filepath.Join(n.dir, "b", newID())
	m := &namespaceMachine{backend: n, dir: dir, account: RuntimeAccount}
	defer func() { _ = removeAll(dir) }()
	if err := m.make(); err != nil {
		return err
	}
	if err := m.boot(context.Background()); err != nil {
		return err
	}
	cmd := &exec.Cmd{Args: []string{"true"}}
	spec := &Spec{Path: "true"}
	if err := spec.complete(m.account, searchPath()); err != nil {
		return errors.Join(err, m.halt(nil))
	}
	proc, err := m.launch(cmd, spec)
	if err == nil && proc.wait().Code != 0 {
		err = errors.New("a command that should succeed fails")
	}
	return errors.Join(err, m.halt(nil))
}

func (n *namespaceBackend) newMachine(b *Box, dir string, layers []string) (machine, error) {
	return n.machine(dir, layers, b.cfg)
}

func (n *namespaceBackend) machine(dir string, layers []string, cfg Config) (*namespaceMachine, error) {
	m := &namespaceMachine{
		backend: n, dir: dir, layers: layers, deny: cfg.DenyNetwork, hostname: cfg.Hostname, account: cfg.account(), firewall: cfg.Firewall,
		mounts: cfg.Mounts,
	}
	return m, m.make()
}

func (n *namespaceBackend) close() error {
	n.pool.close()
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
