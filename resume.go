package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/observe"
)

const (
	// pollInterval is the pause between checks of a session that is changing
	// its state.
	pollInterval = 500 * time.Millisecond
	// resumeTimeout ends a resume that does not finish, including its hook, so
	// that callers do not wait forever.
	resumeTimeout = 10 * time.Minute
)

var errResumeStuck = fmt.Errorf("not done after %v: its OnResume hook has not returned; in a hook, use the handle and the context that it is given", resumeTimeout)

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
	session, err := s.resume(ctx, s.CurrentSession(), causeAsked, nil)
	if err != nil {
		return err
	}
	return session.waitReady(ctx)
}

// The causes of resumes, besides the refusals of calls.
const (
	causeAsked = "asked" // by Resume
	causeGet   = "get"   // by a get
	causeHook  = "hook"  // hooks have to run, or there is no session
)

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
	if ctx == nil {
		return zero, errNilContext
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
		if cur, err = s.resume(ctx, cur, outcome(ctx, err), err); err != nil {
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

// ready returns the session to use: the current one or, while hooks have to run
// for it, the one after they have.
func (s *Sandbox) ready(ctx context.Context) (*Session, error) {
	s.st.mu.Lock()
	cur, calm := s.st.current, s.st.resuming == nil
	s.st.mu.Unlock()
	if cur != nil && (s.hookOf(ctx) != nil || calm && s.settled(cur)) {
		return cur, nil
	}
	return s.resume(ctx, nil, causeHook, nil)
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

// resume returns a session to use instead of stale, which the API has refused.
// Concurrent callers share one resume, which continues for as long as any of
// them waits for it. The cause, and its error if there is one, are for observers.
func (s *Sandbox) resume(ctx context.Context, stale *Session, cause string, causeErr error) (*Session, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	why := observe.Event{Kind: observe.Resume, Cause: cause, CauseErr: causeErr}
	if run := s.hookOf(ctx); run != nil {
		// Waiting for the resume that this call is part of would never end.
		if cur := s.CurrentSession(); cur != nil && cur != stale {
			return cur, nil
		}
		session, err := s.startSession(ctx, stale, why)
		if err != nil {
			return nil, err
		}
		if err := run.follow(ctx, session); err != nil {
			return nil, &lockError{s.Name(), err}
		}
		return session, nil
	}
	session, joined, err := s.share(ctx, stale, why)
	if err == nil && joined && session == stale {
		// The resume that was in progress ended with the very session that has
		// refused this call since.
		session, _, err = s.share(ctx, stale, why)
	}
	return session, err
}

// share waits for the resume in progress, which it reports, or begins one.
func (s *Sandbox) share(ctx context.Context, stale *Session, why observe.Event) (session *Session, joined bool, err error) {
	st, cur := s.st, s.CurrentSession()
	calm := cur != nil && cur != stale && s.settled(cur)
	st.mu.Lock()
	call := st.resuming
	joined = call != nil
	if call == nil {
		if calm && st.current == cur {
			// The refusal is older than the current session.
			defer st.mu.Unlock()
			return st.current, false, nil
		}
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
		call = &resumeCall{done: make(chan struct{}), ctx: shared, cancel: cancel}
		st.resuming = call
		go s.runResume(call, stale, why)
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

// runResume performs a shared resume: it starts a session in place of stale, and
// lets the hooks run that have not.
func (s *Sandbox) runResume(call *resumeCall, stale *Session, why observe.Event) {
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
	fresh := session == nil || session == stale
	for {
		if fresh {
			var err error
			if session, err = s.startSession(call.ctx, stale, why); err != nil {
				call.err = err
				return
			}
		}
		refused, err := s.settle(call.ctx)
		if err != nil {
			call.err = err
			return
		}
		if !refused || fresh {
			break // if it has ended again, the caller's request is refused, too
		}
		stale, fresh = session, true
	}
	call.session, call.err = s.CurrentSession(), nil
}

// startSession asks the API for a running session. The API is expected to respond
// only once the previous session has ended; if it does not, startSession waits for
// that session and asks again.
func (s *Sandbox) startSession(ctx context.Context, stale *Session, why observe.Event) (session *Session, err error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginEvent(ctx, s, why)
	e.Outcome = observe.Found
	defer func() {
		if session != nil {
			e.Session = session.ID()
		}
		c.endEvent(ctx, e, err)
	}()
	for waited := false; ; waited = true {
		resp, _, err := c.getSandbox(ctx, s.Name(), s.st.project, true, nil)
		ending := stale
		switch refused, is := errors.AsType[*APIError](err); {
		case err == nil:
			if session, err = s.adopt(c, resp); err != nil {
				return nil, err
			}
			if resp.Resumed {
				e.Outcome = observe.OK
			}
			if ending = session; !session.ending() {
				return session, nil
			}
		case !is || refused.judged() != api.Stopping || stale == nil:
			return nil, err
		}
		if waited {
			return session, err
		}
		if err := ending.poll(ctx, StatusStopping, StatusSnapshotting); err != nil {
			return nil, err
		}
	}
}

// ending reports whether the session was ending when the API last described it.
func (s *Session) ending() bool {
	status := s.Status()
	return status == StatusStopping || status == StatusSnapshotting
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

// begun reports whether a session of that status runs or is about to.
func begun(status Status) bool { return status == StatusPending || status == StatusRunning }
