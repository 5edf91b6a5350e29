package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// StopOptions are the options of [Sandbox.Stop].
type StopOptions struct {
	// NoWait returns as soon as the API has accepted the request. The session
	// may still be stopping then, and a fork of the sandbox has the files as
	// they were before this session.
	NoWait bool
}

// StopResult is the final state of a stopped session.
type StopResult struct {
	Session SessionInfo
	// Snapshot is the snapshot that was taken; nil if none was. With NoWait, and
	// from [Session.Stop], it is nil as well if the platform responded before the
	// snapshot was complete. [Info].CurrentSnapshotID is the snapshot that the next
	// session starts from.
	Snapshot *SnapshotInfo
}

// stopLimit is how long Stop waits for a session to end.
const stopLimit = 3 * time.Minute

var (
	errStopSlow = fmt.Errorf("the session has not stopped after %v; its files may not be saved yet", stopLimit)
	errNotSaved = errors.New("the session has ended without saving its files")
)

// Stop stops the current session and every process in it. The files of a
// persistent sandbox are saved, and the next call on the sandbox starts it
// again. If the session is already stopped, Stop looks whether another client has
// started the next one, stops that one too, and returns the last state.
//
// The API may respond while the session is still stopping, and before the
// snapshot of a persistent sandbox is the one that forks and new sessions start
// from. By default Stop waits for both: it polls every half second, less often
// if the rate limit is nearly used up, and looks the snapshot up, which usually
// takes three to seven requests. After three minutes it returns an error along with
// the result. If ctx ends first, the session stops nevertheless.
func (s *Sandbox) Stop(ctx context.Context, opts *StopOptions) (*StopResult, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginEvent(ctx, s, observe.Event{Kind: observe.Stop})
	res, err := s.stop(ctx, c, opts)
	res.finishEvent(&e, err)
	return res, err
}

// finishEvent adds the result to the event of the stop, and ends it.
func (r *StopResult) finishEvent(e *api.Span, err error) {
	if r != nil {
		e.Lived, e.CPU = r.Session.Duration, r.Session.ActiveCPU
		if r.Snapshot != nil {
			e.Snapshot = r.Snapshot.ID
		}
	}
	endEvent(e, err)
}

func (s *Sandbox) stop(ctx context.Context, c *Client, opts *StopOptions) (*StopResult, error) {
	cur := s.CurrentSession()
	if cur == nil {
		return nil, fmt.Errorf("sandbox: stop: %w: there is no session", ErrInvalid)
	}
	before := s.metadata()
	resp, alreadyEnded, err := s.stopSession(ctx, cur)
	if err != nil {
		return nil, err
	}
	if resp.Sandbox == nil && alreadyEnded || resp.Sandbox != nil && resp.Sandbox.CurrentSessionID != "" && resp.Sandbox.CurrentSessionID != cur.ID() {
		// Another client may have started the sandbox again since.
		if err := s.Refresh(ctx); err != nil {
			return nil, err
		}
		if now := s.CurrentSession(); now.ID() != cur.ID() && isLive(now.Info().Status) {
			cur, before = now, s.metadata()
			if resp, alreadyEnded, err = s.stopSession(ctx, cur); err != nil {
				return nil, err
			}
		}
	}
	if opts != nil && opts.NoWait {
		return stopResult(resp), nil
	}
	err = (&stopWait{s, c, cur, alreadyEnded, before, resp}).wait(ctx)
	return stopResult(resp), err
}

// stopSession stops a session of the sandbox. alreadyEnded reports that the session had
// ended before, so that it saves no more files.
func (s *Sandbox) stopSession(ctx context.Context, cur *Session) (resp *wire.StopResponse, alreadyEnded bool, err error) {
	alreadyEnded = !isLive(cur.Info().Status)
	if resp, err = cur.stop(ctx); err != nil {
		return nil, false, err
	}
	alreadyEnded = alreadyEnded || !resp.Session.StoppedAt.IsZero() && resp.Session.RequestedStopAt.After(resp.Session.StoppedAt.Time)
	if resp.Sandbox == nil {
		return resp, alreadyEnded, nil
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	return resp, alreadyEnded, s.st.setInfo(*resp.Sandbox)
}

// stopWait waits until a session has ended and, if its files are saved, the
// snapshot with them is the sandbox's current one.
type stopWait struct {
	s       *Sandbox
	c       *Client
	session *Session
	// alreadyEnded is set if the session had ended before the stop was sent. before is the
	// sandbox's description from before the stop.
	alreadyEnded bool
	before       wire.Sandbox
	// resp is the response of the stop, updated by each check.
	resp *wire.StopResponse
}

func (w *stopWait) wait(ctx context.Context) error {
	if info := w.resp.Sandbox; info != nil && !isLive(Status(w.resp.Session.Status)) {
		if !info.Persistent || w.resp.Snapshot != nil && info.CurrentSnapshotID == w.resp.Snapshot.ID {
			return nil
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, stopLimit, errStopSlow)
	defer cancel()
	for {
		// Check at once: most sessions have ended when the API responds.
		if done, err := w.check(limited); done || err != nil {
			return err
		}
		if err := api.Pause(limited, w.c.api.PollPause(api.GetSandbox, pollInterval)); err != nil {
			return w.failed(err)
		}
	}
}

// check requests the state of the sandbox once.
func (w *stopWait) check(ctx context.Context) (done bool, err error) {
	now, err := w.c.getSandbox(ctx, w.s.Name(), w.s.st.project, false, nil)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrSnapshotNotFound):
		return true, nil // the sandbox was deleted, or its files are gone
	case err != nil && ctx.Err() != nil:
		return false, w.failed(context.Cause(ctx))
	case err != nil:
		return false, err
	}
	if next, err := w.s.adopt(w.c, now); err != nil || next.ID() != w.session.ID() {
		return true, err // the next session has begun, so this one has ended
	}
	w.resp.Session = now.Session
	if w.resp.Sandbox != nil {
		*w.resp.Sandbox = now.Sandbox
	}
	switch {
	case isLive(Status(now.Session.Status)):
		return false, nil
	case !now.Sandbox.Persistent:
		return true, nil
	}
	current, err := w.isSaved(ctx, &now.Sandbox)
	switch {
	case w.alreadyEnded && errors.Is(err, ErrNotFound):
		return true, nil // the snapshot was deleted since
	case err != nil && ctx.Err() != nil:
		return false, w.failed(context.Cause(ctx))
	case err != nil && !errors.Is(err, ErrNotFound):
		return false, err
	case current:
		return true, nil
	case Status(now.Session.Status) == StatusFailed || Status(now.Session.Status) == StatusAborted:
		return false, w.failed(errNotSaved)
	}
	// If the session ended long ago, no newer snapshot will follow: the current one is
	// final.
	ended := now.Session.StoppedAt
	return !ended.IsZero() && w.c.Age(ended.Time) > stopLimit, nil
}

func (w *stopWait) failed(err error) error {
	return &RequestError{operation: api.StopSession.Name, sandbox: w.s.Name(), session: w.session.ID(), Err: err}
}

// isSaved reports whether the sandbox's current snapshot is the session's, and adds that
// snapshot to the response. If the current snapshot has changed since the stop was
// requested, it is the session's. Otherwise it may be an earlier session's. The error
// matches ErrNotFound if that snapshot no longer exists.
func (w *stopWait) isSaved(ctx context.Context, now *wire.Sandbox) (bool, error) {
	id := now.CurrentSnapshotID
	switch {
	case id == "":
		return false, nil
	case w.resp.Snapshot != nil:
		return id == w.resp.Snapshot.ID, nil
	}
	changed := w.before.CurrentSessionID == w.session.ID() && id != w.before.CurrentSnapshotID
	snapshot, err := w.c.GetSnapshot(ctx, id)
	switch {
	case changed && errors.Is(err, ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	}
	taken := snapshot.wire()
	if !changed && taken.SourceSessionID != w.session.ID() {
		return false, nil
	}
	w.resp.Snapshot = &taken
	return true, nil
}

// isLive reports whether a session has not ended yet.
func isLive(status Status) bool {
	switch status {
	case StatusStopped, StatusFailed, StatusAborted:
		return false
	}
	return true
}

// Stop stops the session and every process in it. By default it waits, like
// [Sandbox.Stop], until the session has ended, but not until its snapshot is
// the sandbox's current one.
func (s *Session) Stop(ctx context.Context, opts *StopOptions) (*StopResult, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginEvent(ctx, s, observe.Event{Kind: observe.Stop})
	res, err := s.stopAndWait(ctx, opts)
	res.finishEvent(&e, err)
	return res, err
}

func (s *Session) stopAndWait(ctx context.Context, opts *StopOptions) (*StopResult, error) {
	resp, err := s.stop(ctx)
	if err != nil {
		return nil, err
	}
	if (opts == nil || !opts.NoWait) && isLive(Status(resp.Session.Status)) {
		limited, cancel := context.WithTimeoutCause(ctx, stopLimit, errStopSlow)
		defer cancel()
		err = s.pollWhile(limited, StatusPending, StatusRunning, StatusStopping, StatusSnapshotting)
		resp.Session = s.wire()
	}
	return stopResult(resp), err
}

func (s *Session) stop(ctx context.Context) (*wire.StopResponse, error) {
	var resp wire.StopResponse
	if err := s.do(ctx, api.StopSession, nil, &resp); err != nil {
		return nil, err
	}
	s.set(resp.Session, nil)
	return &resp, nil
}

func stopResult(resp *wire.StopResponse) *StopResult {
	r := &StopResult{Session: sessionInfo(&resp.Session)}
	if resp.Snapshot != nil {
		r.Snapshot = new(snapshotInfo(resp.Snapshot))
	}
	return r
}

// Close stops the sandbox for all of its users, so that it is no longer billed. Use it
// with defer. If the sandbox is already stopped or deleted, Close returns nil. It waits
// for at most a minute for the API's response, but not for the snapshot; [Sandbox.Stop]
// does. Each stop of a persistent sandbox leaves a snapshot, and its storage is billed:
// delete a sandbox that is not needed again, or create it with Ephemeral set.
func (s *Sandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := s.Stop(ctx, &StopOptions{NoWait: true})
	if errors.Is(err, ErrStopped) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrDeleted) || errors.Is(err, ErrSnapshotNotFound) {
		return nil
	}
	return err
}

// Delete deletes the sandbox and all its sessions, whatever its state. Its
// snapshots remain unless opts says otherwise. Afterwards every call on the
// handle returns [ErrDeleted].
//
// It makes two requests: the API deletes by name, so the first one checks that
// the name still belongs to the handle's sandbox. If another one has it by now,
// nothing is deleted and the error matches ErrDeleted; if none has, ErrNotFound. If another
// sandbox takes the name between the two requests, that one is deleted, and the error
// matches [ErrReplaced].
func (s *Sandbox) Delete(ctx context.Context, opts *DeleteOptions) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	if err := s.checkIdentity(ctx, c); err != nil {
		return err
	}
	info := s.metadata()
	deleted, err := c.deleteSandbox(ctx, info.Name, s.st.project, info.CreatedAt.Time, opts)
	if err != nil {
		return err
	}
	s.st.mu.Lock()
	s.st.deleted = true
	s.st.mu.Unlock()
	if isOtherSandbox(deleted, info.CreatedAt.Time) {
		return fmt.Errorf("sandbox: %q: %w: another client had just created it", info.Name, ErrReplaced)
	}
	return nil
}

// isOtherSandbox reports whether the deleted sandbox is certainly not the one that was
// created at the given time.
func isOtherSandbox(deleted *wire.Sandbox, created time.Time) bool {
	return deleted != nil && !deleted.CreatedAt.IsZero() && !created.IsZero() && !deleted.CreatedAt.Equal(created)
}

// DeleteOptions are the options of [Client.Delete] and [Sandbox.Delete].
type DeleteOptions struct {
	// DeleteOrphanSnapshots also deletes the sandbox's snapshots that no other
	// sandbox uses. The platform does so after it has responded: they may be
	// listed for a while.
	DeleteOrphanSnapshots bool
}

// Delete deletes the sandbox with the given name and all its sessions, whatever
// its state. Its snapshots remain unless opts says otherwise. If there is no
// such sandbox, the error matches [ErrNotFound].
//
// If the response is lost, the name is looked up, and the request is retried
// only if the same sandbox is still there.
func (c *Client) Delete(ctx context.Context, name string, opts *DeleteOptions) error {
	if _, err := enter(ctx, c); err != nil {
		return err
	}
	if err := checkName("name", name); err != nil {
		return err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return err
	}
	_, err = c.deleteSandbox(ctx, name, project, time.Time{}, opts)
	return err
}

const (
	// deleteAttempts is how often a delete is sent if its responses are lost.
	deleteAttempts = 3
	// clockSlack is the tolerance for the server's clock, which is reported in
	// whole seconds.
	clockSlack = 2 * time.Second
)

// deleteSandbox deletes the sandbox with the given name and returns its last
// state, nil if the response was lost. The sandbox to delete was created at the
// given time or, if that is zero, before the call.
func (c *Client) deleteSandbox(ctx context.Context, name, project string, created time.Time, opts *DeleteOptions) (*wire.Sandbox, error) {
	query := projectQuery(project)
	if opts != nil && opts.DeleteOrphanSnapshots {
		query.Set("deleteOrphanSnapshots", "true")
	}
	begin := time.Now()
	var lost error // of the previous attempt, whose response was lost
	for attempt := 1; ; attempt++ {
		var resp wire.UpdateResponse
		err := c.do(ctx, &api.Request{Op: api.DeleteSandbox, Path: []string{name}, Query: query}, &resp)
		switch {
		case err == nil:
			return &resp.Sandbox, nil
		case lost != nil && c.isGone(err):
			return nil, nil // an earlier attempt arrived late
		case lost != nil && errors.Is(err, ErrNotFound):
			return nil, lost
		case !errors.Is(err, ErrOutcomeUnknown) || ctx.Err() != nil || attempt == deleteAttempts:
			return nil, err
		}
		lost = err
		there, lookErr := c.getSandbox(ctx, name, project, false, nil)
		switch {
		case c.isGone(lookErr):
			return nil, nil
		case lookErr != nil:
			return nil, err
		}
		made := there.Sandbox.CreatedAt.Time
		switch {
		case !created.IsZero():
			if !made.Equal(created) {
				return nil, nil // another sandbox has the name now
			}
		case c.Age(made) < time.Since(begin)+clockSlack:
			return nil, err // it may be the same sandbox, or a new one
		}
		if !api.Sleep(ctx, time.Duration(attempt)*pollInterval) {
			return nil, err
		}
	}
}

// isGone reports whether the API itself says that the name does not exist, as after a
// delete whose response was lost. All responses of the API report a rate limit. A refusal
// without one comes from a proxy or gateway, unless that drops the header from all
// responses.
func (c *Client) isGone(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.Is(ErrNotFound) && (e.limited || !c.api.Vouches())
}
