package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
)

const (
	// pollInterval is the pause between looks at a session that is on its way
	// from one state to another.
	pollInterval = 500 * time.Millisecond
	// resumeTimeout ends a resume that does not come to an end, hook included,
	// so that its waiters do not wait for ever.
	resumeTimeout = 10 * time.Minute
	// hookGrace is how long a hook may take to heed the end of its context.
	hookGrace = time.Second
)

var (
	errNoSession   = errors.New("the answer does not name a session")
	errResumeStuck = fmt.Errorf("not done after %v: its OnResume hook has not returned; in a hook, use the handle and the context that it is given", resumeTimeout)
	errHookLeft    = errors.New("the hook ended its goroutine instead of returning")
)

// Resume starts a session unless one is running, waits until it is ready and has
// the OnResume hook run. Other calls do so by themselves when they find the
// sandbox stopped; Resume is for programs that need it awake first, to wait for a
// port or to read [Sandbox.Status]. A sandbox whose files are gone matches
// [ErrSnapshotNotFound]. It costs one request, and a machine from then on.
func (s *Sandbox) Resume(ctx context.Context) error {
	if _, err := s.client(); err != nil {
		return err
	}
	session, err := s.resume(ctx, s.CurrentSession(), nil)
	if err != nil {
		return err
	}
	return session.waitReady(ctx)
}

// maxResumes is how often one call has the sandbox resumed, as the official client
// does: sessions may be stopped by others as fast as they are started.
const maxResumes = 1

// withResume performs fn on the current session, after a hook that is running.
// When the API refuses fn's request because the session is stopped or stopping,
// the sandbox is resumed and fn performed once more; that is safe because the
// API refused before it acted.
func withResume[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	var zero T
	if _, err := s.client(); err != nil {
		return zero, err
	}
	cur, err := s.ready(ctx)
	for resumes := 0; ; resumes++ {
		if err == nil {
			err = cur.waitReady(ctx)
		}
		if err != nil {
			return zero, err
		}
		v, err := fn(cur)
		why, refused := refusal(cur, err)
		if !refused || resumes == maxResumes {
			return v, err
		}
		if cur, err = s.resume(ctx, cur, why); err != nil {
			return zero, err
		}
	}
}

// ready returns the session to use: the current one, or, while a hook runs for
// it or has failed, the one that there is when a hook has succeeded.
func (s *Sandbox) ready(ctx context.Context) (*Session, error) {
	s.st.mu.Lock()
	cur, calm := s.st.current, s.st.resuming == nil && !s.st.hookDue
	s.st.mu.Unlock()
	if cur != nil && (calm || s.inHook(ctx)) {
		return cur, nil
	}
	return s.resume(ctx, nil, nil)
}

// sessionToLookAt returns the session whose commands are looked up, without
// starting any.
func (s *Sandbox) sessionToLookAt(ctx context.Context) (*Session, error) {
	if _, err := s.client(); err != nil {
		return nil, err
	}
	if cur := s.CurrentSession(); cur != nil {
		return cur, nil
	}
	if err := s.Refresh(ctx); err != nil {
		return nil, err
	}
	if cur := s.CurrentSession(); cur != nil {
		return cur, nil
	}
	return nil, fmt.Errorf("sandbox: %q: %w", s.Name(), ErrStopped)
}

// lookAt performs a look on the current session. One that has stopped is not
// started again for it; but another client may have started the next one.
func lookAt[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	cur, err := s.sessionToLookAt(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := fn(cur)
	if _, refused := refusal(cur, err); refused && s.Refresh(ctx) == nil {
		if next := s.CurrentSession(); next != cur {
			return fn(next)
		}
	}
	return v, err
}

// withResumeDo is withResume for operations without a result.
func withResumeDo(ctx context.Context, s *Sandbox, fn func(*Session) error) error {
	_, err := withResume(ctx, s, func(cur *Session) (struct{}, error) { return struct{}{}, fn(cur) })
	return err
}

// resumeCall is a resume that several callers wait for.
type resumeCall struct {
	done    chan struct{}
	session *Session
	err     error
	waiters int // guarded by the sandbox's mutex
	ctx     context.Context
	cancel  context.CancelFunc
}

// hookRun is one run of a hook. While it lasts, calls made by the hook do not
// wait for the resume that the hook is part of.
type hookRun struct{ over atomic.Bool }

type hookKey struct{ st *sandboxState }

// inHook reports whether a call comes from a hook that is running for this
// sandbox: by the handle that the hook was given or by its context.
func (s *Sandbox) inHook(ctx context.Context) bool {
	if s.hook != nil && !s.hook.over.Load() {
		return true
	}
	run, ok := ctx.Value(hookKey{s.st}).(*hookRun)
	return ok && !run.over.Load()
}

// resume returns a session to use instead of stale, which the API refused with
// cause. Callers that come at the same time share one resume, which goes on for
// as long as any of them waits for it.
func (s *Sandbox) resume(ctx context.Context, stale *Session, cause *APIError) (*Session, error) {
	if s.inHook(ctx) {
		// Waiting for the resume that this call is part of would never end.
		if cur := s.CurrentSession(); cur != nil && cur != stale {
			return cur, nil
		}
		session, _, err := s.startSession(ctx, stale, cause)
		return session, err
	}
	session, joined, err := s.share(ctx, stale, cause)
	if err == nil && joined && session == stale {
		// The resume that was under way ended with the very session that has
		// refused this call since.
		session, _, err = s.share(ctx, stale, cause)
	}
	return session, err
}

// share waits for the resume that is under way, which it reports, or begins one.
func (s *Sandbox) share(ctx context.Context, stale *Session, cause *APIError) (session *Session, joined bool, err error) {
	st := s.st
	st.mu.Lock()
	call := st.resuming
	joined = call != nil
	if call == nil {
		if st.current != nil && st.current != stale && !st.hookDue {
			// The refusal is older than the session that there is now.
			defer st.mu.Unlock()
			return st.current, false, nil
		}
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
		call = &resumeCall{done: make(chan struct{}), ctx: shared, cancel: cancel}
		st.resuming = call
		go s.runResume(call, stale, cause)
	}
	call.waiters++
	st.mu.Unlock()

	stuck := func(err error) error {
		return &RequestError{Operation: "resume sandbox", SandboxName: s.Name(), Err: err}
	}
	select {
	case <-call.done:
	case <-call.ctx.Done():
		// It is over, or it would have to be: a hook that does not heed its
		// context may never return, as one that waits for its own resume.
		select {
		case <-call.done:
		case <-time.After(hookGrace):
			st.mu.Lock()
			if st.resuming == call {
				st.resuming = nil
			}
			st.mu.Unlock()
			return nil, joined, stuck(errResumeStuck)
		case <-ctx.Done():
			return nil, joined, stuck(api.ContextError(ctx))
		}
	case <-ctx.Done():
		st.mu.Lock()
		if call.waiters--; call.waiters == 0 {
			call.cancel()
			if st.resuming == call {
				st.resuming = nil
			}
		}
		st.mu.Unlock()
		return nil, joined, stuck(api.ContextError(ctx))
	}
	return call.session, joined, call.err
}

// runResume performs a shared resume: it starts a session in place of stale, and
// runs the hook, if a session was started or an earlier run has failed.
func (s *Sandbox) runResume(call *resumeCall, stale *Session, cause *APIError) {
	call.err = fmt.Errorf("sandbox: OnResume of %q: %w", s.Name(), errHookLeft)
	defer func() {
		s.st.mu.Lock()
		if s.st.resuming == call {
			s.st.resuming = nil
		}
		s.st.mu.Unlock()
		close(call.done)
		call.cancel()
	}()
	session := s.CurrentSession()
	if session == nil || session == stale {
		var resumed bool
		var err error
		if session, resumed, err = s.startSession(call.ctx, stale, cause); err != nil {
			call.err = err
			return
		}
		s.setHookDue(resumed)
	}
	s.st.mu.Lock()
	due := s.st.hookDue
	s.st.mu.Unlock()
	if due {
		if err := s.runHook(call.ctx, s.st.onResume, "OnResume"); err != nil {
			call.err = err
			return
		}
		s.setHookDue(false)
		// The hook may have met a stopped session itself.
		session = s.CurrentSession()
	}
	call.session, call.err = session, nil
}

// setHookDue notes whether OnResume has to run before the next call. One that
// failed stays due, unless the session that it was for is gone.
func (s *Sandbox) setHookDue(due bool) {
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	s.st.hookDue = due && s.st.onResume != nil
}

// startSession asks the API for a running session. A session that is on its way
// out is waited for first: the API starts no other one before. It reports
// whether a session was started.
func (s *Sandbox) startSession(ctx context.Context, stale *Session, cause *APIError) (*Session, bool, error) {
	c, err := s.client()
	if err != nil {
		return nil, false, err
	}
	if cause != nil && cause.failure().Stopping() && stale != nil {
		if err := stale.poll(ctx, StatusStopping, StatusSnapshotting); err != nil {
			return nil, false, err
		}
	}
	answer, req, err := c.getSandbox(ctx, s.Name(), s.st.project, new(true), nil)
	if err != nil {
		return nil, false, err
	}
	session := s.adopt(c, answer)
	if session == nil {
		return nil, false, &APIError{Operation: api.GetSandbox.Name, Status: http.StatusOK, SandboxName: s.Name(), Err: errNoSession}
	}
	// When an answer was lost, the session that it told of is taken for ours.
	return session, answer.Resumed || req.Uncertain && session != stale, nil
}

// resumedFor runs OnResume for a handle that Get has made, if a session was
// started, or if the hook of an earlier Get has failed for this session.
func (s *Sandbox) resumedFor(ctx context.Context, resumed bool) (*Sandbox, error) {
	c, cur := s.st.client, s.CurrentSession()
	if s.st.onResume == nil || cur == nil {
		return s, nil
	}
	if _, failed := c.hooksDue.LoadAndDelete(cur.ID()); !resumed && !failed {
		return s, nil
	}
	if err := s.runHook(ctx, s.st.onResume, "OnResume"); err != nil {
		c.hooksDue.Store(cur.ID(), true)
		return nil, err
	}
	return s, nil
}

// runHook calls a hook with a handle and a context by which its calls are known
// as its own.
func (s *Sandbox) runHook(ctx context.Context, hook Hook, what string) (err error) {
	run := &hookRun{}
	// The context has to outlive the hook, for what the hook has started. While
	// the hook runs, it ends with the caller's.
	lasting, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(api.ContextError(ctx)) })
	err = errHookLeft
	defer func() {
		run.over.Store(true)
		stop()
		if err != nil {
			end(err)
		}
	}()
	if err = hook(context.WithValue(lasting, hookKey{s.st}, run), &Sandbox{st: s.st, hook: run}); err != nil {
		err = fmt.Errorf("sandbox: %s of %q: %w", what, s.Name(), err)
	}
	return err
}

// poll waits until the session has left the given states. The state that is
// known may be old, so the API is always asked.
func (s *Session) poll(ctx context.Context, states ...Status) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	for {
		if !api.Sleep(ctx, c.api.PollPause(api.GetSession, pollInterval)) {
			return &RequestError{Operation: api.GetSession.Name, SessionID: s.ID(), Err: api.ContextError(ctx)}
		}
		if err := s.Refresh(ctx); err != nil {
			return err
		}
		if !slices.Contains(states, s.Status()) {
			return nil
		}
	}
}

// waitReady waits for a session that is being started.
func (s *Session) waitReady(ctx context.Context) error {
	if s.Status() != StatusPending {
		return nil
	}
	if err := s.poll(ctx, StatusPending); err != nil {
		return err
	}
	if status := s.Status(); status == StatusFailed || status == StatusAborted {
		return fmt.Errorf("sandbox: session %s did not start: it is %s", s.ID(), status)
	}
	return nil
}

// memo keeps the first result of a question that is asked by several goroutines.
// A failure is not kept: the next one asks again. The zero value is ready.
type memo[T any] struct {
	once sync.Once
	turn chan struct{} // held by the one who asks
	have bool
	val  T
}

func (m *memo[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	m.once.Do(func() { m.turn = make(chan struct{}, 1) })
	var zero T
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return zero, api.ContextError(ctx)
	}
	defer func() { <-m.turn }()
	if m.have {
		return m.val, nil
	}
	val, err := ask(ctx)
	if err != nil {
		return zero, err
	}
	m.val, m.have = val, true
	return val, nil
}
