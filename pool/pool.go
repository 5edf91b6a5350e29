// Package pool keeps sandboxes ready. A program that needs one waits for one or two
// requests, not until a sandbox has started and is prepared.
//
//	p, err := pool.New(ctx, client, pool.Options{Name: "agents", Version: "7", Size: 10, Warm: …})
//	…
//	defer p.Close(context.WithoutCancel(ctx))
//	box, err := p.Take(ctx, "session-17")
//	…
//	defer box.Delete(context.WithoutCancel(ctx))
//
// # Ready
//
// A pool creates sandboxes with [Options].Create, for example from a snapshot, and
// prepares them with [Options].Warm. By default ready sandboxes run, which is billed,
// and [Pool.Take] needs one request. With [Options].Stopped they cost only storage, and
// Take needs two requests, the first of which starts a machine. If none is ready, Take
// creates one.
//
// # Processes
//
// Any number of processes may keep pools of the same name. A process takes a sandbox
// by creating or renaming a directory in it, which succeeds only once. A process whose
// attempt fails takes another sandbox. The directory is in .sandbox-pool-NAME, in the
// working directory.
//
// # Crashes
//
// A running sandbox of a pool has a timeout of [Options].Lease, which the pool
// extends as long as its process lives, also while the sandbox is taken. When a
// process is killed, another pool of that name adopts its ready sandboxes once their
// time runs low. The sandboxes that the killed process had taken or was creating time
// out.
//
// A sandbox that has timed out or was stopped is abandoned, and any pool of the name
// deletes it. Use [Box.Keep] for a sandbox that is to outlive its process or to be
// stopped: it leaves the pool.
//
// # Deployments
//
// A pool hands out only sandboxes of its own version ([Options].Version). It deletes
// stopped sandboxes of other versions if they are older than the first sandbox that it
// created. Running ones end with the processes that extend them.
//
// A sandbox is deleted for its age only if it is too old by both the service's clock and
// this machine's.
//
// A pool never deletes a snapshot. Snapshots of stopped sandboxes expire after
// CreateOptions.SnapshotExpiration, by default a day.
package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/observe"
)

// Tag is the tag of a pool's sandboxes. Its value is the pool's name.
const Tag = "sandbox-pool"

// ErrClosed is returned by [Pool.Take] after [Pool.Close].
var ErrClosed = errors.New("pool: closed")

// Pool keeps sandboxes ready. It is safe for concurrent use.
type Pool struct {
	client    *sandbox.Client
	opts      Options
	ctx       context.Context // of the pool's own goroutines
	cancel    context.CancelFunc
	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	work      sync.WaitGroup
	wake      chan struct{} // wakes the upkeep: a sandbox may be missing
	prefix    string        // of the names of this version's sandboxes

	extending atomic.Bool

	mu           sync.Mutex
	closed       bool      // Take and create fail
	firstCreated time.Time // creation of the oldest sandbox that this process created
	sweeping     bool
	filling      int       // sandboxes that the upkeep is creating
	taking       int       // sandboxes that Take is claiming or creating
	retryAt      time.Time // earliest creation after a failure
	failures     int       // consecutive
	ready        []*readySandbox
	claiming     map[string]bool             // names of sandboxes that Take is claiming
	extended     map[string]*sandbox.Sandbox // sandboxes that the pool keeps running, by name
	taken        map[string]bool             // names of sandboxes not yet returned, deleted or kept
	lost         map[string]bool             // names of taken sandboxes that have stopped
	freed        chan struct{}               // closed when there may be room below Max
	suspects     map[string]bool             // names of running sandboxes that must not be adopted
}

// readySandbox is a ready sandbox. sb is nil for a stopped one that was found in a listing.
type readySandbox struct {
	name    string
	created time.Time
	sb      *sandbox.Sandbox
}

// New starts a pool, which keeps sandboxes ready until [Pool.Close]. New does not
// wait for them. A nil client means [sandbox.DefaultClient]. The pool's own work
// uses the values of ctx, but continues when ctx ends.
func New(ctx context.Context, client *sandbox.Client, opts Options) (*Pool, error) {
	if err := entry.Check(ctx, true, "pool", ""); err != nil {
		return nil, err
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if client == nil {
		var err error
		if client, err = sandbox.DefaultClient(); err != nil {
			return nil, err
		}
	}
	p := &Pool{
		client: client, opts: opts, wake: make(chan struct{}, 1), closing: make(chan struct{}), freed: make(chan struct{}),
		claiming: map[string]bool{}, extended: map[string]*sandbox.Sandbox{}, suspects: map[string]bool{},
		taken: map[string]bool{}, lost: map[string]bool{}, prefix: opts.namePrefix(),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.work.Go(p.upkeep)
	return p, nil
}

// Close closes the pool and deletes the sandboxes that this process keeps ready,
// except stopped ones, which other processes may take. Taken sandboxes stay, but the
// pool no longer extends them. Close waits for work in progress and cancels it when ctx
// ends. Sandboxes that remain then time out.
func (p *Pool) Close(ctx context.Context) error {
	if err := entry.Check(ctx, p != nil && p.client != nil, "pool", "the Pool"); err != nil {
		return err
	}
	p.mu.Lock()
	p.closed = true
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	p.closeOnce.Do(func() { close(p.closing) })
	defer context.AfterFunc(ctx, p.cancel)()
	defer p.cancel()
	p.work.Wait()
	if p.opts.Stopped {
		return nil
	}
	errs := make([]error, len(ready))
	forEach(ready, func(i int, m *readySandbox) { _, errs[i] = p.deleteUnclaimed(ctx, m, "the pool is closed") })
	return errors.Join(errs...)
}

// Drain closes the pool and deletes all sandboxes of its name, whichever process
// created them: ready ones at once, others when they are returned, deleted or abandoned.
// It returns when none remains. Other processes that have not closed their pools create
// new ones.
func (p *Pool) Drain(ctx context.Context) error {
	if err := entry.Check(ctx, p != nil && p.client != nil, "pool", "the Pool"); err != nil {
		return err
	}
	p.mu.Lock()
	p.closed = true
	p.ready = nil // the listing below contains them
	p.mu.Unlock()
	p.wakeWaiters()
	for {
		infos, err := p.list(ctx)
		if err == nil && len(infos) == 0 {
			return p.Close(ctx)
		}
		var kept atomic.Bool
		forEach(infos, func(_ int, info sandbox.Info) {
			m := &readySandbox{name: info.Name, created: info.CreatedAt}
			if isRunning(info.Status) {
				m.sb, _ = p.client.Get(ctx, info.Name, &sandbox.GetOptions{NoResume: true})
			}
			deleted, _ := p.deleteUnclaimed(ctx, m, "drained")
			if !deleted {
				kept.Store(true)
			}
		})
		if err == nil && !kept.Load() {
			continue
		}
		timer := time.NewTimer(min(p.opts.Lease/8, 5*time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), err, p.Close(context.WithoutCancel(ctx)))
		}
	}
}

// Stats counts the sandboxes of this process.
type Stats struct {
	Ready  int // available to Take; those of all processes if Options.Stopped is set
	Taken  int // not yet returned, deleted or kept, and not stopped
	Making int // being created or claimed
}

// Stats returns the current numbers. It makes no request.
func (p *Pool) Stats() Stats {
	if p == nil {
		return Stats{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Ready: len(p.ready), Taken: len(p.taken) - len(p.lost), Making: p.filling + p.taking}
}

// Format prints the pool's name and numbers for every verb, because its options contain secrets.
func (p *Pool) Format(f fmt.State, _ rune) {
	if p == nil {
		_, _ = io.WriteString(f, "pool <nil>")
		return
	}
	s := p.Stats()
	_, _ = fmt.Fprintf(f, "pool %q: %d ready, %d taken, %d making", p.opts.Name, s.Ready, s.Taken, s.Making)
}

// event reports an operation of the pool to the client's observer and to the log.
func (p *Pool) event(what, name string, err error, attrs ...slog.Attr) {
	_, end := observe.Start(p.ctx, p.client.Observer(), observe.Event{Kind: observe.Pool, Operation: what, Sandbox: name})
	end(err, nil)
	if p.opts.Logger == nil {
		return
	}
	level := slog.LevelDebug
	attrs = append([]slog.Attr{slog.String("pool", p.opts.Name), slog.String("sandbox", name)}, attrs...)
	if err != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("error", err))
	}
	p.opts.Logger.LogAttrs(p.ctx, level, "sandbox pool: "+what, attrs...)
}

// keepExtending makes the pool extend a sandbox until stopExtending.
func (p *Pool) keepExtending(sb *sandbox.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.extended[sb.Name()] = sb
}

func (p *Pool) stopExtending(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.extended, name)
}

// create creates and prepares a sandbox.
func (p *Pool) create(ctx context.Context) (*sandbox.Sandbox, error) {
	o := p.opts.Create
	o.Name = p.prefix + strings.ToLower(rand.Text()[:16])
	start := time.Now()
	sb, err := p.client.Create(ctx, &o)
	if err == nil {
		p.keepExtending(sb)
		p.mu.Lock()
		if created := sb.Info().CreatedAt; p.firstCreated.IsZero() || created.Before(p.firstCreated) {
			p.firstCreated = created
		}
		p.mu.Unlock()
		if p.opts.Warm != nil {
			if err = p.opts.Warm(ctx, sb); err != nil {
				p.remove(ctx, sb)
				err = fmt.Errorf("pool: Warm of %q: %w", o.Name, err)
			}
		}
	}
	p.event("made", o.Name, err, slog.Duration("took", time.Since(start)))
	return sb, err
}

// remove deletes a sandbox, even if ctx has ended. A sandbox that can't be deleted
// times out.
func (p *Pool) remove(ctx context.Context, sb *sandbox.Sandbox) {
	p.stopExtending(sb.Name())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := sb.Delete(ctx, nil); err != nil && !isGone(err) {
		p.event("could not delete", sb.Name(), err)
	}
}

// isGone reports whether err means that the sandbox no longer exists.
func isGone(err error) bool {
	return errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrDeleted)
}
