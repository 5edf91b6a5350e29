package api

import (
	"context"
	"errors"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/observe"
)

// Span is something that has begun: its event, which is completed before End. The
// zero Span tells nothing, and costs nothing.
type Span struct {
	observe.Event
	// Context is that of all that is part of it.
	Context context.Context
	client  *Client
	req     *Request // whose secrets are not told; nil for none
}

// Begin tells the client's observer that something begins. It returns the context
// of all that is part of it.
func (c *Client) Begin(ctx context.Context, e observe.Event) (context.Context, Span) {
	return c.begin(ctx, e, nil)
}

// begin is Begin for something of a request.
func (c *Client) begin(ctx context.Context, e observe.Event, req *Request) (context.Context, Span) {
	if !c.Observed() || ctx == nil {
		return ctx, Span{Event: e}
	}
	if e.Start.IsZero() {
		e.Start = time.Now()
	}
	c.complete(&e, req)
	if next := c.cfg.Observer.Begin(ctx, e); next != nil {
		ctx = next
	}
	return ctx, Span{e, ctx, c, req}
}

// Observed reports whether anybody is told what the client does.
func (c *Client) Observed() bool { return c != nil && c.cfg.Observer != nil }

// Observed reports whether anybody is told of it.
func (s *Span) Observed() bool { return s.client != nil }

// End tells, once, that it is over, with what the event has by now; an outcome that
// is not set is that of Outcome. The observer is called after the context has
// ended, too.
func (s *Span) End(err error) {
	c := s.client
	if c == nil {
		return
	}
	s.client = nil
	if s.Err = err; s.Outcome == "" {
		s.Outcome = Outcome(s.Context, err)
	}
	s.Duration = time.Since(s.Start)
	c.complete(&s.Event, s.req)
	c.cfg.Observer.End(s.Context, s.Event)
}

// complete is the only place that events leave: what others have written is
// redacted here. Most requests have only the session.
func (c *Client) complete(e *observe.Event, req *Request) {
	secrets := c.cfg.Secrets
	if e.Err != nil || e.CauseErr != nil {
		secrets = c.Known(req)
	}
	if e.Err != nil {
		e.Err = secrets.Error(e.Err)
	}
	if e.CauseErr != nil {
		e.CauseErr = secrets.Error(e.CauseErr)
	}
	e.RequestID = redact.Printable(secrets.Text(e.RequestID))
	e.Host = c.cfg.BaseURL.Host
	if e.Sandbox == "" && e.Session != "" {
		e.Sandbox = c.Owner(e.Session)
	}
}

// Observer returns one that tells the client's, for the events of others.
func (c *Client) Observer() observe.Observer { return outside{c} }

type outside struct{ client *Client }

func (o outside) Begin(ctx context.Context, e observe.Event) context.Context {
	ctx, _ = o.client.Begin(ctx, e)
	return ctx
}

func (o outside) End(ctx context.Context, e observe.Event) {
	s := Span{Event: e, Context: ctx, client: o.client}
	s.End(e.Err)
}

// Ended returns the outcome of what ended because ctx has.
func Ended(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return observe.Deadline
	}
	return observe.Canceled
}
