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
	errHookLeft    = errors.New("sandbox: the OnResume hook ended its goroutine instead of returning")
)

// withResume performs fn on the current session. When the API says that the
// session is stopped or stopping, the sandbox is resumed and fn performed once
// more; that is safe because the API refused before it acted.
func withResume[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	var zero T
	if _, err := s.client(); err != nil {
		return zero, err
	}
	cur := s.CurrentSession()
	if cur == nil {
		var err error
		if cur, err = s.resume(ctx, nil, nil); err != nil {
			return zero, err
		}
	}
	if err := cur.waitReady(ctx); err != nil {
		return zero, err
	}
	v, err := fn(cur)
	if e, ok := errors.AsType[*APIError](err); !ok || !e.stopped() && !e.stopping() {
		return v, err
	}
	next, resumeErr := s.resume(ctx, cur, err)
	if resumeErr != nil {
		return zero, resumeErr
	}
	if err := next.waitReady(ctx); err != nil {
		return zero, err
	}
	return fn(next)
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
func (s *Sandbox) resume(ctx context.Context, stale *Session, cause error) (*Session, error) {
	if s.inHook(ctx) {
		// Waiting for the resume that this call is part of would never end.
		if cur := s.CurrentSession(); cur != nil && cur != stale {
			return cur, nil
		}
		session, _, err := s.startSession(ctx, stale, cause)
		return session, err
	}
	st := s.st
	st.mu.Lock()
	call := st.resuming
	if call == nil {
		if st.current != nil && st.current != stale {
			// The refusal is older than the session that there is now.
			defer st.mu.Unlock()
			return st.current, nil
		}
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
		call = &resumeCall{done: make(chan struct{}), ctx: shared, cancel: cancel}
		st.resuming = call
		go s.runResume(call, stale, cause)
	}
	call.waiters++
	st.mu.Unlock()

	select {
	case <-call.done:
	case <-call.ctx.Done():
		// It is over, or it would have to be: a hook that does not heed its
		// context may never return, as one that waits for its own resume.
		select {
		case <-call.done:
		case <-time.After(hookGrace):
			st.mu.Lock()
			defer st.mu.Unlock()
			if st.resuming == call {
				st.resuming = nil
			}
			return nil, &RequestError{Operation: "resume sandbox", SandboxName: st.info.Name, Err: errResumeStuck}
		case <-ctx.Done():
			return nil, &RequestError{Operation: "resume sandbox", SandboxName: s.Name(), Err: context.Cause(ctx)}
		}
	case <-ctx.Done():
		st.mu.Lock()
		defer st.mu.Unlock()
		if call.waiters--; call.waiters == 0 {
			call.cancel()
			if st.resuming == call {
				st.resuming = nil
			}
		}
		return nil, &RequestError{Operation: "resume sandbox", SandboxName: st.info.Name, Err: context.Cause(ctx)}
	}
	return call.session, call.err
}

// runResume performs a shared resume.
func (s *Sandbox) runResume(call *resumeCall, stale *Session, cause error) {
	call.err = errHookLeft
	defer func() {
		s.st.mu.Lock()
		if s.st.resuming == call {
			s.st.resuming = nil
		}
		s.st.mu.Unlock()
		close(call.done)
		call.cancel()
	}()
	session, resumed, err := s.startSession(call.ctx, stale, cause)
	if err == nil && resumed && s.st.onResume != nil {
		err = s.runHook(call.ctx, s.st.onResume)
		// The hook may have met a stopped session itself.
		session = s.CurrentSession()
	}
	call.session, call.err = session, err
}

// startSession asks the API for a running session. A session that is on its way
// out is waited for first: the API starts no other one before.
func (s *Sandbox) startSession(ctx context.Context, stale *Session, cause error) (*Session, bool, error) {
	c, err := s.client()
	if err != nil {
		return nil, false, err
	}
	if e, ok := errors.AsType[*APIError](cause); ok && e.stopping() && stale != nil {
		if err := stale.poll(ctx, StatusStopping, StatusSnapshotting); err != nil {
			return nil, false, err
		}
	}
	answer, err := c.getSandbox(ctx, s.Name(), s.st.project, new(true), nil)
	if err != nil {
		return nil, false, err
	}
	session := s.adopt(c, answer)
	if session == nil {
		return nil, false, &APIError{Operation: api.GetSandbox.Name, Status: http.StatusOK, SandboxName: s.Name(), Err: errNoSession}
	}
	return session, answer.Resumed, nil
}

// runHook calls a hook with a handle and a context by which its calls are known
// as its own.
func (s *Sandbox) runHook(ctx context.Context, hook Hook) error {
	run := &hookRun{}
	defer run.over.Store(true)
	if err := hook(context.WithValue(ctx, hookKey{s.st}, run), &Sandbox{st: s.st, hook: run}); err != nil {
		return fmt.Errorf("sandbox: OnResume of %q: %w", s.Name(), err)
	}
	return nil
}

// poll waits until the session has left the given states. The state that is
// known may be old, so the API is always asked.
func (s *Session) poll(ctx context.Context, states ...Status) error {
	for {
		timer := time.NewTimer(pollInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &RequestError{Operation: api.GetSession.Name, SessionID: s.ID(), Err: context.Cause(ctx)}
		}
		if err := s.Refresh(ctx); err != nil {
			return err
		}
		status := s.Status()
		if !slices.Contains(states, status) {
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
		return zero, context.Cause(ctx)
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
