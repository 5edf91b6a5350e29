// Package store holds the state of the emulator's API: sandboxes and their sessions,
// snapshots, drives, commands and ports. It starts and ends machines and commands. The
// handlers of the API call [Store], which knows nothing of them. Package sandboxtest tests
// it through the API; only the logs of commands and the clock are tested here.
package store

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// Options are the options of a store. The server's options document the fields that they
// share.
type Options struct {
	Mode                box.Mode
	Dir                 string
	Images              []string
	HomeFolders, Hidden []string
	Start               time.Time
	Realistic           bool
	RefuseUnenforced    bool
	Firewall            firewall.Options // Open sets its Guard and Log
	Log                 *slog.Logger
	// Team is the ID of the team that sandboxes belong to.
	Team string
	// Stub returns the stub that replaces a command, or nil if none does.
	Stub func(name string, args []string) Stub
	// Missing lists what this machine does not enforce, with reasons.
	Missing func() error
}

// Store holds the state of the API. Its lock guards the fields of every sandbox, session,
// snapshot and drive. It is never held while a machine works or during a write to a client.
//
// Names show the locks. The caller of a function whose name ends in Locked holds the
// store's lock. The caller of one that ends in InOp holds Sandbox.op, which is locked
// before the store's lock. Every other function takes the locks that it needs.
type Store struct {
	opts  Options
	Clock *Clock
	guard *guard.Guard // for the goroutines that handle data from sandboxes
	Host  *box.Host
	site  *firewall.Site
	// digests maps the names in Options.Images to the digests that responses show. It never
	// changes after Open.
	digests map[string]string
	logDir  string // the logs of commands
	// unlockLogDir lets other servers remove logDir.
	unlockLogDir   func() error
	routesHost     string    // where the ports of sandboxes are
	warnUnenforced sync.Once // about a policy that is not enforced
	earlier        *State    // read from Options.Dir; nil if there was none

	// ctx ends when the server closes. Close waits for background.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup
	gate       sync.Mutex
	closed     bool // guarded by gate; nothing may be added to background

	mu        sync.Mutex
	sandboxes map[Key]*Sandbox
	sessions  map[string]*Session
	snapshots map[string]*Snapshot
	drives    map[Key]*drive
	saver     saver
}

// Key identifies a sandbox or a drive. Its name is unique within its project.
type Key struct {
	Project string `json:"project"`
	Name    string `json:"name"`
}

// New returns an empty store. Call Open and then Load before using it.
func New(opts Options) *Store {
	g := guard.New(opts.Log)
	st := &Store{
		opts:      opts,
		Clock:     newClock(g),
		guard:     g,
		sandboxes: make(map[Key]*Sandbox),
		sessions:  make(map[string]*Session),
		snapshots: make(map[string]*Snapshot),
		drives:    make(map[Key]*drive),
		digests:   make(map[string]string),
		saver:     saver{wake: make(chan struct{}, 1)},
	}
	if !opts.Start.IsZero() {
		st.Clock.offset = time.Until(opts.Start)
	}
	st.ctx, st.cancel = context.WithCancel(context.Background())
	return st
}

// Open opens the host on which sandboxes run.
func (st *Store) Open() (err error) {
	config := box.Options{Mode: st.opts.Mode, HomeFolders: st.opts.HomeFolders, Hidden: st.opts.Hidden, Logger: st.opts.Log}
	if st.opts.Dir != "" {
		config.Dir, config.Hidden, config.Contents = filepath.Join(st.opts.Dir, machinesDir), append([]string{st.opts.Dir}, config.Hidden...), st.contents
		if err := checkDir(st.opts.Dir); err != nil {
			return err
		}
		if err := os.MkdirAll(st.opts.Dir, 0o711); err != nil {
			return err
		}
	}
	site := st.opts.Firewall
	site.Guard, site.Log = st.guard, st.opts.Log
	if st.site, err = firewall.NewSite(site); err != nil {
		return err
	}
	config.Trusted = func() (_ []byte, err error) {
		if st.site.Authority, err = openAuthority(st.opts.Dir); err != nil {
			return nil, err
		}
		return st.site.Authority.PEM, nil
	}
	if st.Host, err = box.NewHost(config); err != nil {
		return err
	}
	if err = st.openImages(); err != nil {
		return err
	}
	st.logDir, st.unlockLogDir, err = box.TempDir(os.TempDir(), "sandbox-logs-")
	return err
}

// Enter delays Close until Leave is called. It returns false if the store is closing.
func (st *Store) Enter() bool {
	st.gate.Lock()
	defer st.gate.Unlock()
	if !st.closed {
		st.background.Add(1)
	}
	return !st.closed
}

// Leave undoes an Enter.
func (st *Store) Leave() { st.background.Done() }

// Spawn runs f in the background, and Close waits for it. It does nothing if the store is
// closing.
func (st *Store) Spawn(f func()) {
	if st.Enter() {
		go func() {
			defer st.Leave()
			f()
		}()
	}
}

// BeginClose prevents new work and stops the clock.
func (st *Store) BeginClose() {
	st.gate.Lock()
	st.closed = true
	st.gate.Unlock()
	st.cancel()
	st.Clock.Close()
}

// Close ends everything, as Server.Close documents.
func (st *Store) Close() error {
	var errs []error
	if st.Host != nil {
		errs = append(errs, st.shutDown())
	}
	st.background.Wait()
	if st.Host != nil {
		errs = append(errs, st.Host.Close())
	}
	if st.logDir != "" {
		errs = append(errs, os.RemoveAll(st.logDir), st.unlockLogDir())
	}
	return errors.Join(errs...)
}

// Find returns the sandbox with a name, of a project or of any if project is empty.
func (st *Store) Find(project, name string) *Sandbox {
	st.mu.Lock()
	defer st.mu.Unlock()
	if project != "" {
		return st.sandboxes[Key{project, name}]
	}
	for key, sb := range st.sandboxes {
		if key.Name == name {
			return sb
		}
	}
	return nil
}

// Session returns the session with an ID.
func (st *Store) Session(id string) (*Session, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess := st.sessions[id]; sess != nil {
		return sess, nil
	}
	return nil, reply.ErrSessionNotFound
}

// Uses reports whether a project has a sandbox or a drive.
func (st *Store) Uses(project string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	for key := range st.sandboxes {
		if key.Project == project {
			return true
		}
	}
	for key := range st.drives {
		if key.Project == project {
			return true
		}
	}
	return false
}

// OnClose calls f when the store starts to close, unless stop is called before.
func (st *Store) OnClose(f func()) (stop func() bool) { return context.AfterFunc(st.ctx, f) }

// Closing reports whether the store is closing.
func (st *Store) Closing() bool { return st.ctx.Err() != nil }
