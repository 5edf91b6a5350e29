package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// hookGrace is how long a hook may take to return after its context ended.
const hookGrace = time.Second

var errHookLeft = errors.New("the hook ended its goroutine instead of returning")

// hooksOr returns the hooks of a call or, where it has none, those of the client
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

// resumeHook returns the OnResume hook that must run before the session is used:
// the handle's own request started the session, and the hook has not run for it.
func (s *Sandbox) resumeHook(session *Session) Hook {
	s.st.mu.Lock()
	c, id := s.st.client, session.ID()
	due := s.st.resumed == id && s.st.hooked != id
	s.st.mu.Unlock()
	if c == nil || !due {
		return nil
	}
	_, onResume := c.hooksOr(nil, s.st.onResume, s.Info)
	return onResume
}

// runResumeHook runs the OnResume hook if it is due for the current session.
func (s *Sandbox) runResumeHook(ctx context.Context) error {
	session := s.CurrentSession()
	if session == nil || s.hookOf(ctx) != nil {
		return nil
	}
	hook := s.resumeHook(session)
	if hook == nil {
		return nil
	}
	if err := session.waitReady(ctx); err != nil {
		return err
	}
	if err := s.runHook(ctx, "OnResume", hook); err != nil {
		return err
	}
	s.st.mu.Lock()
	s.st.hooked = s.st.current.ID() // the hook may have moved on to the next session
	s.st.mu.Unlock()
	return nil
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

// hookOf returns the running hook that makes a call: by the handle that it
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
// calls.
func (s *Sandbox) runHook(ctx context.Context, name string, hook Hook) (err error) {
	inside, e := s.st.client.beginEvent(ctx, s, observe.Event{Kind: observe.Hook, Operation: name})
	// What the hook starts may outlive the hook, so its context ends with the
	// caller's only while the hook runs.
	lasting, end := context.WithCancelCause(context.WithoutCancel(inside))
	stop := context.AfterFunc(inside, func() { end(api.ContextError(inside)) })
	run := &hookRun{}
	err = errHookLeft
	defer func() {
		run.over.Store(true)
		stop()
		endEvent(&e, err)
		if err != nil {
			end(err)
		}
	}()
	lasting = context.WithValue(lasting, s.hookKey(), run)
	if err = hook(lasting, &Sandbox{st: s.st, hook: run}); err != nil {
		err = fmt.Errorf("sandbox: %s of %q: %w", name, s.Name(), err)
	}
	return err
}
