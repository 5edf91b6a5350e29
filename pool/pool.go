// Package pool keeps sandboxes ready, so that a program which needs one gets it
// in the time of a request instead of that of a start and its preparation.
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
// A pool makes sandboxes by [Options].Create, for example from a snapshot, and
// calls [Options].Warm for what a snapshot does not hold. They wait running, which
// is billed, and are taken with one request; or stopped ([Options].Stopped), which
// costs only their storage, and are taken with two, of which the first starts a
// machine. If none is ready, [Pool.Take] makes one.
//
// # Processes
//
// Any number of processes may keep pools of the same name. A sandbox is taken by
// making or renaming a directory in it, which succeeds once: any other attempt,
// in this process or another, takes another sandbox. The directory is in
// .sandbox-pool-NAME, in the working directory.
//
// # Crashes
//
// A running sandbox of a pool has a timeout of [Options].Lease, which the pool
// extends for as long as its process lives, also while the sandbox is taken. When
// a process is killed, its ready sandboxes are adopted by another pool of that
// name once their time runs low, and those that it had taken or was making time
// out. A sandbox that has timed out or was stopped is abandoned, and any pool of
// the name deletes it: to outlive its process, or to sleep, a sandbox must leave
// the pool by [Box.Keep].
//
// # Deployments
//
// A pool hands out only sandboxes of its own version ([Options].Version). It deletes the stopped ones of other versions
// that are older than the first that it made; running ones end with the processes that
// keep them.
//
// A sandbox is deleted for its age only if both the service's clock and this machine's say
// that it is too old.
//
// A pool never deletes a snapshot. Snapshots of stopped sandboxes expire after
// CreateOptions.SnapshotExpiration, by default a day.
package pool

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// Tag is the tag of a pool's sandboxes. Its value is the pool's name.
const Tag = "sandbox-pool"

// ErrClosed is returned by [Pool.Take] after [Pool.Close].
var ErrClosed = errors.New("pool: it is closed")

// Options configures a [Pool].
type Options struct {
	// Name is that of the pool, and required. Pools of one name and version share their sandboxes, in any
	// number of processes. It begins the sandboxes' names.
	Name string
	// Version tells sandboxes of one deployment from those of another: a pool takes
	// only those of its own version. Change it when Create, Warm or Reset change. It is
	// required if Warm or Reset is set or Stopped is true, since such sandboxes may
	// outlive a deployment.
	Version string
	// Size is the number of sandboxes to keep ready: for each process, or in all
	// if Stopped is set. Zero means one.
	Size int
	// Max limits how many sandboxes of this pool, ready, taken or in the making,
	// this process has at a time. At the limit Take waits until one is given back
	// or deleted. Zero means no limit; less than Size is an error unless Stopped is
	// set.
	Max int
	// Create are the options of new sandboxes, except Name and Timeout, which are
	// the pool's, and Ephemeral, which is set unless Stopped is. The pool adds a
	// tag. OnCreate must be nil: use Warm.
	Create sandbox.CreateOptions
	// Warm, if not nil, prepares a new sandbox. If it fails, the sandbox is
	// deleted.
	Warm func(ctx context.Context, sb *sandbox.Sandbox) error
	// Check, if not nil, is called for a sandbox before Take returns it. One that
	// fails is deleted: if it was ready, another one is taken, and if it is new, Take
	// returns the error. It need not check that the sandbox runs programs.
	Check func(ctx context.Context, sb *sandbox.Sandbox) error
	// Reset prepares a sandbox that was given back for the next one who takes it.
	// If it is nil or fails, the sandbox is deleted instead. A program left in
	// the sandbox may prevent that it is reset.
	Reset func(ctx context.Context, sb *sandbox.Sandbox) error
	// Stopped keeps the ready sandboxes stopped, with their files saved.
	Stopped bool
	// MaxAge is the age at which a sandbox that is ready is replaced. Zero means a
	// day; if Stopped is set, 20 hours, since snapshots expire after a day.
	MaxAge time.Duration
	// Lease is how long a running sandbox outlives its process at most. The pool
	// extends it when half of it is left, with one request for each sandbox, and
	// lists its sandboxes eight times in a lease. Zero means five minutes; what is
	// not from four seconds to 24 hours is an error.
	Lease time.Duration
	// Logger receives at debug level what the pool makes, takes, adopts and
	// deletes, and at warning level its failures. Nil disables logging.
	Logger *slog.Logger
}

// Format prints the options without values of variables and headers, for every verb.
func (o Options) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// minLease is the shortest lease that a busy machine can extend in time.
const minLease = 4 * time.Second

func (o *Options) complete() error {
	switch {
	case o.Name == "" || len(o.Name) > 64 || strings.Trim(strings.ToLower(o.Name), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return entry.Invalid("pool", "Options.Name", "%q; want 1 to 64 letters, digits, - and _", o.Name)
	case o.Create.Name != "":
		return entry.Invalid("pool", "Options.Create.Name", "%q is set; the pool names its sandboxes by Options.Name", o.Create.Name)
	case o.Create.Timeout != 0:
		return entry.Invalid("pool", "Options.Create.Timeout", "%v is set; the pool keeps its sandboxes by Options.Lease", o.Create.Timeout)
	case o.Version == "" && (o.Warm != nil || o.Reset != nil || o.Stopped):
		return entry.Invalid("pool", "Options.Version", "is empty; with Warm, Reset or Stopped it names the deployment, like the revision that was built")
	case o.Create.OnCreate != nil:
		return entry.Invalid("pool", "Options.Create.OnCreate", "is set; Options.Warm is what prepares a sandbox")
	}
	if o.Size == 0 {
		o.Size = 1
	}
	if o.Lease == 0 {
		o.Lease = 5 * time.Minute
	}
	if err := cmp.Or(entry.NotNegative("pool", "Options.Size", o.Size), entry.NotNegative("pool", "Options.Max", o.Max),
		entry.NotNegative("pool", "Options.MaxAge", o.MaxAge), entry.Range("pool", "Options.Lease", o.Lease, minLease, wire.MaxTimeout)); err != nil {
		return err
	}
	// Stopped ones are those of all processes, and Max is each one's own.
	if !o.Stopped && o.Max > 0 && o.Max < o.Size {
		return entry.Invalid("pool", "Options.Max", "%d is less than Options.Size, %d, which is how many are kept ready", o.Max, o.Size)
	}
	if o.MaxAge == 0 {
		o.MaxAge = 24 * time.Hour
		if o.Stopped {
			o.MaxAge = 20 * time.Hour
		}
	}
	o.Create.Tags = maps.Clone(o.Create.Tags)
	if o.Create.Tags == nil {
		o.Create.Tags = map[string]string{}
	}
	o.Create.Tags[Tag] = o.Name
	o.Create.Timeout, o.Create.Ephemeral = o.Lease, !o.Stopped
	if o.Stopped && o.Create.SnapshotExpiration == 0 {
		o.Create.SnapshotExpiration = 24 * time.Hour
	}
	return nil
}

// version returns a short word for the version, which the sandboxes' names contain.
func (o *Options) version() string {
	sum := sha256.Sum256([]byte(o.Version))
	return hex.EncodeToString(sum[:4])
}

// Pool keeps sandboxes ready. It is safe for concurrent use.
type Pool struct {
	client *sandbox.Client
	opts   Options
	ctx    context.Context // of its own work
	cancel context.CancelFunc
	end    chan struct{} // closed by Close
	ended  sync.Once
	work   sync.WaitGroup
	poke   chan struct{} // something is missing
	prefix string        // of the names of sandboxes of this version

	extending atomic.Bool

	mu       sync.Mutex
	closed   bool      // no more takes or creations
	began    time.Time // when the first sandbox that this process made was created
	sweeping bool
	filling  int       // made to be ready
	taking   int       // by Take: made, or tried
	retryAt  time.Time // when to make one after a failure
	failures int       // in a row
	ready    []*member
	trying   map[string]bool             // tried by Take, by name
	alive    map[string]*sandbox.Sandbox // the sandboxes kept from timing out, by name
	held     map[string]bool             // taken and not yet given back, deleted or kept
	lost     map[string]bool             // those of held that have ended
	freed    chan struct{}               // closed when there may be room below Max
	suspects map[string]bool             // running sandboxes that must not be adopted
}

// member is a sandbox that is ready. sb is nil for one that is stopped and was
// found in a listing.
type member struct {
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
	if err := opts.complete(); err != nil {
		return nil, err
	}
	if client == nil {
		var err error
		if client, err = sandbox.DefaultClient(); err != nil {
			return nil, err
		}
	}
	p := &Pool{
		client: client, opts: opts, poke: make(chan struct{}, 1), end: make(chan struct{}), freed: make(chan struct{}),
		trying: map[string]bool{}, alive: map[string]*sandbox.Sandbox{}, suspects: map[string]bool{},
		held: map[string]bool{}, lost: map[string]bool{}, prefix: opts.Name + "-" + opts.version() + "-",
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.work.Go(p.keepUp)
	return p, nil
}

// Close ends the pool and deletes the sandboxes that this process keeps ready,
// except stopped ones, which other processes may take. Those that were taken
// stay, and are no longer kept alive. It waits for work in progress, and cancels
// it when ctx ends: sandboxes left over then time out.
func (p *Pool) Close(ctx context.Context) error {
	if err := entry.Check(ctx, p != nil && p.client != nil, "pool", "the Pool"); err != nil {
		return err
	}
	p.mu.Lock()
	p.closed = true
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	p.ended.Do(func() { close(p.end) })
	defer context.AfterFunc(ctx, p.cancel)()
	defer p.cancel()
	p.work.Wait()
	if p.opts.Stopped {
		return nil
	}
	errs := make([]error, len(ready))
	each(ready, func(i int, m *member) { _, errs[i] = p.discard(ctx, m, "the pool is closed") })
	return errors.Join(errs...)
}

// Drain closes the pool and deletes all sandboxes of its name: ready ones at
// once, whichever process made them, others when they are given back, deleted, or
// abandoned. It returns when none is left. Other processes that have not closed
// their pools make new ones.
func (p *Pool) Drain(ctx context.Context) error {
	if err := entry.Check(ctx, p != nil && p.client != nil, "pool", "the Pool"); err != nil {
		return err
	}
	p.mu.Lock()
	p.closed = true
	p.ready = nil // they are listed
	p.mu.Unlock()
	p.free()
	for {
		infos, err := p.list(ctx)
		if err == nil && len(infos) == 0 {
			return p.Close(ctx)
		}
		var kept atomic.Bool
		each(infos, func(_ int, info sandbox.Info) {
			m := &member{name: info.Name, created: info.CreatedAt}
			if running(info.Status) {
				m.sb, _ = p.client.Get(ctx, info.Name, &sandbox.GetOptions{NoResume: true})
			}
			deleted, _ := p.discard(ctx, m, "drained")
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

// Stats are the numbers of this process's sandboxes.
type Stats struct {
	Ready  int // to be taken; if Options.Stopped is set, by any process
	Taken  int // and not yet given back or deleted, unless they have ended by themselves
	Making int
}

// Stats returns the present numbers, without a request.
func (p *Pool) Stats() Stats {
	if p == nil {
		return Stats{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Ready: len(p.ready), Taken: len(p.held) - len(p.lost), Making: p.filling + p.taking}
}

// Format prints the pool's name and numbers, for every verb: its options have secrets.
func (p *Pool) Format(f fmt.State, _ rune) {
	if p == nil {
		_, _ = io.WriteString(f, "pool <nil>")
		return
	}
	s := p.Stats()
	_, _ = fmt.Fprintf(f, "pool %q: %d ready, %d taken, %d making", p.opts.Name, s.Ready, s.Taken, s.Making)
}

// event reports what the pool does to the observer of its client and to the log.
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

// keepAlive makes the pool extend a sandbox until letGo.
func (p *Pool) keepAlive(sb *sandbox.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive[sb.Name()] = sb
}

func (p *Pool) letGo(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, name)
}

// make creates and prepares a sandbox.
func (p *Pool) make(ctx context.Context) (*sandbox.Sandbox, error) {
	o := p.opts.Create
	o.Name = p.prefix + strings.ToLower(rand.Text()[:16])
	began := time.Now()
	sb, err := p.client.Create(ctx, &o)
	if err == nil {
		p.keepAlive(sb)
		p.mu.Lock()
		if created := sb.Info().CreatedAt; p.began.IsZero() || created.Before(p.began) {
			p.began = created
		}
		p.mu.Unlock()
		if p.opts.Warm != nil {
			if err = p.opts.Warm(ctx, sb); err != nil {
				p.remove(ctx, sb)
				err = fmt.Errorf("pool: Warm of %q: %w", o.Name, err)
			}
		}
	}
	p.event("made", o.Name, err, slog.Duration("took", time.Since(began)))
	return sb, err
}

// remove deletes a sandbox although ctx may have ended. One that can't be deleted
// times out.
func (p *Pool) remove(ctx context.Context, sb *sandbox.Sandbox) {
	p.letGo(sb.Name())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := sb.Delete(ctx, nil); err != nil && !gone(err) {
		p.event("could not delete", sb.Name(), err)
	}
}

// gone reports whether err means that the sandbox no longer exists.
func gone(err error) bool {
	return errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrDeleted)
}
