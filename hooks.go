package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/lease"
	"github.com/go-vercel/sandbox/observe"
)

// hookLease is how long a process that runs a hook may be unheard of before
// another one runs it.
var hookLease = 30 * time.Second

const (
	// hookGrace is how long a hook may take to return after its context has
	// ended.
	hookGrace = time.Second
	// takeAwayTime is how long giving up a hook may take: the deletion of an
	// incomplete sandbox, or of the lock.
	takeAwayTime = 10 * time.Second
	// onceMark begins the value of the tag creationMark. The name of the lock
	// follows.
	onceMark = "once-"
)

var errHookLeft = errors.New("the hook ended its goroutine instead of returning")

// hooksOr returns the hooks of a call or, where that has none, those of the client
// for the sandbox.
func (c *Client) hooksOr(onCreate, onResume Hook, sb func() Info) (Hook, Hook) {
	if c.hooks == nil || onCreate != nil && onResume != nil {
		return onCreate, onResume
	}
	itsCreate, itsResume := c.hooks(sb())
	if onCreate == nil {
		onCreate = itsCreate
	}
	if onResume == nil {
		onResume = itsResume
	}
	return onCreate, onResume
}

// dueHook is a hook that has to have run before a session is used.
type dueHook struct {
	key  string // of the lock
	name string
	hook Hook
}

func validMark(mark string) bool {
	return mark != "" && len(mark) <= 64 && strings.IndexFunc(mark, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}

// dueHooks returns the hooks that have to run before a session is used, as far as
// this client knows.
func (s *Sandbox) dueHooks(c *Client, session *Session) (due []dueHook) {
	onCreate, onResume := c.hooksOr(s.st.onCreate, s.st.onResume, s.Info)
	if onCreate == nil && onResume == nil {
		return nil
	}
	mark := cmp.Or(s.st.mark, s.metadata().Tags[creationMark])
	if mark, once := strings.CutPrefix(mark, onceMark); onCreate != nil && once && validMark(mark) {
		due = append(due, dueHook{"create-" + mark, "OnCreate", onCreate})
	}
	if onResume != nil && s.wasResumed(session) {
		due = append(due, dueHook{resumeKey(session), "OnResume", onResume})
	}
	return slices.DeleteFunc(due, func(d dueHook) bool { return c.hooksRun.has(d.key) })
}

func resumeKey(session *Session) string { return "resume-" + session.ID() }

// wasResumed reports whether a session is not the sandbox's first: the API makes
// a sandbox once its first session has started.
func (s *Sandbox) wasResumed(session *Session) bool {
	s.st.mu.Lock()
	made, resumed := s.st.info.CreatedAt, s.st.resumed
	s.st.mu.Unlock()
	return resumed == session.ID() || !made.IsZero() && session.wire().CreatedAt.After(made.Time)
}

// settled reports whether all hooks have run for a session.
func (s *Sandbox) settled(session *Session) bool {
	s.st.mu.Lock()
	c, hooked := s.st.client, s.st.hooked
	s.st.mu.Unlock()
	return c == nil || hooked == session.ID() || len(s.dueHooks(c, session)) == 0
}

// settle lets the hooks run that have to for the current session, and waits for
// them. refused means that this session has ended.
func (s *Sandbox) settle(ctx context.Context) (refused bool, err error) {
	c, err := enter(ctx, s)
	if err != nil || s.hookOf(ctx) != nil {
		return false, err
	}
	for {
		session := s.CurrentSession() // the next one, if a hook has found the last stopped
		if session == nil {
			return false, nil
		}
		due := s.dueHooks(c, session)
		if len(due) == 0 {
			s.st.mu.Lock()
			s.st.hooked = session.ID()
			s.st.mu.Unlock()
			return false, nil
		}
		if err := session.waitReady(ctx); err != nil {
			return false, err
		}
		mine := &flight{done: make(chan struct{})}
		other, flying := c.hooksNow.LoadOrStore(due[0].key, mine)
		if !flying {
			if refused, err = s.flyHooks(ctx, c, mine, session, due); refused || err != nil {
				return refused, err
			}
			continue
		}
		f := other.(*flight)
		select {
		case <-f.done:
			if f.err != nil {
				return false, f.err
			}
		case <-ctx.Done():
			return false, &RequestError{operation: "wait for " + due[0].name, sandbox: s.Name(), session: session.ID(), Err: api.ContextError(ctx)}
		}
	}
}

// flight is what goroutines of a client wait for that another one of them does.
type flight struct {
	done chan struct{}
	// err is for those that wait. It is nil also when they are to try themselves.
	err error
}

// flyHooks runs the first of the hooks that has not run, in any process.
func (s *Sandbox) flyHooks(ctx context.Context, c *Client, f *flight, session *Session, due []dueHook) (refused bool, err error) {
	defer func() {
		if ctx.Err() == nil { // one that has given up does not fail the others
			f.err = err
		}
		c.hooksNow.Delete(due[0].key)
		close(f.done)
	}()
	keys := make([]string, len(due))
	for i, d := range due {
		keys[i] = d.key
	}
	run := &hookRun{}
	run.session.Store(session)
	l, err := lease.Take(ctx, run.script, lease.Options{Owner: rand.Text(), Term: hookLease}, keys...)
	switch {
	case refusal(session, err), err != nil && ctx.Err() == nil && session.gone(ctx):
		return true, nil
	case err != nil:
		return false, s.lockError(err)
	}
	for _, d := range due {
		if l != nil && d.key == l.Key {
			run.lease = l
			return s.runLeased(ctx, c, d, run)
		}
		c.hooksRun.add(d.key)
	}
	return false, nil
}

// gone reports whether the session is known to have ended. It asks the API.
func (s *Session) gone(ctx context.Context) bool {
	err := s.Refresh(ctx)
	return errors.Is(err, ErrNotFound) || err == nil && !begun(s.status())
}

// lockError is a failure of the lock of a sandbox's hooks, which says nothing of
// the hooks.
func (s *Sandbox) lockError(err error) error {
	return fmt.Errorf("sandbox: the lock of the hooks of %q: %w", s.Name(), err)
}

// runLeased runs a hook under the lease of its lock, and returns nil also if
// another process has taken over.
func (s *Sandbox) runLeased(ctx context.Context, c *Client, d dueHook, run *hookRun) (refused bool, err error) {
	switch err = s.runHook(ctx, d, run); {
	case errors.Is(err, lease.ErrLost):
		return false, nil
	case err != nil:
		return false, err
	}
	for range 2 { // a response may be lost
		switch err = run.lease.Done(ctx); {
		case err == nil:
			c.hooksRun.add(d.key)
			if d.name == "OnResume" { // the hook may have gone on in the next session
				c.hooksRun.add(resumeKey(run.session.Load()))
			}
			return false, nil
		case errors.Is(err, lease.ErrLost):
			return false, nil
		case refusal(run.session.Load(), err), run.session.Load().gone(ctx):
			return true, nil
		}
	}
	return false, s.lockError(err)
}

// abandon makes room for another run of a hook that has failed. Every later call
// would take an incomplete sandbox for a complete one, so that is deleted.
func (s *Sandbox) abandon(ctx context.Context, d dueHook, run *hookRun, err error) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeAwayTime)
	defer cancel()
	if d.name == "OnCreate" {
		deleteErr := s.Delete(late, nil)
		if deleteErr == nil || errors.Is(deleteErr, ErrNotFound) {
			return err
		}
		err = fmt.Errorf("%w; it is left half-made, since deleting it failed: %w", err, deleteErr)
	}
	if run.lease != nil {
		_ = run.lease.Free(late) // its lease ends anyway
	}
	return err
}

func (r *hookRun) script(ctx context.Context, script string, args ...string) (string, error) {
	return r.session.Load().lockScript(ctx, script, args...)
}

// lockScript runs a script of a lock in the session's machine.
func (s *Session) lockScript(ctx context.Context, script string, args ...string) (string, error) {
	p := program{name: "sh", args: append([]string{"-c", script, "sh"}, args...)}
	res, err := p.run(ctx, s)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("sh has failed with exit code %d%s", res.ExitCode, excerpt([]byte(res.Stderr)))
	}
	return res.Stdout, err
}

// hookKey finds the run of a sandbox's hook in the hook's context.
type hookKey struct {
	name    string
	created int64
}

func (s *Sandbox) hookKey() hookKey {
	info := s.metadata()
	return hookKey{info.Name, info.CreatedAt.UnixMilli()}
}

// hookOf returns the hook that is running and makes a call: by the handle that it
// received, or by its context and another handle. It is nil for other calls.
func (s *Sandbox) hookOf(ctx context.Context) *hookRun {
	if s.hook != nil && !s.hook.over.Load() {
		return s.hook
	}
	if run, ok := ctx.Value(s.hookKey()).(*hookRun); ok && !run.over.Load() {
		return run
	}
	return nil
}

// runHook calls a hook with a handle and a context that identify the hook's own
// calls, and keeps its lease meanwhile, if it has one. A hook that fails is
// abandoned, unless another process has taken over: the error is lease.ErrLost.
func (s *Sandbox) runHook(ctx context.Context, d dueHook, run *hookRun) (err error) {
	kept, release := ctx, func() {}
	if run.lease != nil {
		kept, release = run.lease.Keep(ctx)
	}
	inside, e := s.st.client.beginEvent(kept, s, observe.Event{Kind: observe.Hook, Operation: d.name})
	// The context must outlive the hook, for what the hook has started. While
	// the hook runs, it ends with the caller's.
	lasting, end := context.WithCancelCause(context.WithoutCancel(inside))
	stop := context.AfterFunc(inside, func() { end(api.ContextError(inside)) })
	err = errHookLeft
	defer func() {
		run.over.Store(true)
		stop()
		endEvent(&e, err) // while its context lasts
		release()
		if err == nil {
			return
		}
		end(err)
		if errors.Is(context.Cause(kept), lease.ErrLost) {
			err = lease.ErrLost
		} else {
			err = s.abandon(ctx, d, run, err)
		}
	}()
	lasting = context.WithValue(lasting, s.hookKey(), run)
	if err = d.hook(lasting, &Sandbox{st: s.st, hook: run}); err != nil {
		err = fmt.Errorf("sandbox: %s of %q: %w", d.name, s.Name(), err)
	}
	return err
}

// memory is a set of what a client has seen, and no more than maxMemory of it:
// forgetting costs a request. It is safe for concurrent use.
type memory struct {
	mu   sync.Mutex
	seen map[string]bool
}

const maxMemory = 1000

// add remembers a key. At the limit another one is forgotten.
func (m *memory) add(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[string]bool{}
	}
	for other := range m.seen {
		if len(m.seen) < maxMemory {
			break
		}
		delete(m.seen, other)
	}
	m.seen[key] = true
}

// has reports whether a key is remembered.
func (m *memory) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[key]
}
