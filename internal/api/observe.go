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

	"github.com/go-vercel/sandbox/observe"
)

// NoCredentials is the outcome of an operation for which there are none.
const NoCredentials = "no_credentials"

// observed is what observers learn about an operation and its last request.
type observed struct {
	// op is the operation, with what its requests before the last have sent and
	// received, why the last was made, and the rate limit of its response.
	op             Span
	try            Span         // the last request; the rest of the response is here
	sent, received atomic.Int64 // by the last request
}

// start tells that something of the operation begins, and returns the context of
// all that is part of it.
func (a *attempts) start(ctx context.Context, e observe.Event) (context.Context, Span) {
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

// named is a response about a sandbox or a session.
type named interface {
	Names() (sandbox, session string)
}

// know completes an event with what a response is about. A sandbox without a name
// of the caller's gets one there, and a session its ID.
func (a *attempts) know(s *Span, succeeded bool) {
	if out, ok := a.out.(named); ok && succeeded {
		sandbox, session := out.Names()
		s.Sandbox, s.Session = cmp.Or(sandbox, s.Sandbox), cmp.Or(session, s.Session)
	}
}

// end tells how the operation has ended.
func (a *attempts) end(err error) {
	s := &a.op
	if !s.Observed() {
		return
	}
	a.know(s, err == nil)
	s.Attempt, s.Status, s.Latency, s.RequestID = a.count, a.try.Status, a.try.Latency, a.try.RequestID
	s.Sent, s.Received = s.Sent+a.sent.Load(), s.Received+a.received.Load()
	s.End(err)
}

// beginRequest tells that a request begins, and returns it with the context that
// the observer gives it.
func (a *attempts) beginRequest(req *http.Request) *http.Request {
	op := &a.op
	op.Sent, op.Received = op.Sent+a.sent.Swap(0), op.Received+a.received.Swap(0)
	a.sent.Store(max(req.ContentLength, 0))
	op.RateLimit, op.RateRemaining = 0, 0
	var ctx context.Context
	if ctx, a.try = a.start(req.Context(), observe.Event{Kind: observe.Request, Attempt: a.count + 1, Cause: op.Cause}); same(ctx, req.Context()) {
		return req
	}
	return req.WithContext(ctx)
}

// same reports whether two contexts are one, without a panic for those that
// can't be compared.
func same(a, b context.Context) bool { return reflect.TypeOf(a).Comparable() && a == b }

// arrived notes the response to a request.
func (a *attempts) arrived(resp *http.Response) {
	s := &a.try
	if s.Status = resp.StatusCode; !s.Observed() {
		return
	}
	s.Latency, s.RequestID = time.Since(s.Start), resp.Header.Get("X-Vercel-Id")
	r, _ := ReadRateLimit(resp.Header)
	a.op.RateLimit, a.op.RateRemaining = r.Limit, r.Remaining
}

// streams reports whether the response is passed on unread.
func (a *attempts) streams(resp *http.Response) bool {
	return !a.whole && a.verdict.err == nil && resp.StatusCode >= 200 && resp.StatusCode < 300
}

// endRequest tells how a request has ended.
func (a *attempts) endRequest(err error) {
	s := &a.try
	if !s.Observed() {
		return
	}
	s.Sent, s.Received = a.sent.Load(), a.received.Load()
	if refused := err == nil && a.verdict.kind != Unjudged; refused {
		s.Outcome, err = a.verdict.kind.String(), a.refusal()
	}
	a.know(s, err == nil)
	s.End(err)
}

// The causes of waits for a rate limit.
const (
	CauseSpent = "spent" // nothing is left of it
	CauseQueue = "queue" // what is left belongs to requests that are on their way
)

// beginPace tells that a request begins to wait for a rate limit, at a place in
// line.
func (a *attempts) beginPace(ctx context.Context, limit RateLimit, place int) Span {
	e := observe.Event{
		Kind: observe.Pace, Attempt: place, Cause: CauseQueue, Status: a.try.Status,
		RateLimit: limit.Limit, RateRemaining: limit.Remaining,
	}
	if limit.Limit > 0 && limit.Remaining == 0 {
		e.Cause = CauseSpent
	}
	_, pace := a.start(ctx, e)
	return pace
}

// because notes why another attempt is made: err, or the response.
func (a *attempts) because(err error) {
	if err != nil {
		a.op.Cause, a.op.CauseErr = Broken.String(), err
		return
	}
	a.op.Cause, a.op.CauseErr = a.verdict.kind.String(), a.refusal()
}

// refusal returns the last response as an error.
func (a *attempts) refusal() error {
	said := a.verdict.refusal.Error
	switch {
	case a.verdict.err != nil:
		return fmt.Errorf("status %d: %w", a.try.Status, a.verdict.err)
	case said.Message != "":
		return fmt.Errorf("status %d, %s: %s", a.try.Status, said.Code, said.Message)
	}
	return fmt.Errorf("status %d, %s", a.try.Status, said.Code)
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
		return Ended(ctx)
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
	if b.over.Swap(true) {
		return
	}
	b.attempts.endRequest(err)
	b.attempts.end(err)
}
