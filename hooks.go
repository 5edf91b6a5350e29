package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// hookGrace is how long a hook may take to return after its context ended.
const hookGrace = time.Second

// errHookExited is the error of a hook until it returns. It remains if the hook calls
// runtime.Goexit, as t.FailNow does.
var errHookExited = errors.New("the hook ended its goroutine instead of returning")

// hooksOr returns the given hooks. A nil one is replaced by the client's for the
// sandbox that info describes.
func (c *Client) hooksOr(onCreate, onResume Hook, info func() Info) (Hook, Hook) {
	if c.hooks == nil || onCreate != nil && onResume != nil {
		return onCreate, onResume
	}
	clientCreate, clientResume := c.hooks(info())
	if onCreate == nil {
		onCreate = clientCreate
	}
	if onResume == nil {
		onResume = clientResume
	}
	return onCreate, onResume
}

// resumeHook returns the OnResume hook to run before the session is used. The hook is due
// if a request of this handle started the session and the hook has not run for it yet.
func (s *Sandbox) resumeHook(session *Session) Hook {
	s.st.mu.Lock()
	c, id := s.st.client, session.ID()
	due := s.st.resumedID == id && s.st.hookedID != id
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
	if session == nil || s.inHook(ctx) {
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
	s.st.hookedID = s.st.current.ID() // the hook's calls may have started another session
	s.st.mu.Unlock()
	return nil
}

// hookRun is one run of a hook. Until the hook has returned, its calls do not wait for
// the resume that the hook is part of.
type hookRun struct {
	returned atomic.Bool
}

// hookKey is the key under which the context of a sandbox's hook holds its hookRun.
type hookKey struct {
	name    string
	created int64
}

func (s *Sandbox) hookKey() hookKey {
	info := s.metadata()
	return hookKey{info.Name, info.CreatedAt.UnixMilli()}
}

// inHook reports whether a hook of the sandbox makes the call: with the handle that the
// hook received, or with its context and another handle.
func (s *Sandbox) inHook(ctx context.Context) bool {
	if s.hook != nil && !s.hook.returned.Load() {
		return true
	}
	run, ok := ctx.Value(s.hookKey()).(*hookRun)
	return ok && !run.returned.Load()
}

// runHook calls a hook with a handle and a context by which inHook recognizes its calls.
func (s *Sandbox) runHook(ctx context.Context, name string, hook Hook) (err error) {
	ctx, e := s.st.client.beginEvent(ctx, s, observe.Event{Kind: observe.Hook, Operation: name})
	// The hook's context ends with the caller's only while the hook runs. Later it continues,
	// because programs that the hook has started may outlive the call.
	hookCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(api.ContextError(ctx)) })
	run := &hookRun{}
	err = errHookExited
	defer func() {
		run.returned.Store(true)
		detach()
		endEvent(&e, err)
		if err != nil {
			cancel(err)
		}
	}()
	hookCtx = context.WithValue(hookCtx, s.hookKey(), run)
	if err = hook(hookCtx, &Sandbox{st: s.st, hook: run}); err != nil {
		err = fmt.Errorf("sandbox: %s of %q: %w", name, s.Name(), err)
	}
	return err
}

// A sandbox that GetOrCreate creates with an OnCreate has the tag creationMark until
// OnCreate has succeeded. Other calls wait for that. The call that runs OnCreate changes
// the tag's value every markInterval. If a waiting call sees the same value for
// abandonedAfter, by its own monotonic clock, the other process has died. The waiting call
// then writes a value of its own and runs OnCreate again. Only the call that created the
// sandbox deletes it.
const (
	// creationMark is the name of the tag. Handles do not show it.
	creationMark = "go-sandbox-creation"
	// markPrefix begins each value of the tag. A random name of the owner follows, and
	// after the first change the number of changes.
	markPrefix = "once-"

	markInterval   = time.Minute
	abandonedAfter = 3 * time.Minute
	// takeOverPause is how long a call waits after it has written its value. If several
	// calls do so at once, the last one takes over.
	takeOverPause = 5 * time.Second
	// markTime and deleteTime limit requests that continue after the caller's context has
	// ended: a change of the mark, and the deletion of an incomplete sandbox.
	markTime   = 30 * time.Second
	deleteTime = 10 * time.Second
)

// errSetupTaken reports that another call has taken over OnCreate, or that the
// sandbox is gone. The sandbox must be looked up again.
var errSetupTaken = errors.New("sandbox: another call has taken over OnCreate, or deleted the sandbox")

// withMark returns tags with the mark, or without one if value is empty.
func withMark(tags map[string]string, value string) map[string]string {
	marked := maps.Clone(tags)
	delete(marked, creationMark)
	if value == "" {
		return marked
	}
	if marked == nil {
		marked = map[string]string{}
	}
	marked[creationMark] = value
	return marked
}

// mark returns the last known value of the tag. It is empty if OnCreate is not due.
func (s *Sandbox) mark() string { return s.metadata().Tags[creationMark] }

// readMark fetches the tags and returns the mark.
func (s *Sandbox) readMark(ctx context.Context) (string, error) {
	c, err := enter(ctx, s)
	if err == nil {
		err = s.refreshInfo(ctx, c)
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDeleted) {
		err = errSetupTaken
	}
	return s.mark(), err
}

// writeMark changes the mark, or removes it if value is empty. Other tags stay as
// readMark found them.
func (s *Sandbox) writeMark(ctx context.Context, value string) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	_, err = s.update(ctx, c, body{"tags": withMark(s.metadata().Tags, value)}, nil)
	return err
}

// setup is one run of OnCreate.
type setup struct {
	sb *Sandbox
	// owner is the prefix of the marks that this run writes. It is empty in Create, which
	// uses no mark because no other call waits.
	owner string
	// creator is set if this call created the sandbox.
	creator bool
}

// run runs OnCreate and changes the mark until OnCreate returns. After a success it
// removes the mark. If OnCreate fails, the creator deletes the sandbox, because later
// calls would take it for a complete one. If another call takes over, the hook's
// context ends and the error is errSetupTaken.
func (u *setup) run(ctx context.Context, onCreate Hook) (err error) {
	hookCtx, cancelHook := context.WithCancelCause(ctx)
	stopMark := u.keepMark(ctx, cancelHook)
	err = errHookExited
	defer func() {
		stopMark()
		taken := errors.Is(context.Cause(hookCtx), errSetupTaken)
		cancelHook(nil)
		switch ctx := context.WithoutCancel(ctx); {
		case taken:
			err = errSetupTaken
		case err != nil && u.creator:
			err = u.discard(ctx, err)
		case err == nil && u.owner != "":
			if err = u.change(ctx, ""); err != nil && !errors.Is(err, errSetupTaken) {
				err = fmt.Errorf("sandbox: OnCreate of %q has succeeded, but will run again because its tag %s remains: %w", u.sb.Name(), creationMark, err)
			}
		}
	}()
	return u.sb.runHook(hookCtx, "OnCreate", onCreate)
}

// keepMark changes the mark every markInterval until stop is called, which waits for a
// change in flight. If another call takes over, keepMark ends the hook.
func (u *setup) keepMark(ctx context.Context, cancelHook context.CancelCauseFunc) (stop func()) {
	if u.owner == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; api.Sleep(ctx, markInterval); n++ {
			// A canceled change could take effect after the mark is removed.
			err := u.change(context.WithoutCancel(ctx), fmt.Sprintf("%s-%d", u.owner, n))
			if errors.Is(err, errSetupTaken) {
				cancelHook(err)
				return
			}
			// After any other error, the next change may succeed.
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// change changes the mark, or removes it if value is empty. It does nothing if
// another client has replaced all tags, and the mark with them.
func (u *setup) change(ctx context.Context, value string) error {
	ctx, cancel := context.WithTimeout(ctx, markTime)
	defer cancel()
	mark, err := u.sb.readMark(ctx)
	switch {
	case err != nil || mark == "":
		return err
	case !strings.HasPrefix(mark, u.owner):
		return errSetupTaken
	}
	return u.sb.writeMark(ctx, value)
}

// discard deletes the sandbox after OnCreate has failed, and returns the hook's error. It
// keeps a sandbox whose mark is another call's or gone: other calls may use it.
func (u *setup) discard(ctx context.Context, hookErr error) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	var err error
	if u.owner != "" {
		var mark string
		if mark, err = u.sb.readMark(ctx); err == nil && !strings.HasPrefix(mark, u.owner) {
			err = errSetupTaken
		}
	}
	if err == nil {
		err = u.sb.Delete(ctx, nil)
	}
	if err == nil || errors.Is(err, errSetupTaken) || errors.Is(err, ErrNotFound) {
		return hookErr
	}
	return fmt.Errorf("%w; deleting the incomplete sandbox failed: %w", hookErr, err)
}

// awaitOnCreate waits until another call's OnCreate has succeeded. If this call
// takes over, it runs its own OnCreate.
func (s *Sandbox) awaitOnCreate(ctx context.Context, onCreate Hook) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	sleepAndReadMark := func(d time.Duration) error {
		if !api.Sleep(ctx, d) {
			return &RequestError{operation: "wait for OnCreate", sandbox: s.Name(), Err: api.ContextError(ctx)}
		}
		_, err := s.readMark(ctx)
		return err
	}
	c.api.Log(ctx, slog.LevelInfo, "sandbox: waits for the OnCreate of another call", slog.String("sandbox", s.Name()))
	begin := time.Now()
	for seen, since := s.mark(), begin; s.mark() != ""; {
		if time.Since(since) < abandonedAfter {
			pause := max(pollInterval, min(time.Since(begin)/20, maxLookupPause))
			if err := sleepAndReadMark(c.api.PollPause(api.GetSandbox, pause)); err != nil {
				return err
			}
		} else {
			c.api.Log(ctx, slog.LevelWarn, "sandbox: takes over an OnCreate that its process has not continued", slog.String("sandbox", s.Name()))
			u := &setup{sb: s, owner: markPrefix + rand.Text()}
			if err := s.writeMark(ctx, u.owner); err != nil {
				return err
			}
			if err := sleepAndReadMark(takeOverPause); err != nil {
				return err
			}
			if s.mark() == u.owner {
				return u.run(ctx, onCreate)
			}
		}
		if s.mark() != seen {
			seen, since = s.mark(), time.Now()
		}
	}
	return nil
}
