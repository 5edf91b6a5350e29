package api

import (
	"context"
	"errors"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/observe"
)

// Span is an operation in progress, with the event that End reports. The zero Span reports
// nothing.
type Span struct {
	observe.Event
	// Context is the context for everything within the span.
	Context context.Context
	client  *Client
	req     *Request // its secrets are redacted; may be nil
}

// Begin reports the start of an operation to the client's observer. It returns the context
// for everything within the span.
func (c *Client) Begin(ctx context.Context, e observe.Event) (context.Context, Span) {
	return c.begin(ctx, e, nil)
}

// begin is Begin for a part of a request.
func (c *Client) begin(ctx context.Context, e observe.Event, req *Request) (context.Context, Span) {
	if !c.Observed() || ctx == nil {
		return ctx, Span{Event: e}
	}
	if e.Start.IsZero() {
		e.Start = time.Now()
	}
	c.finishEvent(&e, req)
	if next := c.cfg.Observer.Begin(ctx, e); next != nil {
		ctx = next
	}
	return ctx, Span{e, ctx, c, req}
}

// Observed reports whether the client has an observer.
func (c *Client) Observed() bool { return c != nil && c.cfg.Observer != nil }

// Observed reports whether an observer receives the span.
func (s *Span) Observed() bool { return s.client != nil }

// End reports the end of the span with its event. Only the first call has an effect. An
// empty outcome is set from err. The observer is called even if the context has ended.
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
	c.finishEvent(&s.Event, s.req)
	c.cfg.Observer.End(s.Context, s.Event)
}

// finishEvent redacts the event and adds the host and the sandbox. Every event passes through
// it.
func (c *Client) finishEvent(e *observe.Event, req *Request) {
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

// Observer returns an observer that forwards the events of other packages to the client's.
func (c *Client) Observer() observe.Observer { return clientObserver{c} }

type clientObserver struct{ client *Client }

func (o clientObserver) Begin(ctx context.Context, e observe.Event) context.Context {
	ctx, _ = o.client.Begin(ctx, e)
	return ctx
}

func (o clientObserver) End(ctx context.Context, e observe.Event) {
	s := Span{Event: e, Context: ctx, client: o.client}
	s.End(e.Err)
}

// Ended returns the outcome of an operation that ended because of ctx.
func Ended(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return observe.Deadline
	}
	return observe.Canceled
}
