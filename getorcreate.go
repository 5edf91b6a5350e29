package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// creationLimit is how long another caller's creation is waited for, as of a
	// large source. The pauses grow to slowestLook.
	creationLimit = 10 * time.Minute
	slowestLook   = 5 * time.Second
	// adoptRounds is how often a sandbox that exists but can't be found for another
	// reason is looked up again.
	adoptRounds = 20
	// createRounds is how often a sandbox is created whose creation has received
	// no response, and that can't be found. The name is given once, and the mark
	// tells ours, so that a second creation does no harm.
	createRounds = 3
)

// GetOrCreate returns the sandbox with the given name, and creates it if there
// is none or if its files are gone. An empty name always creates one. It makes
// one request for an existing sandbox and two for a new one, and starts a
// machine unless NoResume is set.
//
// The options describe a new sandbox; an existing one is returned as it is. See
// [Sandbox.Info] for what it has, and [Sandbox.Update].
//
// The call that creates the sandbox runs OnCreate. Other calls with an OnCreate,
// in all processes, return once it has succeeded; see [Hook]. If it fails, the
// sandbox is deleted and the error returned. A tag of the sandbox makes the other
// calls wait, so there is room for four of your own.
//
// The error matches [ErrReplaced] if another client had just replaced a sandbox
// without files, and GetOrCreate deleted its new sandbox, by name.
func (c *Client) GetOrCreate(ctx context.Context, name string, opts *CreateOptions) (*Sandbox, error) {
	var o CreateOptions
	if opts != nil {
		o = *opts
	}
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if o.Name != "" && o.Name != name {
		return nil, invalid("Name", "is %q; GetOrCreate takes the name as an argument, which is %q", o.Name, name)
	}
	o.Name = name
	o = c.withHooks(o)
	if _, err := o.body(); err != nil {
		return nil, err
	}
	if name == "" {
		return c.Create(ctx, &o)
	}
	if _, taken := o.Tags[creationMark]; o.OnCreate != nil && (taken || len(o.Tags) >= wire.MaxTags) {
		return nil, invalid("Tags", "leave no room for the tag %s, which makes other calls wait for OnCreate: a sandbox has at most %d tags", creationMark, wire.MaxTags)
	}
	owner := "" // of the mark
	if o.OnCreate != nil {
		owner = onceMark + rand.Text()
	}
	var why error // why there was another round
	lost, waited := 0, time.Duration(0)
	for round := 0; ; round++ {
		sb, unseen, err := c.getOrCreate(ctx, name, &o, owner)
		if unseen && errors.Is(err, ErrOutcomeUnknown) {
			lost++
		}
		over := round >= adoptRounds
		if unseen && nameTaken(err) {
			if over = waited >= creationLimit; over {
				err = fmt.Errorf("sandbox: %q: somebody else has been creating it for %v: %w", name, creationLimit, err)
			}
		}
		if !unseen || over || lost == createRounds {
			// A ctx that ends during a request hides the reason no more than one
			// that ends between two.
			if ended, ok := err.(*RequestError); ok && why != nil && ctx.Err() != nil {
				ended.Err = also(ended.Err, why)
			}
			return sb, err
		}
		why = err
		pause := c.api.PollPause(api.GetSandbox, max(pollInterval, min(waited/20, slowestLook)))
		waited += pause
		if !api.Sleep(ctx, pause) {
			return nil, &RequestError{operation: api.GetSandbox.Name, sandbox: name, Err: also(api.ContextError(ctx), why)}
		}
	}
}

// getOrCreate makes one attempt. unseen means that there may be a sandbox of that
// name which can't be found, as while another client is creating it, or because
// nothing is known of our own creation, and comes with an error.
func (c *Client) getOrCreate(ctx context.Context, name string, o *CreateOptions, owner string) (sb *Sandbox, unseen bool, err error) {
	get := &GetOptions{NoResume: o.NoResume, OnResume: o.OnResume, Extra: private(o.Extra)}
	// Only an error of the request counts: one of a hook says nothing about
	// this sandbox.
	sb, err = c.lookUp(ctx, name, get)
	switch {
	case err == nil:
		return sb.complete(ctx, o, owner, sb.mark())
	case errors.Is(err, ErrNotFound):
	case errors.Is(err, ErrSnapshotNotFound):
		again, roomErr := c.makeRoom(ctx, name)
		if roomErr != nil {
			return nil, false, roomErr
		}
		if again {
			return nil, true, err
		}
	default:
		return nil, false, err
	}
	create := *o
	create.Tags = withMark(o.Tags, owner)
	sb, err = c.create(ctx, &create)
	switch {
	case err == nil:
		return sb.complete(ctx, o, owner, owner) // whether the response has the tags or not
	case nameTaken(err), errors.Is(err, ErrOutcomeUnknown):
		there, getErr := c.lookUp(ctx, name, get)
		switch {
		case getErr == nil:
			sb = there
		case nameTaken(err) && neverStarted(getErr):
			return nil, false, fmt.Errorf("%w; the sandbox never started, and keeps its name until it is deleted, by Client.Delete: %w", err, getErr)
		case errors.Is(getErr, ErrNotFound):
			return nil, true, err // it may still be created
		default:
			return nil, false, fmt.Errorf("%w; looking it up: %w", err, getErr)
		}
	default:
		return nil, false, err
	}
	return sb.complete(ctx, o, owner, sb.mark())
}

// complete returns a sandbox with the given mark once OnCreate has succeeded and a
// due OnResume has run. again means that it must be looked up again.
func (s *Sandbox) complete(ctx context.Context, o *CreateOptions, owner, mark string) (_ *Sandbox, again bool, err error) {
	switch {
	case o.OnCreate == nil || mark == "" || s.hookOf(ctx) != nil:
		if !o.NoResume {
			err = s.runResumeHook(ctx)
		}
	case mark == owner: // this call created it, even if the response was lost
		err = (&setup{sb: s, owner: owner, creator: true}).run(ctx, o.OnCreate)
	default:
		if err = s.awaitOnCreate(ctx, o.OnCreate); err == nil && !o.NoResume {
			// Its session may have ended while this call waited.
			_, err = s.resume(ctx, s.CurrentSession(), causeGet, nil)
		}
	}
	if err != nil {
		return nil, errors.Is(err, errSetupTaken), err
	}
	return s, false, nil
}

// makeRoom deletes a sandbox whose files are gone. again means that it has
// already been replaced.
func (c *Client) makeRoom(ctx context.Context, name string) (again bool, err error) {
	project, err := c.projectID(ctx)
	if err != nil {
		return false, err
	}
	// Look once more just before: the API can delete only by name.
	there, err := c.getSandbox(ctx, name, project, false, nil)
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
	case isAnother(deleted, there.Sandbox.CreatedAt.Time):
		return false, fmt.Errorf("sandbox: %q: %w: somebody else had just made it in place of the one whose files were gone", name, ErrReplaced)
	}
	return false, nil
}

// neverStarted reports whether a lookup has found a sandbox that never had a
// session.
func neverStarted(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.judged() == api.NotFound && api.NeverStarted(e.Message)
}

// nameTaken reports whether a create was refused because of the name.
func nameTaken(err error) bool {
	e, ok := err.(*APIError)
	return ok && !e.unknown && e.judged() == api.NameTaken
}
