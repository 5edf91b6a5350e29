package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/observe"
)

// NoCredentials is the outcome of an operation that has no credentials.
const NoCredentials = "no_credentials"

// observation holds the events of an operation and its last request.
type observation struct {
	// op is the event of the operation. It contains the bytes sent and received before the
	// last request, the cause of the last request, and the rate limit of its response.
	op             Span
	lastRequest    Span         // the event of the last request
	sent, received atomic.Int64 // by the last request
}

// startEvent reports the start of the operation or a part of it, and returns the context
// for everything within it.
func (a *attempts) startEvent(ctx context.Context, e observe.Event) (context.Context, Span) {
	if !a.client.Observed() {
		return ctx, Span{}
	}
	op := a.req.Op
	e.Operation, e.Method, e.Path, e.CauseErr = op.Name, op.Method, op.Path, a.op.CauseErr
	for i, v := range a.req.Path {
		switch op.Placeholders[i] {
		case "sandbox":
			e.Sandbox = v
		case "session":
			e.Session = v
		case "command":
			e.Command = v
		case "drive":
			e.Drive = v
		case "snapshot":
			e.Snapshot = v
		}
	}
	switch {
	case a.req.New != "" && op.Drive():
		e.Drive = a.req.New
	case a.req.New != "":
		e.Sandbox = a.req.New
	}
	return a.client.begin(ctx, e, a.req)
}

// namedResponse is a response that names a sandbox or a session.
type namedResponse interface {
	Names() (sandbox, session string)
}

// fillEvent adds the names in a successful response to an event: the name of a sandbox
// that the caller did not name, and the ID of a session.
func (a *attempts) fillEvent(s *Span, succeeded bool) {
	if out, ok := a.out.(namedResponse); ok && succeeded {
		sandbox, session := out.Names()
		s.Sandbox, s.Session = cmp.Or(sandbox, s.Sandbox), cmp.Or(session, s.Session)
	}
}

// finish reports the end of the operation.
func (a *attempts) finish(err error) {
	s := &a.op
	if !s.Observed() {
		return
	}
	a.fillEvent(s, err == nil)
	s.Attempt, s.Status, s.Latency, s.RequestID = a.count, a.lastRequest.Status, a.lastRequest.Latency, a.lastRequest.RequestID
	s.Sent, s.Received = s.Sent+a.sent.Load(), s.Received+a.received.Load()
	s.End(err)
}

// startRequest reports the start of a request, and returns it with the observer's context.
func (a *attempts) startRequest(req *http.Request) *http.Request {
	op := &a.op
	op.Sent, op.Received = op.Sent+a.sent.Swap(0), op.Received+a.received.Swap(0)
	a.sent.Store(max(req.ContentLength, 0))
	op.RateLimit, op.RateRemaining = 0, 0
	var ctx context.Context
	if ctx, a.lastRequest = a.startEvent(req.Context(), observe.Event{Kind: observe.Request, Attempt: a.count + 1, Cause: op.Cause}); same(ctx, req.Context()) {
		return req
	}
	return req.WithContext(ctx)
}

// same reports whether two contexts are identical. It does not panic for types that are not
// comparable.
func same(a, b context.Context) bool { return reflect.TypeOf(a).Comparable() && a == b }

// recordResponse adds a response to the events.
func (a *attempts) recordResponse(resp *http.Response) {
	s := &a.lastRequest
	if s.Status = resp.StatusCode; !s.Observed() {
		return
	}
	s.Latency, s.RequestID = time.Since(s.Start), resp.Header.Get("X-Vercel-Id")
	r, _ := ReadRateLimit(resp.Header)
	a.op.RateLimit, a.op.RateRemaining = r.Limit, r.Remaining
}

// isStream reports whether the response is returned unread.
func (a *attempts) isStream(resp *http.Response) bool {
	return !a.buffered && a.verdict.err == nil && resp.StatusCode >= 200 && resp.StatusCode < 300
}

// finishRequest reports the end of a request.
func (a *attempts) finishRequest(err error) {
	s := &a.lastRequest
	if !s.Observed() {
		return
	}
	s.Sent, s.Received = a.sent.Load(), a.received.Load()
	if refused := err == nil && a.verdict.kind != Unjudged; refused {
		s.Outcome, err = a.verdict.kind.String(), a.refusal()
	}
	a.fillEvent(s, err == nil)
	s.End(err)
}

// logWait logs that a request begins to wait for a rate limit, and its place in the queue.
// Without the record, the program would look as if it hung.
func (a *attempts) logWait(ctx context.Context, limit RateLimit, place int) {
	level := slog.LevelDebug
	if place == 1 && limit.Limit > 0 && limit.Remaining == 0 {
		level = slog.LevelInfo // once for all requests that wait for the same reset
	}
	a.client.Log(ctx, level, "sandbox request waits for the rate limit", slog.String("operation", a.req.Op.Name),
		slog.Int("place", place), slog.Int("rateRemaining", limit.Remaining), slog.Int("rateLimit", limit.Limit))
}

// Log writes a record that belongs to no event. Strings among attrs are made printable.
// They must not contain secrets.
func (c *Client) Log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	if c == nil || c.cfg.Logger == nil || !c.cfg.Logger.Enabled(ctx, level) {
		return
	}
	for i, a := range attrs {
		if a.Value.Kind() == slog.KindString {
			attrs[i].Value = slog.StringValue(redact.Printable(a.Value.String()))
		}
	}
	c.cfg.Logger.LogAttrs(ctx, level, message, attrs...)
}

// setCause sets the cause of the next attempt: err, or the response.
func (a *attempts) setCause(err error) {
	if err != nil {
		a.op.Cause, a.op.CauseErr = Broken.String(), err
		return
	}
	a.op.Cause, a.op.CauseErr = a.verdict.kind.String(), a.refusal()
}

// refusal returns the last response as an error.
func (a *attempts) refusal() error {
	apiErr := a.verdict.refusal.Error
	switch {
	case a.verdict.err != nil:
		return fmt.Errorf("status %d: %w", a.lastRequest.Status, a.verdict.err)
	case apiErr.Message != "":
		return fmt.Errorf("status %d, %s: %s", a.lastRequest.Status, apiErr.Code, apiErr.Message)
	}
	return fmt.Errorf("status %d, %s", a.lastRequest.Status, apiErr.Code)
}

// Outcome returns the outcome in events for an error of this package.
func Outcome(ctx context.Context, err error) string {
	f, failed := errors.AsType[*Failure](err)
	switch {
	case err == nil:
		return observe.OK
	case failed && f.Status != 0:
		return f.Kind.String()
	case ctx.Err() != nil:
		return Ended(ctx)
	}
	if _, ok := errors.AsType[*AuthError](err); ok {
		return NoCredentials
	}
	return Broken.String()
}

// streamBody is the response of a streaming operation. The operation ends at EOF, an error,
// or Close.
type streamBody struct {
	io.ReadCloser
	attempts *attempts
	finished atomic.Bool
}

func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.attempts.received.Add(int64(n))
	if err != nil {
		if err == io.EOF {
			b.finish(nil)
		} else {
			b.finish(err)
		}
	}
	return n, err
}

func (b *streamBody) Close() error {
	defer b.finish(nil)
	return b.ReadCloser.Close()
}

func (b *streamBody) finish(err error) {
	if b.finished.Swap(true) {
		return
	}
	b.attempts.finishRequest(err)
	b.attempts.finish(err)
}
