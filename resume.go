package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// resumeTimeout ends a resume that does not finish, including its hook, so that
// callers do not wait forever.
const resumeTimeout = 10 * time.Minute

var errResumeStuck = fmt.Errorf("not done after %v: its OnResume hook has not returned; in a hook, use the handle and the context that it is given", resumeTimeout)

// Resume starts a session unless one is running, waits until it is ready and
// calls the OnResume hook. Other calls resume a stopped sandbox by themselves.
// Use Resume if the sandbox must run first, to wait for a port or to read
// [Sandbox.Status]. If the sandbox's files are gone, the error matches
// [ErrSnapshotNotFound]. Resume makes one request, and more while a session
// starts, and may start a machine.
func (s *Sandbox) Resume(ctx context.Context) error {
	if _, err := enter(ctx, s); err != nil {
		return err
	}
	session, err := s.resume(ctx, s.CurrentSession(), causeAsked, nil)
	if err != nil {
		return err
	}
	return session.waitReady(ctx)
}

// The causes of resumes. For a refused call, the cause is the outcome of the call.
const (
	causeAsked = "asked" // by Resume
	causeGet   = "get"   // by a get
	causeHook  = "hook"  // a hook must run first, or no session is known
)

// resume returns a session to use instead of stale, a session on which the API has refused
// a call. It starts one if necessary. Concurrent callers share one resume, which continues
// for as long as any of them waits for it. The cause, and its error if there is one, are
// for observers.
func (s *Sandbox) resume(ctx context.Context, stale *Session, cause string, causeErr error) (*Session, error) {
	why := observe.Event{Kind: observe.Resume, Cause: cause, CauseErr: causeErr}
	if s.inHook(ctx) {
		// Waiting for the resume that this call is part of would never end.
		if cur := s.CurrentSession(); cur != nil && cur != stale {
			return cur, nil
		}
		return s.startSession(ctx, stale, why)
	}
	session, joined, err := s.joinResume(ctx, stale, why)
	if err == nil && joined && session == stale {
		// The resume that this call joined returned the session that has refused the
		// call: resume once more.
		session, _, err = s.joinResume(ctx, stale, why)
	}
	return session, err
}

// joinResume waits for the resume in progress, or starts one. joined reports whether one
// was in progress.
func (s *Sandbox) joinResume(ctx context.Context, stale *Session, why observe.Event) (session *Session, joined bool, err error) {
	st, cur := s.st, s.CurrentSession()
	usable := cur != nil && cur != stale && s.resumeHook(cur) == nil
	st.mu.Lock()
	call := st.resuming
	joined = call != nil
	if call == nil {
		if usable && st.current == cur {
			// The refusal came from an older session than the current one.
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

	resumeError := func(err error) error {
		return &RequestError{operation: "resume sandbox", sandbox: s.Name(), Err: err}
	}
	select {
	case <-call.done:
	case <-call.ctx.Done():
		// The resume has ended, or should have. A hook that ignores its context may never
		// return, for example one that waits for its own resume.
		select {
		case <-call.done:
		case <-time.After(hookGrace):
			st.mu.Lock()
			if st.resuming == call {
				st.resuming = nil
			}
			st.mu.Unlock()
			return nil, joined, resumeError(errResumeStuck)
		case <-ctx.Done():
			return nil, joined, resumeError(api.ContextError(ctx))
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
		return nil, joined, resumeError(api.ContextError(ctx))
	}
	return call.session, joined, call.err
}

// runResume performs a shared resume: it starts a session in place of stale and
// runs the OnResume hook.
func (s *Sandbox) runResume(call *resumeCall, stale *Session, why observe.Event) {
	call.err = fmt.Errorf("sandbox: OnResume of %q: %w", s.Name(), errHookExited)
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
		if _, err := s.startSession(call.ctx, stale, why); err != nil {
			call.err = err
			return
		}
	}
	if err := s.runResumeHook(call.ctx); err != nil {
		call.err = err
		return
	}
	call.session, call.err = s.CurrentSession(), nil
}

// startSession asks the API for a running session. The API is expected to respond
// only once the previous session has ended; if it does not, startSession waits for
// that session and asks again.
func (s *Sandbox) startSession(ctx context.Context, stale *Session, why observe.Event) (session *Session, err error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginEvent(ctx, s, why)
	e.Outcome = observe.Found
	defer func() {
		if session != nil {
			e.Session = session.ID()
		}
		endEvent(&e, err)
	}()
	for waited := false; ; waited = true {
		resp, err := c.getSandbox(ctx, s.Name(), s.st.project, true, nil)
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
		case !is || refused.errorKind() != api.Stopping || stale == nil:
			return nil, err
		}
		if waited {
			return session, err
		}
		if err := ending.pollWhile(ctx, StatusStopping, StatusSnapshotting); err != nil {
			return nil, err
		}
	}
}

// maxResumes limits how often one call resumes the sandbox, as in the official client:
// other clients may stop sessions as fast as they are started.
const maxResumes = 1

// withResume calls fn with the current session, after a running hook has
// finished. If the API refuses fn's request because the session is stopped or
// stopping, the sandbox is resumed and fn called once more; that is safe
// because the API refused before the request had any effect.
func withResume[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	var zero T
	if _, err := enter(ctx, s); err != nil {
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
		if !isRefusal(cur, err) || resumes == maxResumes {
			return v, err
		}
		if cur, err = s.resume(ctx, cur, outcome(ctx, err), err); err != nil {
			return zero, err
		}
	}
}

// withResumeDo is withResume for operations without a result.
func withResumeDo(ctx context.Context, s *Sandbox, fn func(*Session) error) error {
	_, err := withResume(ctx, s, func(cur *Session) (struct{}, error) { return struct{}{}, fn(cur) })
	return err
}

// ready returns the session to use. If hooks have to run for the current
// session, it waits for them and returns the session after that.
func (s *Sandbox) ready(ctx context.Context) (*Session, error) {
	s.st.mu.Lock()
	cur, idle := s.st.current, s.st.resuming == nil
	s.st.mu.Unlock()
	if cur != nil && (s.inHook(ctx) || idle && s.resumeHook(cur) == nil) {
		return cur, nil
	}
	return s.resume(ctx, nil, causeHook, nil)
}

// withoutResume calls fn with the current session, and starts none. If the API refuses the
// call and another client has started the next session, it calls fn with that one.
func withoutResume[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	cur, err := s.sessionForLookup(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := fn(cur)
	if isRefusal(cur, err) && s.Refresh(ctx) == nil {
		if next := s.CurrentSession(); next != cur {
			return fn(next)
		}
	}
	return v, err
}

// sessionForLookup returns the session in which commands are looked up. It starts no
// session.
func (s *Sandbox) sessionForLookup(ctx context.Context) (*Session, error) {
	if _, err := enter(ctx, s); err != nil {
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

func (s *Sandbox) begin(ctx, live context.Context, name string, args []string, o *CommandOptions, followed bool) (*Command, *follower, error) {
	var f *follower
	cmd, err := withResume(ctx, s, func(cur *Session) (cmd *Command, err error) {
		cmd, f, err = cur.begin(ctx, live, name, args, o, followed)
		return cmd, err
	})
	return cmd, f, err
}

func (s *Sandbox) mkdir(ctx context.Context, path string) error {
	return withResumeDo(ctx, s, func(cur *Session) error { return cur.mkdir(ctx, path) })
}

func (s *Sandbox) openFile(ctx context.Context, path, cwd string) (io.ReadCloser, int64, error) {
	type opened struct {
		body io.ReadCloser
		size int64
	}
	o, err := withResume(ctx, s, func(cur *Session) (opened, error) {
		body, size, err := cur.openFile(ctx, path, cwd)
		return opened{body, size}, err
	})
	return o.body, o.size, err
}

func (s *Sandbox) uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (int64, error) {
	return withResume(ctx, s, func(cur *Session) (int64, error) { return cur.uploadTarGz(ctx, open) })
}

// RunCommand is like [Session.RunCommand] for the current session, but resumes
// the sandbox if it is stopped.
func (s *Sandbox) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, s, name, args)
	return s.runCommand(ctx, name, args, opts, e)
}

// StartCommand is like [Session.StartCommand] for the current session, but
// resumes the sandbox if it is stopped.
func (s *Sandbox) StartCommand(ctx context.Context, name string, args []string, opts *StartOptions) (*Command, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, s, name, args)
	return s.startCommand(ctx, name, args, *opts.command(), e)
}

func (s *Sandbox) runCommand(ctx context.Context, name string, args []string, opts *CommandOptions, e api.Span) (*CommandResult, error) {
	done, err := withResume(ctx, s, func(cur *Session) (commandRun, error) { return cur.runCommand(ctx, name, args, opts) })
	done.finishEvent(&e, err)
	return done.result, err
}

func (s *Sandbox) startCommand(ctx context.Context, name string, args []string, o CommandOptions, e api.Span) (*Command, error) {
	begun, err := withResume(ctx, s, func(cur *Session) (commandRun, error) { return cur.startCommand(ctx, name, args, o, e) })
	begun.finishEvent(&e, err)
	return begun.cmd, err
}

// GetCommand is like [Session.GetCommand] for the current session. It does not
// resume the sandbox: the commands of a stopped session are gone, and the error
// then matches [ErrStopped].
func (s *Sandbox) GetCommand(ctx context.Context, id string) (*Command, error) {
	return withoutResume(ctx, s, func(cur *Session) (*Command, error) { return cur.GetCommand(ctx, id) })
}

// ListCommands is like [Session.ListCommands] for the current session. Like
// [Sandbox.GetCommand], it does not resume the sandbox.
func (s *Sandbox) ListCommands(ctx context.Context) ([]*Command, error) {
	return withoutResume(ctx, s, func(cur *Session) ([]*Command, error) { return cur.ListCommands(ctx) })
}
