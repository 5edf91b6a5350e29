package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// StopOptions says what Stop waits for.
type StopOptions struct {
	// NoWait returns as soon as the API has taken the order. The session may
	// still be stopping then, and what is made of the sandbox meanwhile, as by
	// [Client.Fork], has the files that it had before this session.
	NoWait bool
}

// StopResult is the final state of a stopped session.
type StopResult struct {
	Session SessionInfo
	// Snapshot is what was saved, when the answer to the order told; nil when it
	// did not, or nothing was saved. [Info].CurrentSnapshotID names what the
	// next session starts from in either case.
	Snapshot *SnapshotInfo
}

// stopLimit is how long Stop waits for the end of a session.
const stopLimit = 3 * time.Minute

var (
	errStopSlow = fmt.Errorf("the session was told to stop, but is not at its end after %v; its files may not be saved yet", stopLimit)
	errNotSaved = errors.New("the session has ended without saving its files")
)

// Stop stops the current session and every process in it. A persistent
// sandbox's files are kept, and the next call on the sandbox starts it again. A
// session that is stopped already is no error.
//
// The API may answer while the session is still stopping, and before the
// snapshot of a persistent sandbox is the one that forks and new sessions start
// from. Unless told otherwise by opts, Stop waits for both: it looks at the
// sandbox every half second, less often when little is left of the rate limit,
// and gives up after three minutes with an error beside the result. Usually that
// costs two to six requests more; reading costs nothing else. When ctx ends
// first, the session stops all the same.
func (s *Sandbox) Stop(ctx context.Context, opts *StopOptions) (*StopResult, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	cur := s.CurrentSession()
	if cur == nil {
		return nil, fmt.Errorf("sandbox: stop: %w: there is no session", ErrInvalid)
	}
	before := s.metadata()
	answer, err := cur.stop(ctx)
	if err != nil {
		return nil, err
	}
	if answer.Sandbox != nil {
		s.st.mu.Lock()
		s.st.setInfo(*answer.Sandbox)
		s.st.mu.Unlock()
	}
	if opts != nil && opts.NoWait {
		return stopResult(answer), nil
	}
	err = s.awaitStopped(ctx, c, cur, &before, answer)
	return stopResult(answer), err
}

// awaitStopped waits until the session is over and, if its files are kept, the
// snapshot that holds them is the sandbox's current one. It keeps answer up to
// date.
func (s *Sandbox) awaitStopped(ctx context.Context, c *Client, cur *Session, before *wire.Sandbox, answer *wire.StopAnswer) error {
	limited, cancel := context.WithTimeoutCause(ctx, stopLimit, errStopSlow)
	defer cancel()
	failed := func(err error) error {
		return &RequestError{Operation: api.StopSession.Name, SandboxName: s.Name(), SessionID: cur.ID(), Err: err}
	}
	if answer.Sandbox != nil && !leaving(answer.Session.Status) {
		switch info := answer.Sandbox; {
		case !info.Persistent:
			return nil
		case answer.Snapshot != nil && info.CurrentSnapshotID == answer.Snapshot.ID:
			return nil
		}
	}
	first := true
	for {
		// The first look is at once: most sessions have ended by the answer.
		if !first {
			if err := pause(limited, c.api.PollPause(api.GetSandbox, pollInterval)); err != nil {
				return failed(err)
			}
		}
		first = false
		now, _, err := c.getSandbox(limited, s.Name(), s.st.project, new(false), nil)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrSnapshotNotFound):
			return nil // deleted meanwhile, or it has nothing that could be kept
		case err != nil && limited.Err() != nil:
			return failed(context.Cause(limited))
		case err != nil:
			return err
		}
		if now.Session.ID != cur.ID() {
			s.adopt(c, now)
			return nil // the next session has begun, which none does before the end of this
		}
		s.adopt(c, now)
		answer.Session = now.Session
		if answer.Sandbox != nil {
			*answer.Sandbox = now.Sandbox
		}
		switch {
		case leaving(now.Session.Status):
			continue
		case !now.Sandbox.Persistent:
			return nil
		}
		current, err := savedBy(limited, c, cur.ID(), before, answer, &now.Sandbox)
		switch {
		case err != nil && limited.Err() != nil:
			return failed(context.Cause(limited))
		case err != nil:
			return err
		case current:
			return nil
		case Status(now.Session.Status) == StatusFailed || Status(now.Session.Status) == StatusAborted:
			return failed(errNotSaved)
		}
	}
}

// savedBy reports whether the sandbox's current snapshot is what the session
// left. An ID that has changed since the order was given says so; one that has
// not may be that of a session that had stopped before, so the snapshot is
// asked.
func savedBy(ctx context.Context, c *Client, session string, before *wire.Sandbox, answer *wire.StopAnswer, now *wire.Sandbox) (bool, error) {
	id := now.CurrentSnapshotID
	switch {
	case id == "":
		return false, nil
	case answer.Snapshot != nil:
		return id == answer.Snapshot.ID, nil
	case before.CurrentSessionID == session && id != before.CurrentSnapshotID:
		return true, nil
	}
	snapshot, err := c.GetSnapshot(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return snapshot.wire().SourceSessionID == session, nil
}

// leaving reports whether a session is not at its end yet.
func leaving(status string) bool {
	switch Status(status) {
	case StatusStopped, StatusFailed, StatusAborted:
		return false
	}
	return true
}

// Stop stops the session and every process in it. Unless told otherwise by opts
// it waits, like [Sandbox.Stop], until the session has ended, but not for the
// snapshot that is made of it to be the sandbox's current one.
func (s *Session) Stop(ctx context.Context, opts *StopOptions) (*StopResult, error) {
	answer, err := s.stop(ctx)
	if err != nil {
		return nil, err
	}
	if (opts == nil || !opts.NoWait) && leaving(answer.Session.Status) {
		limited, cancel := context.WithTimeoutCause(ctx, stopLimit, errStopSlow)
		defer cancel()
		err = s.poll(limited, StatusPending, StatusRunning, StatusStopping, StatusSnapshotting)
		answer.Session = s.wire()
	}
	return stopResult(answer), err
}

func (s *Session) stop(ctx context.Context) (*wire.StopAnswer, error) {
	var answer wire.StopAnswer
	if err := s.do(ctx, api.StopSession, nil, &answer); err != nil {
		return nil, err
	}
	s.set(answer.Session, nil)
	return &answer, nil
}

func stopResult(answer *wire.StopAnswer) *StopResult {
	r := &StopResult{Session: sessionInfo(&answer.Session)}
	if answer.Snapshot != nil {
		r.Snapshot = new(snapshotInfo(answer.Snapshot))
	}
	return r
}

// Close stops the sandbox so that it costs nothing any more; it is meant to be
// used with defer. A sandbox that is stopped or deleted already is no error.
// Close waits for the API's answer, at most a minute, and not for the snapshot;
// use [Sandbox.Stop] to do so. Each stop of a persistent sandbox leaves a
// snapshot, whose storage is billed; one that is not needed again is better
// deleted, or made with Persistent set to false.
func (s *Sandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := s.Stop(ctx, &StopOptions{NoWait: true})
	if errors.Is(err, ErrStopped) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrDeleted) || errors.Is(err, ErrSnapshotNotFound) {
		return nil
	}
	return err
}

// Delete deletes the sandbox with all its sessions, whatever its state. Its
// snapshots live on unless opts says otherwise. Afterwards every call on the
// handle returns [ErrDeleted].
func (s *Sandbox) Delete(ctx context.Context, opts *DeleteOptions) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	info := s.metadata()
	if _, err := c.deleteSandbox(ctx, info.Name, s.st.project, info.CreatedAt.Time, opts); err != nil {
		return err
	}
	s.st.mu.Lock()
	s.st.deleted = true
	s.st.mu.Unlock()
	return nil
}
