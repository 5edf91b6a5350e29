package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// call is one request to one operation.
type call struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	version int      // of the API
	values  []string // of the path's wildcards
	record  *Request
}

// savingWriter saves the effect of a request before its successful response, and records
// the status for Requests.
type savingWriter struct {
	http.ResponseWriter
	requests *requests
	record   *Request
	status   int
	// save is called before a successful response, if not nil. If it fails, the response
	// is reply.ErrNotKept.
	save   func() error
	failed bool // save has failed: the handler's response is dropped
}

// Unwrap lets http.ResponseController reach the connection.
func (w *savingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *savingWriter) WriteHeader(status int) {
	if w.status == 0 && w.save != nil && status < 300 && w.save() != nil {
		reply.WriteError(w, reply.ErrNotKept)
		w.failed = true
	}
	if w.failed {
		return
	}
	if w.status == 0 {
		w.status = status
		w.requests.setStatus(w.record, status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *savingWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.failed {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// serve handles all requests.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.store.Enter() {
		reply.WriteError(w, reply.ErrClosing)
		return
	}
	defer s.store.Leave()
	if subdomain, ok := strings.CutSuffix(hostName(r.Host), routesHost); ok {
		s.serveRoute(w, r, subdomain)
		return
	}
	path, ok := apiPath(r)
	if !ok {
		s.serveOther(w, r)
		return
	}
	e, version, values, allowed, failure := lookUp(r.Method, path)
	var op Operation
	if e != nil {
		op = e.op
	}
	c := &call{s: s, r: r, version: version, values: values, record: s.requests.begin(r, op, path)}
	sw := &savingWriter{ResponseWriter: w, requests: &s.requests, record: c.record}
	if s.opts.Dir != "" && e != nil && e.effect == saved {
		sw.save = s.store.Flush
	}
	c.w = sw
	sw.Header().Set("X-Vercel-Id", store.NewRequestID())
	sw.Header().Set("Cache-Control", "private, max-age=0, must-revalidate")
	sw.Header().Set("Date", s.store.Clock.Now().UTC().Format(http.TimeFormat))
	defer func() {
		rec := s.requests.end(c.record)
		if s.opts.OnRequest != nil {
			s.opts.OnRequest(rec)
		}
	}()
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(r.Context())
	defer cancel()
	defer s.store.OnClose(cancel)()

	if failure == reply.ErrNoVersion1 { // older clients show only the status, not this message
		s.warnOldClient.Do(func() { s.opts.Logger.Warn(reply.ErrNoVersion1.Message, "client", r.UserAgent()) })
	}
	if e == nil && s.serveScope(sw, r, path) {
		return
	}
	if failure == nil {
		failure = s.authorize(r)
	}
	if failure != nil {
		if len(allowed) > 0 {
			sw.Header().Set("Allow", strings.Join(allowed, ", "))
		}
		reply.WriteError(sw, failure)
		return
	}
	c.dispatch(e)
}

// serveOther serves everything except the API: terminals and the control API.
func (s *Server) serveOther(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, controlPath); ok && (rest == "" || rest[0] == '/') {
		s.serveControl(w, r)
		return
	}
	if id, ok := strings.CutPrefix(r.URL.Path, interactivePath); ok {
		s.serveInteractive(w, r, id)
		return
	}
	reply.WriteError(w, reply.NotFound("Not found. The API is below /api."))
}

// dispatch applies faults and runs the operation.
func (c *call) dispatch(e *endpoint) {
	defer func() {
		switch p := recover(); {
		case p == nil, p == errResponded:
		case p == http.ErrAbortHandler:
			panic(p)
		default:
			c.s.opts.Logger.Error("panic in the emulator", "operation", string(e.op), "panic", fmt.Sprint(p))
			panic(p)
		}
	}()
	if f := c.s.faults.next(e.op, c.r); f != nil {
		if f.Delay > 0 && !c.wait(f.Delay) {
			panic(http.ErrAbortHandler) // the client has gone
		}
		switch {
		case f.DropBefore:
			panic(http.ErrAbortHandler)
		case f.Status != 0:
			f.respond(c.w, f.Status)
			return
		}
		fw := &faultWriter{ResponseWriter: c.w, fault: f}
		c.w = fw
		if f.CutAfter > 0 {
			var cut context.CancelFunc
			c.ctx, cut = context.WithCancel(c.ctx)
			defer cut()
			defer c.s.store.Clock.AfterFunc(f.CutAfter, func() { fw.cut.Store(true); cut() }).Stop()
			defer fw.end()
		}
	}
	if failure := c.limitRate(e.quota); failure != nil {
		reply.WriteError(c.w, failure)
		return
	}
	if !c.hasContentType(e) {
		reply.WriteError(c.w, reply.ErrMediaType)
		return
	}
	if err := e.handle(c); err != nil {
		c.fail(e, err)
	}
}

// wait waits for d by the machine's clock. It returns false if the request ends first.
func (c *call) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// fail responds with an error. An error that is not the API's becomes an internal one.
func (c *call) fail(e *endpoint, err error) {
	failure, ok := errors.AsType[*reply.Error](err)
	switch {
	case ok:
	case c.s.store.Closing():
		failure = reply.ErrClosing
	case c.ctx.Err() != nil:
		// The client is gone, or its connection has failed. Break the connection: to a
		// client that is still there, a response without content would look like success.
		panic(http.ErrAbortHandler)
	default:
		c.s.opts.Logger.Error("operation failed", slog.String("operation", string(e.op)), slog.Any("error", err))
		failure = reply.Internal(err, "The emulator failed: %v", err)
	}
	reply.WriteError(c.w, failure)
}

// project returns the project in the request, or "". As on the service, requests about
// one object name it by projectId.
func (c *call) project() (string, error) { return c.projectBy("projectId", "project") }

// listProject returns the project of a listing, which names it by project.
func (c *call) listProject() (string, error) { return c.projectBy("project", "projectId") }

// projectBy reads the query parameter name. It refuses a query that has only other.
func (c *call) projectBy(name, other string) (string, error) {
	q := c.r.URL.Query()
	if q.Has(other) && !q.Has(name) {
		return "", reply.Invalid("missing required property `%s`.", name)
	}
	return q.Get(name), nil
}
