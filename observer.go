package sandbox

import (
	"context"
	"errors"
	"io/fs"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// Observer returns an observer that passes events on to those of the client, and
// to its log, for packages with events of their own, such as package pool. It is
// nil if the client has neither.
func (c *Client) Observer() observe.Observer {
	if c == nil || !c.api.Observed() {
		return nil
	}
	return c.api.Observer()
}

// Observer is that of the sandbox's client; see [Client.Observer].
func (s *Sandbox) Observer() observe.Observer {
	if c, err := s.client(); err == nil {
		return c.Observer()
	}
	return nil
}

// named is a sandbox, or what is of one.
type named interface {
	// names returns its names for observers; either may be empty.
	names() (sandbox, session string)
}

// beginEvent tells that something begins on a sandbox; see [api.Client.Begin].
func (c *Client) beginEvent(ctx context.Context, on named, e observe.Event) (context.Context, api.Span) {
	if c.api.Observed() {
		e.Sandbox, e.Session = on.names()
	}
	return c.api.Begin(ctx, e)
}

// endEvent completes an event with how it has ended, and tells it.
func endEvent(e *api.Span, err error) {
	switch {
	case !e.Observed():
	case err != nil:
		e.Outcome = outcome(e.Context, err)
	case e.ExitCode != 0:
		e.Outcome = observe.Exit
	}
	e.End(err)
}

// tell tells of something that has no duration.
func (c *Client) tell(ctx context.Context, e observe.Event) {
	_, told := c.api.Begin(ctx, e)
	told.End(nil)
}

// outcome returns the word for an error of this package.
func outcome(ctx context.Context, err error) string {
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.judged().String()
	}
	if _, ok := errors.AsType[*api.AuthError](err); ok {
		return api.NoCredentials
	}
	if ctx.Err() != nil {
		return api.Ended(ctx)
	}
	if _, ok := errors.AsType[*RequestError](err); ok {
		return api.Broken.String()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return api.NotFound.String()
	}
	return observe.Failed
}
