// Package preview shows the servers of sandboxes to visitors, who wake a sandbox
// that has stopped.
package preview

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/edge"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/relay"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// Options are the options of [Transport] and [ReverseProxy]. The zero value is ready to use.
type Options struct {
	// MaxWait limits how long one request waits for a stopped sandbox to wake
	// and for its server to listen. Zero means one minute.
	MaxWait time.Duration
	// Idle extends the session's timeout while requests are in flight, and for
	// this long after the last one. Zero leaves the timeout alone.
	Idle time.Duration
	// Base sends the requests, which carry none of this package's credentials.
	// Nil means a copy of [http.DefaultTransport].
	Base http.RoundTripper
	// Start is called when nothing listens on the port, after the hooks, so that a
	// server that has ended is started again: by [sandbox.Sandbox.EnsureCommand],
	// since it may only be slow to listen, and other processes may do the same. A
	// request waits for it, and fails with its error; one call is made at a time, and
	// no more than one in two seconds. Nil means that the request only waits.
	Start sandbox.Hook
}

// maxReplay is how much of a request's body is kept to send it again when the
// edge has refused it.
const maxReplay = 1 << 20

// Transport returns an [http.RoundTripper] that sends every request to the
// server at an exposed port, whatever the host in its URL: a request to
// "http://app/users" asks the server for "/users". A nil opts means the
// defaults. It is safe for concurrent use, and WebSockets and server-sent
// events pass.
//
// If the sandbox has stopped, a request resumes it, as [sandbox.Sandbox.Resume] does;
// if nothing listens on the port yet, it waits. The server receives each
// request at most once: it is sent again only if the platform's edge says, by
// its own error code, that the server has not received it, and if no more than
// 1 MiB of its body was read. A 410, 422 or 502 of the server itself is
// returned as it is. After MaxWait the error says why; it may match
// [sandbox.ErrStopped],
// [sandbox.ErrNotFound] or [sandbox.ErrNoRoute]. A request to a running server
// costs no request to the API. With Idle, one goroutine extends the session
// until the transport is idle for that long, or until CloseIdleConnections while
// no request is in flight. A request is in flight until its response's body is
// closed: a body that is never closed keeps the session, and the goroutine, for
// ever.
func Transport(sb *sandbox.Sandbox, port int, opts *Options) http.RoundTripper {
	return newTransport(sb, port, opts)
}

func newTransport(sb *sandbox.Sandbox, port int, opts *Options) *portTransport {
	t := &portTransport{sb: sb, port: port, opts: Options{MaxWait: time.Minute}, starting: make(chan struct{}, 1)}
	if opts != nil {
		t.opts.Idle, t.opts.Base, t.opts.Start = opts.Idle, opts.Base, opts.Start
		if opts.MaxWait != 0 {
			t.opts.MaxWait = opts.MaxWait
		}
	}
	t.err = cmp.Or(entry.Range("preview", "port", port, 1, wire.MaxPort),
		entry.NotNegative("preview", "MaxWait", t.opts.MaxWait), entry.NotNegative("preview", "Idle", t.opts.Idle))
	if t.opts.Base == nil {
		t.opts.Base = http.DefaultTransport
		if d, ok := http.DefaultTransport.(*http.Transport); ok {
			t.opts.Base = d.Clone()
		}
	}
	return t
}

// ReverseProxy returns a handler that passes requests on to the server at
// an exposed port, by [Transport], so that visitors wake a stopped
// sandbox.
//
// The server knows itself by the address of the platform, which visitors don't
// see: Origin and Referer of its own pages arrive with that address, and Location
// and Content-Location leave without it. The visitor's address, host and scheme
// are in X-Original-For, X-Original-Host and X-Original-Proto, since the platform
// sets X-Forwarded headers itself; behind a load balancer, put a handler in front
// that sets the request's RemoteAddr. Cookies are for the visitor's host
// alone, whatever their Domain. Headers that tell a web server in front to serve a
// file of its own (X-Accel-Redirect, X-Sendfile and such), and Alt-Svc, are left
// out. A server may respond while it is sent the request, over HTTP/1 too.
//
// If the server can't be reached, the visitor gets a short page with the reason,
// with 504 and Retry-After while the sandbox wakes or nothing listens after
// MaxWait, 404 if the sandbox is gone, and 502 if the server may have received the
// request; ErrorLog gets the error. Replace ErrorHandler to change this, and wrap
// Rewrite rather than replace it.
//
// It lets everybody in: put a handler that checks who asks in front. And it
// belongs on a host of its own: the server receives the visitors' cookies and
// credentials for the host that they ask, and its pages act there in their name.
func ReverseProxy(sb *sandbox.Sandbox, port int, opts *Options) *Proxy {
	t := newTransport(sb, port, opts)
	if base, ok := t.opts.Base.(*http.Transport); ok && (opts == nil || opts.Base == nil) {
		base.DisableCompression = true // what the visitor asks for counts
	}
	v := visitors{t}
	p := &Proxy{httputil.ReverseProxy{Transport: v, FlushInterval: -1, Rewrite: v.rewrite}}
	p.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) { failed(w, r, err, logger(p)) }
	return p
}

// Proxy is what [ReverseProxy] returns.
type Proxy struct{ httputil.ReverseProxy }

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	relay.Serve(&p.ReverseProxy, w, r)
}

type portTransport struct {
	sb   *sandbox.Sandbox
	port int
	opts Options
	err  error // of the arguments

	// starting is full while Options.Start runs, and guards started, when it has
	// last ended.
	starting chan struct{}
	started  time.Time

	mu       sync.Mutex
	inFlight int
	idle     *time.Timer
	// stop ends the goroutine that keeps the session alive; nil while there is
	// none.
	stop context.CancelFunc
	// resumed is when the API has last said that the sandbox runs.
	resumed time.Time
}

func (t *portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, end := observe.Start(req.Context(), t.sb.Observer(), observe.Event{Kind: observe.Visit, Sandbox: t.sb.Name(), Method: req.Method})
	why := ""
	req = req.WithContext(ctx)
	body := &replayBody{reading: make(chan struct{}, 1)}
	if req.Body != nil && req.Body != http.NoBody {
		body.src = req.Body
	}
	resp, err := t.roundTrip(req, body, &why)
	body.finish(err != nil)
	end(err, func(e *observe.Event) {
		if e.Cause = why; err == nil {
			e.Status = resp.StatusCode
		}
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox: port %d of %q: %w", t.port, t.sb.Name(), err)
	}
	return resp, nil
}

// roundTrip says why the request waited, if it did.
func (t *portTransport) roundTrip(req *http.Request, body *replayBody, why *string) (*http.Response, error) {
	if t.err != nil {
		return nil, t.err
	}
	done := t.use()
	// The limit is of the waiting only: a response may stream for hours.
	var giveUp time.Time
	pause := 100 * time.Millisecond
	for {
		sent := time.Now()
		resp, err := t.send(req, body)
		refused, ok := errors.AsType[*edge.Error](err)
		if !ok {
			if err != nil {
				done()
				return nil, t.gone(req.Context(), err)
			}
			resp.Body = whenClosed(resp.Body, done)
			return resp, nil
		}
		*why = "stopped"
		if refused.Code == edge.NotListening {
			*why = "not listening"
		}
		first := giveUp.IsZero()
		if first {
			giveUp = time.Now().Add(t.opts.MaxWait)
		}
		if err := t.wait(req.Context(), refused, sent, giveUp, first, pause, body); err != nil {
			done()
			return nil, err
		}
		pause = min(2*pause, longestPause)
	}
}

// gone returns why there is nothing to connect to, if the sandbox is no more.
func (t *portTransport) gone(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*net.OpError](err); !ok || e.Op != "dial" || !t.doubtful() {
		return err
	}
	if why := t.resume(ctx); errors.Is(why, sandbox.ErrNotFound) {
		return why
	}
	return err
}

// resume resumes the sandbox, and remembers when.
func (t *portTransport) resume(ctx context.Context) error {
	if err := t.sb.Resume(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resumed = time.Now()
	return nil
}

// longestPause is that between two attempts, and for how long the API's word that
// the sandbox runs is not asked for again: a server can speak like the edge, and
// its visitors would spend the account's requests.
const longestPause = 2 * time.Second

// doubtful reports whether a request to the API must show whether the sandbox runs.
func (t *portTransport) doubtful() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.resumed) >= longestPause
}

// send makes one attempt. The error is an *edge.Error if the edge has refused it.
func (t *portTransport) send(req *http.Request, body *replayBody) (*http.Response, error) {
	address, err := t.sb.URL(t.port)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	out := req.WithContext(req.Context()) // with the trailers, which come after the body
	at := *req.URL
	at.Scheme, at.Host = base.Scheme, base.Host
	out.URL, out.Host = &at, ""
	out.Body, out.GetBody = body.attempt(), nil
	resp, err := t.opts.Base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if !edge.May(resp) {
		return resp, nil
	}
	// The beginning tells an error of the edge from one of the server.
	text, err := io.ReadAll(io.LimitReader(resp.Body, 512))
	if said := edge.Said(resp, string(text), sandbox.ErrStopped); said != nil {
		_ = resp.Body.Close()
		return nil, said
	}
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failingReader{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), resp.Body}
	return resp, nil
}

// wait does what makes the next attempt succeed where the one that was sent then was
// refused.
func (t *portTransport) wait(ctx context.Context, refused *edge.Error, sent, giveUp time.Time, first bool, pause time.Duration, body *replayBody) error {
	if body.lost() {
		return fmt.Errorf("%w; the request's body is too large to be sent again", refused)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, giveUp, fmt.Errorf("%w for %v", refused, t.opts.MaxWait))
	defer cancel()
	// Where nothing listens, a hook that starts the server may not have run for this
	// session.
	if (refused.Code != edge.NotListening || first) && t.doubtful() {
		if err := t.resume(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
	}
	if refused.Code == edge.NotListening && t.opts.Start != nil {
		if err := t.start(ctx, sent); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w; Start: %w", refused, err)
		}
	}
	if !api.Sleep(ctx, pause) {
		return context.Cause(ctx)
	}
	return nil
}

// start calls Options.Start unless that has just been done, or since the attempt that
// was sent then: its refusal says nothing of the server that runs now.
func (t *portTransport) start(ctx context.Context, sent time.Time) error {
	select {
	case t.starting <- struct{}{}:
		defer func() { <-t.starting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !t.started.Before(sent) || time.Since(t.started) < longestPause {
		return nil
	}
	if err := t.opts.Start(ctx, t.sb); err != nil {
		return err
	}
	t.started = time.Now()
	return nil
}

// use counts a request in flight, until the returned function is called.
func (t *portTransport) use() (done func()) {
	if t.opts.Idle == 0 {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight++
	if t.idle != nil {
		t.idle.Stop()
	}
	if t.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		t.stop = cancel
		// It ends early where the plan allows no more: the session then stops,
		// and the next request wakes the sandbox.
		go func() { _ = t.sb.KeepAlive(ctx, nil) }()
	}
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.inFlight--; t.inFlight > 0 || t.stop == nil {
			return
		}
		t.idle = time.AfterFunc(t.opts.Idle, t.rest)
	})
}

// rest stops extending the session unless a request is in flight.
func (t *portTransport) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight == 0 && t.stop != nil {
		t.stop()
		t.stop = nil
	}
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] calls.
func (t *portTransport) CloseIdleConnections() {
	t.rest()
	if c, ok := t.opts.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// whenClosed calls done when a body is closed. It keeps the body of an upgraded
// connection writable.
func whenClosed(body io.ReadCloser, done func()) io.ReadCloser {
	c := closeNotifier{body, done}
	if conn, ok := body.(io.ReadWriteCloser); ok {
		return struct {
			closeNotifier
			io.Writer
		}{c, conn}
	}
	return c
}

type closeNotifier struct {
	io.ReadCloser
	done func()
}

func (c closeNotifier) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// replayBody is a request's body that can be read again from its start, as long
// as the part that was read fits into maxReplay. Each attempt has a reader of
// its own; one that net/http still reads when the next attempt has begun gets an
// error, and the next one the bytes.
type replayBody struct {
	src io.ReadCloser // nil for a request without a body

	// reading is full while src is read, which may last for as long as a visitor
	// likes: only readers wait for it, so that a response or the end of the
	// request does not.
	reading chan struct{}

	mu      sync.Mutex
	kept    []byte
	gone    bool  // more was read than is kept
	err     error // of src
	current *attemptBody
	over    bool // no further attempt is made
	closed  bool // the current attempt's reader is closed
}

func (b *replayBody) attempt() io.ReadCloser {
	if b.src == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current, b.closed = &attemptBody{b: b}, false
	return b.current
}

func (b *replayBody) lost() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone
}

// finish closes the source, at once or when net/http has read it.
func (b *replayBody) finish(failed bool) {
	if b.src == nil {
		return
	}
	b.mu.Lock()
	b.over = true
	closes := failed || b.closed
	b.mu.Unlock()
	if closes {
		_ = b.src.Close()
	}
}

var errSuperseded = errors.New("sandbox: the request has been sent again")

type attemptBody struct {
	b  *replayBody
	at int // in kept
}

func (a *attemptBody) Read(p []byte) (int, error) {
	b := a.b
	b.reading <- struct{}{}
	defer func() { <-b.reading }()
	if n, err := a.again(p); n > 0 || err != nil {
		return n, err
	}
	n, err := b.src.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if b.gone = b.gone || len(b.kept)+n > maxReplay; b.gone {
		b.kept, a.at = nil, 0
	} else {
		b.kept = append(b.kept, p[:n]...)
		a.at += n
	}
	if b.current != a {
		if b.gone { // bytes that the next attempt needs
			b.err = errSuperseded
		}
		return 0, errSuperseded
	}
	return n, err
}

// again returns what was read before, if anything.
func (a *attemptBody) again(p []byte) (int, error) {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.current != a:
		return 0, errSuperseded
	case a.at < len(b.kept):
		n := copy(p, b.kept[a.at:])
		a.at += n
		return n, nil
	}
	return 0, b.err
}

// Close leaves the source open for the next attempt, if there may be one.
func (a *attemptBody) Close() error {
	b := a.b
	b.mu.Lock()
	if b.current != a || b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	over := b.over
	b.mu.Unlock()
	if over {
		return b.src.Close()
	}
	return nil
}
