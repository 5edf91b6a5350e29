package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// pollInterval is the pause between checks of a session that is changing
	// its state.
	pollInterval = 500 * time.Millisecond
	// resumeTimeout ends a resume that does not finish, including its hook, so
	// that callers do not wait forever.
	resumeTimeout = 10 * time.Minute
	// hookGrace is how long a hook may take to return after its context has
	// ended.
	hookGrace = time.Second
)

var (
	errResumeStuck = fmt.Errorf("not done after %v: its OnResume hook has not returned; in a hook, use the handle and the context that it is given", resumeTimeout)
	errHookLeft    = errors.New("the hook ended its goroutine instead of returning")
)

// Resume starts a session unless one is running, waits until it is ready and
// calls the OnResume hook. Other calls resume a stopped sandbox by themselves;
// Resume is for programs that need it running first, to wait for a port or to
// read [Sandbox.Status]. If the sandbox's files are gone, the error matches
// [ErrSnapshotNotFound]. It makes one request, and more while a session starts,
// and may start a machine.
func (s *Sandbox) Resume(ctx context.Context) error {
	if _, err := s.client(); err != nil {
		return err
	}
	session, err := s.resume(ctx, s.CurrentSession())
	if err != nil {
		return err
	}
	return session.waitReady(ctx)
}

// maxResumes is how often one call resumes the sandbox, as in the official
// client: others may stop sessions as fast as they are started.
const maxResumes = 1

// withResume calls fn with the current session, after a running hook has
// finished. If the API refuses fn's request because the session is stopped or
// stopping, the sandbox is resumed and fn called once more; that is safe
// because the API refused before the request had any effect.
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
		if !refusal(cur, err) || resumes == maxResumes {
			return v, err
		}
		if cur, err = s.resume(ctx, cur); err != nil {
			return zero, err
		}
	}
}

// refusal reports whether the API refused a call on this session before it had
// any effect. It must be the error of the call's own request, not one wrapped by
// another error, such as that of a hook, or of a stream that broke after the
// call had taken effect.
func refusal(session *Session, err error) bool {
	e, ok := err.(*APIError)
	return ok && e.refused && e.SessionID == session.ID()
}

// ready returns the session to use: the current one or, while its hook runs or
// has failed, the one after a hook has succeeded.
func (s *Sandbox) ready(ctx context.Context) (*Session, error) {
	s.st.mu.Lock()
	cur, calm := s.st.current, s.st.resuming == nil && !s.st.hookDue
	s.st.mu.Unlock()
	if cur != nil && (calm || s.inHook(ctx)) {
		return cur, nil
	}
	return s.resume(ctx, nil)
}

// sessionToLookAt returns the session whose commands are looked up. It starts
// none.
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

// lookAt calls fn with the current session. A session that has stopped is not
// started again for it, but another client may have started the next one.
func lookAt[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	cur, err := s.sessionToLookAt(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := fn(cur)
	if refusal(cur, err) && s.Refresh(ctx) == nil {
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

// resumeCall is a resume that several callers may wait for.
type resumeCall struct {
	done    chan struct{}
	session *Session
	err     error
	waiters int // guarded by the sandbox's mutex
	ctx     context.Context
	cancel  context.CancelFunc
}

// hookRun is one run of a hook. Until it is over, calls made by the hook do not
// wait for the resume that the hook is part of.
type hookRun struct{ over atomic.Bool }

type hookKey struct{ st *sandboxState }

// inHook reports whether a call comes from a running hook of this sandbox: by
// the handle that the hook received, or by its context.
func (s *Sandbox) inHook(ctx context.Context) bool {
	if s.hook != nil && !s.hook.over.Load() {
		return true
	}
	run, ok := ctx.Value(hookKey{s.st}).(*hookRun)
	return ok && !run.over.Load()
}

// resume returns a session to use instead of stale, which the API has refused.
// Concurrent callers share one resume, which continues for as long as any of
// them waits for it.
func (s *Sandbox) resume(ctx context.Context, stale *Session) (*Session, error) {
	if s.inHook(ctx) {
		// Waiting for the resume that this call is part of would never end.
		if cur := s.CurrentSession(); cur != nil && cur != stale {
			return cur, nil
		}
		session, _, err := s.startSession(ctx, stale)
		return session, err
	}
	session, joined, err := s.share(ctx, stale)
	if err == nil && joined && session == stale {
		// The resume that was in progress ended with the very session that has
		// refused this call since.
		session, _, err = s.share(ctx, stale)
	}
	return session, err
}

// share waits for the resume in progress, which it reports, or begins one.
func (s *Sandbox) share(ctx context.Context, stale *Session) (session *Session, joined bool, err error) {
	st := s.st
	st.mu.Lock()
	call := st.resuming
	joined = call != nil
	if call == nil {
		if st.current != nil && st.current != stale && !st.hookDue {
			// The refusal is older than the current session.
			defer st.mu.Unlock()
			return st.current, false, nil
		}
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
		call = &resumeCall{done: make(chan struct{}), ctx: shared, cancel: cancel}
		st.resuming = call
		go s.runResume(call, stale)
	}
	call.waiters++
	st.mu.Unlock()

	stuck := func(err error) error {
		return &RequestError{Operation: "resume sandbox", SandboxName: s.Name(), Err: err}
	}
	select {
	case <-call.done:
	case <-call.ctx.Done():
		// It is over, or should be: a hook that ignores its context may never
		// return, such as one that waits for its own resume.
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

// runResume performs a shared resume: it starts a session in place of stale,
// and calls the hook if a session was started or an earlier run has failed.
func (s *Sandbox) runResume(call *resumeCall, stale *Session) {
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
		if session, resumed, err = s.startSession(call.ctx, stale); err != nil {
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
		// The hook itself may have found the session stopped.
		session = s.CurrentSession()
	}
	call.session, call.err = session, nil
}

// setHookDue records whether OnResume must run before the next call. A hook
// that failed stays due until the session that it was for is gone.
func (s *Sandbox) setHookDue(due bool) {
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	s.st.hookDue = due && s.st.onResume != nil
}

// startSession asks the API for a running session, and reports whether one was
// started. The API is expected to respond only once the previous session has
// ended; if it does not, startSession waits for that session and asks again.
func (s *Sandbox) startSession(ctx context.Context, stale *Session) (session *Session, resumed bool, err error) {
	c, err := s.client()
	if err != nil {
		return nil, false, err
	}
	for waited := false; ; waited = true {
		resp, req, err := c.getSandbox(ctx, s.Name(), s.st.project, true, nil)
		ending := stale
		switch refused, is := errors.AsType[*APIError](err); {
		case err == nil:
			if session, err = s.adopt(c, resp); err != nil {
				return nil, false, err
			}
			resumed = session != stale && c.started(s.st.project, s.Name(), resp, req)
			if ending = session; !session.ending() {
				return session, resumed, nil
			}
		case !is || refused.judged() != api.Stopping || stale == nil:
			return nil, false, err
		}
		if waited {
			return session, resumed, err
		}
		if err := ending.poll(ctx, StatusStopping, StatusSnapshotting); err != nil {
			return nil, false, err
		}
	}
}

// ending reports whether the session was ending when the API last described it.
func (s *Session) ending() bool {
	status := s.Status()
	return status == StatusStopping || status == StatusSnapshotting
}

// resumedFor calls OnResume for a handle made by Get, if a session was started,
// or if the hook of an earlier Get failed for this session.
func (s *Sandbox) resumedFor(ctx context.Context, resumed bool) (*Sandbox, error) {
	c, cur := s.st.client, s.CurrentSession()
	if s.st.onResume == nil || cur == nil {
		return s, nil
	}
	if !c.hooksDue.take(cur.ID()) && !resumed {
		return s, nil
	}
	if err := s.runHook(ctx, s.st.onResume, "OnResume"); err != nil {
		c.hooksDue.add(cur.ID(), struct{}{})
		return nil, err
	}
	return s, nil
}

// runHook calls a hook with a handle and a context that identify the hook's own
// calls.
func (s *Sandbox) runHook(ctx context.Context, hook Hook, what string) (err error) {
	run := &hookRun{}
	// The context must outlive the hook, for what the hook has started. While
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

// poll waits until the session has left the given states. It always asks the
// API, since the known state may be old.
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

// waitReady waits for a session that is starting.
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

// started reports whether the session that a response describes counts as
// started by this client: by this request or by one whose response was lost.
// That is so once for each session whose response is not lost.
func (c *Client) started(project, name string, resp *wire.SandboxResponse, req *api.Request) bool {
	ours, session := resp.Resumed, &resp.Session
	c.lateStarts.change(project+"/"+name, func(late *lateStart) {
		begin := serverTime(req).Add(-time.Since(late.since) - clockSlack)
		ours = ours || session.ID != late.handled && begun(Status(session.Status)) && session.CreatedAt.After(begin)
		if ours {
			late.handled = session.ID
		}
	})
	return ours
}

// begun reports whether a session of that status runs or is about to.
func begun(status Status) bool { return status == StatusPending || status == StatusRunning }
