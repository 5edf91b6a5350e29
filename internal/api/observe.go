package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/observe"
)

// NoCredentials is the outcome of an operation for which there are none.
const NoCredentials = "no_credentials"

// observed is what observers learn about an operation and its last request.
type observed struct {
	begun, tried   time.Time
	tryCtx         context.Context // of the request
	latency        time.Duration
	cause          string // the outcome of the attempt before
	causeErr       error
	status         int
	header         http.Header
	sent, received atomic.Int64 // by the request
	// allSent and allReceived are by the requests before.
	allSent, allReceived int64
}

// Seam returns the observer of operations.
func (c *Client) Seam() *observe.Seam { return c.cfg.Seam }

// event describes the operation for observers.
func (a *attempts) event(kind string) observe.Event {
	op := a.req.Op
	e := observe.Event{
		Kind: kind, Operation: op.Name, Method: op.Method, Path: op.Path,
		Attempt: a.count, Cause: a.cause, CauseErr: a.causeErr, Status: a.status,
	}
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
	return e
}

// named is a response about a sandbox or a session.
type named interface {
	Names() (sandbox, session string)
}

// made completes an event with what the response is about: a sandbox without a
// name of the caller's gets one, and a session its ID.
func (a *attempts) made(e *observe.Event) {
	if out, ok := a.out.(named); ok {
		sandbox, session := out.Names()
		e.Sandbox, e.Session = cmp.Or(sandbox, e.Sandbox), cmp.Or(session, e.Session)
	}
}

// begin tells that the operation begins, and returns the context of its requests.
func (a *attempts) begin(ctx context.Context) context.Context {
	seam := a.client.cfg.Seam
	if seam == nil {
		return ctx
	}
	ctx, e := seam.Begin(ctx, a.event(observe.Operation))
	a.begun = e.Start
	return ctx
}

// end tells how the operation has ended.
func (a *attempts) end(ctx context.Context, err error) {
	seam := a.client.cfg.Seam
	if seam == nil {
		return
	}
	e := a.event(observe.Operation)
	e.Start, e.Latency = a.begun, a.latency
	e.Sent, e.Received = a.allSent+a.sent.Load(), a.allReceived+a.received.Load()
	e.Outcome, e.Err = Outcome(ctx, err), err
	if err == nil {
		a.made(&e)
	}
	if a.header != nil {
		e.RequestID = a.header.Get("X-Vercel-Id")
		if r, ok := ReadRateLimit(a.header); ok {
			e.RateLimit, e.RateRemaining = r.Limit, r.Remaining
		}
	}
	seam.End(ctx, e)
}

// beginRequest tells that a request begins, and returns it with the context that
// the observer gives it.
func (a *attempts) beginRequest(req *http.Request) *http.Request {
	a.allSent, a.allReceived = a.allSent+a.sent.Swap(0), a.allReceived+a.received.Swap(0)
	a.sent.Store(max(req.ContentLength, 0))
	a.status, a.header, a.latency = 0, nil, 0
	seam := a.client.cfg.Seam
	if seam == nil {
		return req
	}
	e := a.event(observe.Request)
	e.Attempt++
	ctx, e := seam.Begin(req.Context(), e)
	a.tryCtx, a.tried = ctx, e.Start
	if same(ctx, req.Context()) {
		return req
	}
	return req.WithContext(ctx)
}

// same reports whether two contexts are one, without a panic for those that
// can't be compared.
func same(a, b context.Context) bool { return reflect.TypeOf(a).Comparable() && a == b }

// arrived notes the response to a request.
func (a *attempts) arrived(resp *http.Response) {
	a.status, a.header = resp.StatusCode, resp.Header
	if !a.tried.IsZero() {
		a.latency = time.Since(a.tried)
	}
}

// streams reports whether the response is passed on unread.
func (a *attempts) streams(resp *http.Response) bool {
	return !a.whole && a.verdict.err == nil && resp.StatusCode >= 200 && resp.StatusCode < 300
}

// endRequest tells how a request has ended, the attempt of that number.
func (a *attempts) endRequest(attempt int, err error) {
	seam := a.client.cfg.Seam
	if seam == nil {
		return
	}
	e := a.event(observe.Request)
	e.Start, e.Latency, e.Attempt = a.tried, a.latency, attempt
	e.Sent, e.Received = a.sent.Load(), a.received.Load()
	switch {
	case err != nil:
		e.Outcome, e.Err = Outcome(a.tryCtx, err), err
	case a.verdict.kind != Unjudged:
		e.Outcome, e.Err = a.verdict.kind.String(), a.refusal()
	default:
		e.Outcome = observe.OK
		a.made(&e)
	}
	if a.header != nil {
		e.RequestID = a.header.Get("X-Vercel-Id")
	}
	seam.End(a.tryCtx, e)
}

// beginPace reports that the operation waits for a limit, after others.
func (a *attempts) beginPace(ctx context.Context, limit RateLimit, before int) (context.Context, observe.Event) {
	seam := a.client.cfg.Seam
	if seam == nil {
		return ctx, observe.Event{}
	}
	e := a.event(observe.Pace)
	e.RateLimit, e.RateRemaining, e.Attempt, e.Cause = limit.Limit, limit.Remaining, before+1, CauseQueue
	if limit.Limit > 0 && limit.Remaining == 0 {
		e.Cause = CauseSpent
	}
	return seam.Begin(ctx, e)
}

// The causes of waits for a rate limit.
const (
	CauseSpent = "spent" // nothing is left of it
	CauseQueue = "queue" // what is left belongs to requests that are on their way
)

// endPace tells that the wait is over; err is why nothing is sent.
func (a *attempts) endPace(ctx context.Context, e observe.Event, err error) {
	e.Outcome, e.Err = observe.OK, err
	if err != nil {
		if e.Outcome = RateLimited.String(); ctx.Err() != nil {
			e.Outcome = observe.Ended(ctx)
		}
	}
	a.client.cfg.Seam.End(ctx, e)
}

// because notes why another attempt is made: err, or the response.
func (a *attempts) because(err error) {
	if err != nil {
		a.cause, a.causeErr = Broken.String(), err
		return
	}
	a.cause, a.causeErr = a.verdict.kind.String(), a.refusal()
}

// refusal returns the last response as an error.
func (a *attempts) refusal() error {
	said := a.verdict.refusal.Error
	switch {
	case a.verdict.err != nil:
		return fmt.Errorf("status %d: %w", a.status, a.verdict.err)
	case said.Message != "":
		return fmt.Errorf("status %d, %s: %s", a.status, said.Code, said.Message)
	}
	return fmt.Errorf("status %d, %s", a.status, said.Code)
}

// Outcome returns the word for an error of this package, as observers are told
// it.
func Outcome(ctx context.Context, err error) string {
	f, failed := errors.AsType[*Failure](err)
	switch {
	case err == nil:
		return observe.OK
	case failed && f.Status != 0:
		return f.Kind.String()
	case ctx.Err() != nil:
		return observe.Ended(ctx)
	}
	if _, ok := errors.AsType[*AuthError](err); ok {
		return NoCredentials
	}
	return Broken.String()
}

// streamBody is the response to an operation whose reader ends it: by its last
// byte, an error, or Close.
type streamBody struct {
	io.ReadCloser
	ctx      context.Context
	attempts *attempts
	over     atomic.Bool
}

func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.attempts.received.Add(int64(n))
	if err != nil {
		if err == io.EOF {
			b.end(nil)
		} else {
			b.end(err)
		}
	}
	return n, err
}

func (b *streamBody) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
}

func (b *streamBody) end(err error) {
	if b.attempts.client.cfg.Seam == nil || b.over.Swap(true) {
		return
	}
	b.attempts.endRequest(b.attempts.count, err)
	b.attempts.end(b.ctx, err)
}
