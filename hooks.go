package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
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

// A sandbox that GetOrCreate makes with an OnCreate has the tag creationMark until
// OnCreate has succeeded. Other calls wait for that. The process that runs OnCreate
// changes the tag's value every markInterval, so a value that stays the same for
// abandonedAfter belongs to a process that died: one of the waiting calls writes
// a value of its own and runs OnCreate again. No clock but the waiting process's
// monotonic one decides. Only the call that created the sandbox ever deletes it.
const (
	// creationMark is the name of the tag. Handles do not show it.
	creationMark = "go-sandbox-creation"
	// onceMark is the prefix of the tag's value. The owner's random name follows, and
	// then a counter of changes.
	onceMark = "once-"

	markInterval   = time.Minute
	abandonedAfter = 3 * time.Minute
	// takeOverPause is how long a call waits after it has taken the mark: of several
	// that do so at once, the last one keeps it.
	takeOverPause = 5 * time.Second
	// markTime limits a change of the mark by a call that may be over.
	markTime = 30 * time.Second
	// deleteTime limits the deletion of an incomplete sandbox.
	deleteTime = 10 * time.Second
)

// errSetupTaken reports that another call has taken over OnCreate, or that the
// sandbox is gone. The sandbox must be looked up again.
var errSetupTaken = errors.New("sandbox: another call has taken over OnCreate")

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

// mark returns the last known value of the tag; empty if OnCreate is not due.
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

// setup is one run of OnCreate by this process.
type setup struct {
	sb *Sandbox
	// owner begins the values of the mark that are this run's. It is empty if there
	// is no mark.
	owner string
	// creator is set if this call created the sandbox.
	creator bool
}

// change changes the mark, or removes it if value is empty. It does nothing if
// there is none, as after another client has replaced all tags.
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

// run runs OnCreate while it keeps the mark, and then removes the mark. It ends the
// hook and returns errSetupTaken if another call has taken over or the sandbox
// is gone. If the hook fails, the sandbox that this call created is deleted, because
// later calls would take it for a complete one.
func (u *setup) run(ctx context.Context, onCreate Hook) (err error) {
	held, lose := context.WithCancelCause(ctx)
	keeping, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		u.keepMark(keeping, lose)
	}()
	err = errHookLeft
	defer func() {
		stop()
		<-kept
		taken := errors.Is(context.Cause(held), errSetupTaken)
		lose(nil)
		switch late := context.WithoutCancel(ctx); {
		case taken:
			err = errSetupTaken
		case err != nil && u.creator:
			err = u.discard(late, err)
		case err == nil && u.owner != "":
			if err = u.change(late, ""); err != nil && !errors.Is(err, errSetupTaken) {
				err = fmt.Errorf("sandbox: OnCreate of %q has succeeded, but will run again because its tag %s remains: %w", u.sb.Name(), creationMark, err)
			}
		}
	}()
	return u.sb.runHook(held, "OnCreate", onCreate)
}

// keepMark changes the mark until ctx ends. A change that fails is left to the next
// one.
func (u *setup) keepMark(ctx context.Context, lose context.CancelCauseFunc) {
	for n := 1; u.owner != "" && api.Sleep(ctx, markInterval); n++ {
		// A canceled change could take effect after the mark is removed.
		err := u.change(context.WithoutCancel(ctx), fmt.Sprintf("%s-%d", u.owner, n))
		if errors.Is(err, errSetupTaken) {
			lose(err)
			return
		}
	}
}

// discard deletes the sandbox unless another call has taken over, and returns the
// error of the hook.
func (u *setup) discard(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	mark, deleteErr := "", error(nil)
	if u.owner != "" {
		if mark, deleteErr = u.sb.readMark(ctx); deleteErr == nil && !strings.HasPrefix(mark, u.owner) {
			return err
		}
	}
	if deleteErr == nil {
		deleteErr = u.sb.Delete(ctx, nil)
	}
	if deleteErr == nil || errors.Is(deleteErr, errSetupTaken) || errors.Is(deleteErr, ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w; deleting the incomplete sandbox failed: %w", err, deleteErr)
}

// awaitOnCreate returns once the OnCreate of another call has succeeded, or this
// call's after it has taken over.
func (s *Sandbox) awaitOnCreate(ctx context.Context, onCreate Hook) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	sleep := func(d time.Duration) error {
		if !api.Sleep(ctx, d) {
			return &RequestError{operation: "wait for OnCreate", sandbox: s.Name(), Err: api.ContextError(ctx)}
		}
		_, err := s.readMark(ctx)
		return err
	}
	c.api.Log(ctx, slog.LevelInfo, "sandbox: waits for the OnCreate of another call", slog.String("sandbox", s.Name()))
	begun := time.Now()
	seen, since := s.mark(), begun
	for s.mark() != "" {
		if s.mark() != seen {
			seen, since = s.mark(), time.Now()
		}
		if time.Since(since) < abandonedAfter {
			pause := max(pollInterval, min(time.Since(begun)/20, slowestLook))
			if err := sleep(c.api.PollPause(api.GetSandbox, pause)); err != nil {
				return err
			}
			continue
		}
		u := &setup{sb: s, owner: onceMark + rand.Text()}
		c.api.Log(ctx, slog.LevelWarn, "sandbox: takes over an OnCreate that its process has not continued", slog.String("sandbox", s.Name()))
		if err := s.writeMark(ctx, u.owner); err != nil {
			return err
		}
		if err := sleep(takeOverPause); err != nil {
			return err
		}
		if s.mark() == u.owner {
			return u.run(ctx, onCreate)
		}
	}
	return nil
}
