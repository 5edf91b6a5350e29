package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Delete deletes the sandbox and all its sessions, whatever its state. Its
// snapshots remain unless opts says otherwise. Afterwards every call on the
// handle returns [ErrDeleted].
//
// It makes two requests: the API deletes by name, so the first one checks that
// the name still belongs to the handle's sandbox. If another one has it by now,
// nothing is deleted and the error matches ErrDeleted; if none has, ErrNotFound.
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
	if isAnother(deleted, info.CreatedAt.Time) {
		return fmt.Errorf("sandbox: %q: %w: somebody else had just made it in place of this one", info.Name, ErrReplaced)
	}
	return nil
}

// isAnother reports whether a sandbox that was deleted, if it is known, is not
// the one that was created at the given time.
func isAnother(deleted *wire.Sandbox, created time.Time) bool {
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
	var lost error // of the attempt before
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
			return nil, err // unknown
		}
		if !api.Sleep(ctx, time.Duration(attempt)*pollInterval) {
			return nil, err
		}
	}
}

// isGone reports whether err is the API's own word that there is nothing of a name,
// which a delete whose response was lost may have done. Its refusals report a rate
// limit as all of its responses do, unless something in between drops that; what
// has the form of one and does not report it is somebody else's.
func (c *Client) isGone(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.Is(ErrNotFound) && (e.limited || !c.api.Vouches())
}
