package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// adoptRounds is how often a sandbox that exists but can't be found is looked
	// for again.
	adoptRounds = 20
	// creationMark is the tag by which a create whose answer was lost knows its
	// own sandbox again. Handles do not show it.
	creationMark = "go-sandbox-creation"
	// takeAwayTime is how long the deletion of a half-made sandbox may take.
	takeAwayTime = 10 * time.Second
)

// GetOrCreate returns the sandbox of that name, and makes it when there is none
// or when its files are gone. An empty name always makes a new one. Of several
// callers at once, one creates and the others get what it made.
//
// OnCreate runs once, for the caller that created the sandbox; the others may
// get it before that is over. When the hook fails, the sandbox is deleted again,
// so that the next call begins anew, and the error is returned.
//
// A sandbox whose files are gone is deleted to make room for its successor. The
// API deletes by name alone: should somebody else have replaced it just before,
// the answer tells, and the error is a [ReplacedError].
func (c *Client) GetOrCreate(ctx context.Context, name string, opts *CreateOptions) (*Sandbox, error) {
	var o CreateOptions
	if opts != nil {
		o = *opts
	}
	if o.Name != "" && o.Name != name {
		return nil, invalid("Name", "is %q; GetOrCreate takes the name as an argument, which is %q", o.Name, name)
	}
	o.Name = name
	if _, err := o.body(); err != nil {
		return nil, err
	}
	if name == "" {
		return c.Create(ctx, &o)
	}
	for round := 0; ; round++ {
		sb, unseen, err := c.getOrCreate(ctx, name, &o)
		if !unseen || round == adoptRounds || !api.Sleep(ctx, c.api.PollPause(api.GetSandbox, pollInterval)) {
			return sb, err
		}
	}
}

// ReplacedError reports that [Client.GetOrCreate] deleted a sandbox to replace
// it, and that the one that was deleted was not the one whose files were gone:
// somebody else had replaced it in the moment between.
type ReplacedError struct{ SandboxName string }

// Error names the sandbox.
func (e *ReplacedError) Error() string {
	return fmt.Sprintf("sandbox: the sandbox %q that somebody else had just made was deleted in place of the one whose files were gone", e.SandboxName)
}

// getOrCreate tries once. unseen means that the name is taken by a sandbox that
// can't be found, as while somebody else's create is under way.
func (c *Client) getOrCreate(ctx context.Context, name string, o *CreateOptions) (sb *Sandbox, unseen bool, err error) {
	get := &GetOptions{Resume: o.Resume, OnResume: o.OnResume, Private: o.Private}
	// What is looked at is the error of the request: one of a hook says nothing
	// of this sandbox.
	sb, resumed, err := c.lookUp(ctx, name, get)
	switch {
	case err == nil:
		sb, err = sb.resumedFor(ctx, resumed)
		return sb, false, err
	case errors.Is(err, ErrNotFound):
	case errors.Is(err, ErrSnapshotNotFound):
		if again, err := c.makeRoom(ctx, name); again || err != nil {
			return nil, again, err
		}
	default:
		return nil, false, err
	}
	mark := ""
	create := *o
	if _, taken := o.Tags[creationMark]; o.OnCreate != nil && len(o.Tags) < maxTags && !taken {
		mark = rand.Text()
		create.Tags = maps.Clone(o.Tags)
		if create.Tags == nil {
			create.Tags = map[string]string{}
		}
		create.Tags[creationMark] = mark
	}
	sb, err = c.create(ctx, &create)
	switch {
	case err == nil:
	case nameTaken(err), errors.Is(err, ErrOutcomeUnknown):
		sb, resumed, getErr := c.lookUp(ctx, name, get)
		switch {
		case getErr == nil:
		case errors.Is(getErr, ErrNotFound) && nameTaken(err):
			return nil, true, err
		case errors.Is(getErr, ErrNotFound):
			return nil, false, err // it may still be made
		default:
			return nil, false, fmt.Errorf("%w; looking it up: %w", err, getErr)
		}
		if !nameTaken(err) && sb.bears(mark) {
			sb, err := sb.setUp(ctx, o.OnCreate)
			return sb, false, err
		}
		// Whoever was quicker sets it up.
		sb, err = sb.resumedFor(ctx, resumed)
		return sb, false, err
	default:
		return nil, false, err
	}
	sb, err = sb.setUp(ctx, o.OnCreate)
	return sb, false, err
}

// bears reports whether the sandbox was made by the create with this mark. A
// create that could not be marked takes what stands there for its own.
func (s *Sandbox) bears(mark string) bool {
	return mark == "" || s.metadata().Tags[creationMark] == mark
}

// makeRoom deletes a sandbox whose files are gone. again means that it has been
// replaced already.
func (c *Client) makeRoom(ctx context.Context, name string) (again bool, err error) {
	project, err := c.projectID(ctx)
	if err != nil {
		return false, err
	}
	// Just before, it is looked at once more: there is no deleting by anything
	// but the name.
	there, _, err := c.getSandbox(ctx, name, project, new(false), nil)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case Status(there.Session.Status) == StatusRunning, Status(there.Session.Status) == StatusPending:
		return true, nil
	}
	deleted, err := c.deleteSandbox(ctx, name, project, there.Sandbox.CreatedAt.Time, nil)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case deleted != nil && !deleted.CreatedAt.IsZero() && !there.Sandbox.CreatedAt.IsZero() && !deleted.CreatedAt.Equal(there.Sandbox.CreatedAt.Time):
		return false, &ReplacedError{SandboxName: name}
	}
	return false, nil
}

// setUp runs the hook of a sandbox that was just made.
func (s *Sandbox) setUp(ctx context.Context, onCreate Hook) (*Sandbox, error) {
	if onCreate == nil {
		return s, nil
	}
	err := s.runHook(ctx, onCreate, "OnCreate")
	if err == nil {
		return s, nil
	}
	// A half-made sandbox would be taken for a whole one by every later call.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeAwayTime)
	defer cancel()
	if deleteErr := s.Delete(late, nil); deleteErr != nil && !errors.Is(deleteErr, ErrNotFound) {
		err = fmt.Errorf("%w; it is left half-made, since deleting it failed: %w", err, deleteErr)
	}
	return nil, err
}

// nameTaken reports whether create was refused because of the name.
func nameTaken(err error) bool {
	e, ok := err.(*APIError)
	if !ok || e.unknown {
		return false
	}
	switch e.Status {
	case http.StatusConflict:
		// Drives and images have conflicts of their own.
		return e.Code != CodeImageNotReady && !strings.Contains(strings.ToLower(e.Message), "drive")
	case http.StatusBadRequest:
		text := strings.ToLower(e.Message)
		return strings.Contains(text, "already exists") || strings.Contains(text, "taken") || strings.Contains(text, "already in use")
	}
	return false
}

// DeleteOptions says what is deleted with a sandbox.
type DeleteOptions struct {
	// DeleteOrphanSnapshots also deletes the sandbox's snapshots that no other
	// sandbox uses. The platform does so after it has answered: they may be
	// listed for a while.
	DeleteOrphanSnapshots bool
}

// Delete deletes a sandbox by its name with all its sessions, whatever its
// state. Its snapshots live on unless opts says otherwise. A missing one matches
// [ErrNotFound].
//
// When the answer is lost the name is looked up: the sandbox is deleted again
// only if it is the one that was there before.
func (c *Client) Delete(ctx context.Context, name string, opts *DeleteOptions) error {
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
	// deleteAttempts is how often a delete is sent whose answers are lost.
	deleteAttempts = 3
	// clockSlack is by how much the server's clock, told in whole seconds, may
	// differ from what follows from it.
	clockSlack = 2 * time.Second
)

// deleteSandbox deletes the sandbox of that name, and returns what the answer
// says of it, nil if that was lost. The sandbox that is meant was created at a
// known time, or, if that is zero, before the call.
func (c *Client) deleteSandbox(ctx context.Context, name, project string, created time.Time, opts *DeleteOptions) (*wire.Sandbox, error) {
	query := projectQuery(project)
	if opts != nil && opts.DeleteOrphanSnapshots {
		query.Set("deleteOrphanSnapshots", "true")
	}
	begin := time.Now()
	for attempt := 1; ; attempt++ {
		var answer wire.UpdateAnswer
		err := c.do(ctx, &api.Request{Op: api.DeleteSandbox, Path: []string{name}, Query: query}, &answer)
		if err == nil {
			return &answer.Sandbox, nil
		}
		if !errors.Is(err, ErrOutcomeUnknown) || ctx.Err() != nil || attempt == deleteAttempts {
			return nil, err
		}
		there, req, lookErr := c.getSandbox(ctx, name, project, new(false), nil)
		switch {
		case errors.Is(lookErr, ErrNotFound):
			return nil, nil
		case lookErr != nil:
			return nil, err
		}
		made := there.Sandbox.CreatedAt.Time
		switch {
		case !created.IsZero():
			if !made.Equal(created) {
				return nil, nil // what bears the name now is another one
			}
		case made.After(serverTime(req).Add(-time.Since(begin) - clockSlack)):
			return nil, err // nobody can tell
		}
		if !api.Sleep(ctx, time.Duration(attempt)*pollInterval) {
			return nil, err
		}
	}
}

// serverTime is the server's present, as its answer told it.
func serverTime(req *api.Request) time.Time {
	if req == nil || req.Date.IsZero() {
		return time.Now()
	}
	return req.Date
}
