package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
)

// ConversationsOptions are the options of [NewConversations]. The zero value is ready to use.
type ConversationsOptions struct {
	// Prefix begins the names of the sandboxes, "agent-" by default. Conversations with
	// the same prefix in the same project share their sandboxes, in later runs of a
	// program as well.
	Prefix string
	// Create, if not nil, returns the options of a conversation's new sandbox, whose
	// name is [Conversations.Name].
	Create func(conversation string) *sandbox.CreateOptions
	// Idle is how long a sandbox stays running without a call, five minutes by
	// default. Calls of a [Toolset] extend its session beyond that.
	Idle time.Duration
	// MaxAge is how long a sandbox is kept after it was last used, as measured by
	// [sandbox.Client.Age]. [Conversations.Cleanup] deletes sandboxes that have been stopped
	// for longer, with their files. The next call of a conversation does the same with its
	// sandbox, and the result says so. Zero means a week, a negative number means no limit.
	MaxAge time.Duration
	// MaxRunning is how many of these sandboxes run at the same time, 16 by
	// default. To start another, Acquire stops the least recently used one. If all
	// are in use, it waits.
	MaxRunning int
	// Logger receives errors from stopping sandboxes in the background. If it is nil,
	// they are discarded.
	Logger *slog.Logger
}

// Conversations keeps a sandbox for each conversation. Package pool, in contrast, keeps
// sandboxes ready for any caller. It implements [Sessions] and is safe for concurrent use.
type Conversations struct {
	client  *sandbox.Client
	opts    ConversationsOptions
	invalid error // of the options

	mu       sync.Mutex
	sessions map[string]*session // by conversation; running, starting or stopping
	lost     map[string]bool     // conversations whose model knows that the files are lost, until they have a new sandbox
	freed    chan struct{}       // closed when another session may be able to start
	closed   bool
	wg       sync.WaitGroup
}

// session is a conversation's sandbox while it runs.
type session struct {
	ready   chan struct{} // closed when sb or err is set
	sb      *sandbox.Sandbox
	err     error
	uses    int
	lastUse time.Time // end of the last use
	timer   *time.Timer
	change  change // what happened to the sandbox before it was opened; noChange after a result has reported it
	// stopping is set when a stop begins, and closed when the stop has ended.
	stopping chan struct{}
}

// NewConversations returns Conversations that use the client. It makes no request. A nil
// opts means the defaults. If the options are invalid, every Acquire returns an error that
// matches [sandbox.ErrInvalid]. The caller calls Close.
func NewConversations(client *sandbox.Client, opts *ConversationsOptions) *Conversations {
	p := &Conversations{
		client: client, opts: *cmp.Or(opts, new(ConversationsOptions)), sessions: map[string]*session{},
		lost: map[string]bool{}, freed: make(chan struct{}),
	}
	p.opts.Prefix = cmp.Or(p.opts.Prefix, "agent-")
	switch {
	case !validPrefix.MatchString(p.opts.Prefix):
		p.invalid = entry.Invalid("agent", "Prefix", "%q; it must begin with a letter or digit, contain only letters, digits and - _ . and have at most 64 characters", p.opts.Prefix)
	default:
		p.invalid = cmp.Or(entry.NotNegative("agent", "Idle", p.opts.Idle), entry.NotNegative("agent", "MaxRunning", p.opts.MaxRunning))
	}
	p.opts.Idle = valueOr(p.opts.Idle, 5*time.Minute)
	p.opts.MaxAge = valueOr(p.opts.MaxAge, 7*24*time.Hour)
	p.opts.MaxRunning = max(valueOr(p.opts.MaxRunning, 16), 1)
	p.opts.Logger = cmp.Or(p.opts.Logger, slog.New(slog.DiscardHandler))
	return p
}

func (p *Conversations) check(ctx context.Context) error {
	return entry.Check(ctx, p != nil && p.sessions != nil, "agent", "the Conversations")
}

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Name returns the name of a conversation's sandbox. The name does not reveal the ID.
func (p *Conversations) Name(conversation string) string {
	if p == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(conversation))
	return p.opts.Prefix + hex.EncodeToString(sum[:16])
}

var errConversationsClosed = errors.New("agent: the Conversations are closed")

// checkConversation refuses an empty ID, because all callers without an ID would share a sandbox.
func checkConversation(conversation string) error {
	if conversation == "" {
		return entry.Invalid("agent", "conversation", "the ID is empty; all callers with an empty ID would share a sandbox")
	}
	return nil
}

// Acquire implements [Sessions]. The sandbox is stopped as idle when Idle has passed after the
// call of release, not before. Its session ends with its timeout unless the caller extends it,
// as a [Toolset] does. Acquire replaces a sandbox whose files are gone.
func (p *Conversations) Acquire(ctx context.Context, conversation string) (*sandbox.Sandbox, func(), error) {
	if err := p.check(ctx); err != nil {
		return nil, nil, err
	}
	if err := checkConversation(conversation); err != nil {
		return nil, nil, err
	}
	if p.invalid != nil {
		return nil, nil, p.invalid
	}
	for {
		s, wait, err := p.beginUse(conversation)
		if err != nil {
			return nil, nil, err
		}
		if s == nil {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			p.endUse(conversation, s)
			return nil, nil, ctx.Err()
		}
		if s.err != nil {
			p.endUse(conversation, s)
			return nil, nil, s.err
		}
		return s.sb, sync.OnceFunc(func() { p.endUse(conversation, s) }), nil
	}
}

// beginUse counts a use of a conversation's session and returns the session. If there is
// none, it begins to open one. If the caller has to wait for another session to stop, it returns
// a nil session, and a channel that is closed when the caller should try again.
func (p *Conversations) beginUse(conversation string) (*session, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, errConversationsClosed
	}
	if s := p.sessions[conversation]; s != nil {
		if s.stopping != nil {
			return nil, s.stopping, nil
		}
		s.uses++
		if s.timer != nil {
			s.timer.Stop()
		}
		return s, nil, nil
	}
	if len(p.sessions) >= p.opts.MaxRunning {
		if name, idle := p.leastRecentlyUsed(); idle != nil {
			p.stopLocked(name, idle)
			return nil, idle.stopping, nil
		}
		return nil, p.freed, nil
	}
	s := &session{ready: make(chan struct{}), uses: 1}
	p.sessions[conversation] = s
	// Don't use the caller's context: other callers may wait for the session too.
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), openTime)
		defer cancel()
		s.sb, s.change, s.err = p.open(ctx, conversation)
		close(s.ready)
	})
	return s, nil, nil
}

// Timeouts of work in the background.
const (
	openTime = 10 * time.Minute
	stopTime = 4 * time.Minute
)

// open creates or starts the sandbox of a conversation, and returns what happened to it before.
func (p *Conversations) open(ctx context.Context, conversation string) (*sandbox.Sandbox, change, error) {
	var create sandbox.CreateOptions
	if p.opts.Create != nil {
		if o := p.opts.Create(conversation); o != nil {
			create = *o
		}
	}
	create.Name = p.Name(conversation)
	create.NoResume = true // an expired sandbox is deleted without being started
	// GetOrCreate does not report whether the sandbox existed before.
	_, missing := p.client.Get(ctx, create.Name, &sandbox.GetOptions{NoResume: true})
	sb, err := p.client.GetOrCreate(ctx, create.Name, &create)
	if err != nil {
		return nil, 0, err
	}
	info := sb.Info()
	found := restarted
	switch sb.Status() {
	case sandbox.StatusRunning, sandbox.StatusPending:
		found = noChange
		if errors.Is(missing, sandbox.ErrNotFound) {
			found = newSandbox
		}
	case sandbox.StatusFailed, sandbox.StatusAborted:
		found = machineDied
	}
	if p.expired(info) {
		if err := sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: true}); err != nil {
			return nil, 0, err
		}
		found = tooOld
	} else if err = sb.Resume(ctx); errors.Is(err, sandbox.ErrSnapshotNotFound) {
		found = filesLost
	} else if err != nil {
		return nil, 0, err
	} else {
		return sb, found, nil
	}
	create.NoResume = false
	if sb, err = p.client.GetOrCreate(ctx, create.Name, &create); err != nil {
		return nil, 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost[conversation] { // a result has reported the loss
		found = newSandbox
		delete(p.lost, conversation)
	}
	return sb, found, nil
}

// expired reports whether a sandbox is stopped and was last used more than MaxAge ago.
func (p *Conversations) expired(info sandbox.Info) bool {
	switch {
	case p.opts.MaxAge < 0, info.Status == sandbox.StatusRunning, info.Status == sandbox.StatusPending:
		return false
	}
	used := info.StatusUpdatedAt
	for _, at := range []time.Time{info.UpdatedAt, info.CreatedAt} {
		if at.After(used) {
			used = at
		}
	}
	return !used.IsZero() && p.client.Age(used) > p.opts.MaxAge
}

// takeChange returns the change of a conversation's sandbox and clears it, so that only one
// result reports it.
func (p *Conversations) takeChange(conversation string) change {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[conversation]
	if s == nil {
		return noChange
	}
	ch := s.change
	s.change = noChange
	return ch
}

// discard forgets a sandbox that is gone, so that the next call opens another one.
// reported means that the result of this call tells the model that the files are lost.
func (p *Conversations) discard(conversation string, sb *sandbox.Sandbox, reported bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[conversation]; s != nil && s.sb == sb && s.stopping == nil {
		delete(p.sessions, conversation)
		p.wakeWaiters()
	}
	if reported {
		p.lost[conversation] = true
	}
}

func (p *Conversations) idle() time.Duration { return p.opts.Idle }

// leastRecentlyUsed returns the least recently used session of those that are not in use.
func (p *Conversations) leastRecentlyUsed() (conversation string, s *session) {
	for name, other := range p.sessions {
		if other.uses == 0 && other.stopping == nil && (s == nil || other.lastUse.Before(s.lastUse)) {
			conversation, s = name, other
		}
	}
	return conversation, s
}

// endUse ends a use of a session.
func (p *Conversations) endUse(conversation string, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.uses--
	s.lastUse = time.Now()
	if s.uses > 0 || s.stopping != nil {
		return
	}
	select {
	case <-s.ready:
		if p.sessions[conversation] != s {
			return // it was discarded
		}
		if s.err != nil {
			delete(p.sessions, conversation)
			p.wakeWaiters()
			return
		}
	default: // it is still being opened; the timer stops it later
	}
	s.timer = time.AfterFunc(p.opts.Idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.closed && s.uses == 0 && s.stopping == nil && p.sessions[conversation] == s {
			p.stopLocked(conversation, s)
		}
	})
	p.wakeWaiters() // a waiting caller may now stop this session to start its own
}

// wakeWaiters wakes the callers that wait for room, so that they try again. The caller holds the
// lock.
func (p *Conversations) wakeWaiters() {
	close(p.freed)
	p.freed = make(chan struct{})
}

// stopLocked begins to stop a session. The caller holds the lock.
func (p *Conversations) stopLocked(conversation string, s *session) {
	s.stopping = make(chan struct{})
	if s.timer != nil {
		s.timer.Stop()
	}
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		<-s.ready
		if s.err == nil {
			if _, s.err = s.sb.Stop(ctx, nil); errors.Is(s.err, sandbox.ErrNotFound) || errors.Is(s.err, sandbox.ErrDeleted) {
				s.err = nil
			}
		}
		if s.err != nil {
			p.opts.Logger.Warn("stopping an idle sandbox", "sandbox", p.Name(conversation), "error", s.err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.sessions, conversation)
		close(s.stopping)
		p.wakeWaiters()
	})
}

// Stop stops the sandbox of a conversation now, even if it is in use. It does nothing
// if the sandbox is not running.
func (p *Conversations) Stop(ctx context.Context, conversation string) error {
	_, err := p.stop(ctx, conversation)
	return err
}

// stop implements [stopper].
func (p *Conversations) stop(ctx context.Context, conversation string) (*sandbox.Sandbox, error) {
	if err := p.check(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	s := p.sessions[conversation]
	if s == nil {
		p.mu.Unlock()
		return nil, nil
	}
	if s.stopping == nil {
		p.stopLocked(conversation, s)
	}
	p.mu.Unlock()
	select {
	case <-s.stopping:
		return s.sb, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Delete stops the sandbox of a conversation and deletes it, with its files and
// snapshots. It is not an error if the sandbox does not exist.
func (p *Conversations) Delete(ctx context.Context, conversation string) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	if err := checkConversation(conversation); err != nil {
		return err
	}
	// The stop ends other callers' use. Its error doesn't matter, because remove deletes the
	// files anyway.
	if err := p.Stop(ctx, conversation); err != nil && ctx.Err() != nil {
		return err
	}
	return p.remove(ctx, p.Name(conversation))
}

func (p *Conversations) remove(ctx context.Context, name string) error {
	err := p.client.Delete(ctx, name, &sandbox.DeleteOptions{DeleteOrphanSnapshots: true})
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	return err
}

// removeExpired deletes a sandbox unless its conversation has continued since it was
// listed. It never deletes another sandbox that has taken the name since.
func (p *Conversations) removeExpired(ctx context.Context, name string) (removed bool, err error) {
	sb, err := p.client.Get(ctx, name, &sandbox.GetOptions{NoResume: true})
	if err == nil && p.expired(sb.Info()) {
		err = sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: true})
		removed = err == nil
	}
	if errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrDeleted) {
		err = nil
	}
	return removed, err
}

// Cleanup deletes the sandboxes with the prefix, including those of other processes,
// that have been stopped for longer than MaxAge. It returns the number of deleted ones.
func (p *Conversations) Cleanup(ctx context.Context) (deleted int, err error) {
	if err := p.check(ctx); err != nil {
		return 0, err
	}
	list := &sandbox.ListOptions{NamePrefix: p.opts.Prefix, SortBy: sandbox.SortByName}
	for info, err := range p.client.List(ctx, list) {
		if err != nil {
			return deleted, err
		}
		if !p.expired(info) {
			continue
		}
		removed, err := p.removeExpired(ctx, info.Name)
		if err != nil {
			return deleted, fmt.Errorf("agent: delete %s: %w", info.Name, err)
		}
		if removed {
			deleted++
		}
	}
	return deleted, nil
}

// Close stops the sandboxes, including those in use, and waits until they have stopped
// or ctx ends. Later calls of Acquire fail.
func (p *Conversations) Close(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.closed = true
	var stopping []*session
	for conversation, s := range p.sessions {
		if s.stopping == nil {
			p.stopLocked(conversation, s)
		}
		stopping = append(stopping, s)
	}
	p.wakeWaiters()
	p.mu.Unlock()
	var errs []error
	for _, s := range stopping {
		select {
		case <-s.stopping:
			errs = append(errs, s.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.wg.Wait()
	return errors.Join(errs...)
}
