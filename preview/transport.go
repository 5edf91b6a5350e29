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
	"net/url"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/edge"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// Transport returns an [http.RoundTripper] that sends every request to the server at an
// exposed port, whatever the host in its URL: a request to "http://app/users" asks the
// server for "/users". A nil opts means the defaults. The RoundTripper is safe for
// concurrent use and supports WebSockets and server-sent events.
//
// If the sandbox has stopped, a request resumes it, as [sandbox.Sandbox.Resume] does. If
// nothing listens on the port yet, the request waits. After MaxWait it fails; the error
// may match [sandbox.ErrStopped], [sandbox.ErrNotFound] or [sandbox.ErrNoRoute]. A request
// to a running server needs no request to the API.
//
// The server receives each request at most once. The transport retries only if an error
// code of the platform's edge says that the server has not received the request, and if
// at most 1 MiB of its body was read. A response of the server with status 410, 422 or
// 502 is returned unchanged.
//
// With Idle, a goroutine extends the session until no request has been in flight for that
// long. CloseIdleConnections ends it earlier, if no request is in flight. A request is in
// flight until its response's body is closed. A body that is never closed keeps the session
// and the goroutine alive.
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

type portTransport struct {
	sb   *sandbox.Sandbox
	port int
	opts Options
	err  error // invalid arguments

	// starting is full while Options.Start runs. It guards startedAt, the time at which
	// Start last returned.
	starting  chan struct{}
	startedAt time.Time

	mu        sync.Mutex
	inFlight  int
	idleTimer *time.Timer
	// stopExtending ends the goroutine that extends the session. It is nil if there is none.
	stopExtending context.CancelFunc
	// resumedAt is when the API last confirmed that the sandbox runs.
	resumedAt time.Time
}

func (t *portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, end := observe.Start(req.Context(), t.sb.Observer(), observe.Event{Kind: observe.Visit, Sandbox: t.sb.Name(), Method: req.Method})
	cause := ""
	req = req.WithContext(ctx)
	body := &replayBody{reading: make(chan struct{}, 1)}
	if req.Body != nil && req.Body != http.NoBody {
		body.src = req.Body
	}
	resp, err := t.roundTrip(req, body, &cause)
	body.finish(err != nil)
	end(err, func(e *observe.Event) {
		if e.Cause = cause; err == nil {
			e.Status = resp.StatusCode
		}
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox: port %d of %q: %w", t.port, t.sb.Name(), err)
	}
	return resp, nil
}

// roundTrip retries a request while the edge refuses it. It sets cause if the request had to
// wait.
func (t *portTransport) roundTrip(req *http.Request, body *replayBody, cause *string) (*http.Response, error) {
	if t.err != nil {
		return nil, t.err
	}
	release := t.trackRequest()
	// MaxWait limits only the waiting: a response may stream for hours.
	var giveUp time.Time
	pause := 100 * time.Millisecond
	for {
		sent := time.Now()
		resp, err := t.send(req, body)
		refused, ok := errors.AsType[*edge.Error](err)
		if !ok {
			if err != nil {
				release()
				return nil, t.sandboxError(req.Context(), err)
			}
			resp.Body = withOnClose(resp.Body, release)
			return resp, nil
		}
		*cause = "stopped"
		if refused.Code == edge.NotListening {
			*cause = "not listening"
		}
		first := giveUp.IsZero()
		if first {
			giveUp = time.Now().Add(t.opts.MaxWait)
		}
		if err := t.prepareRetry(req.Context(), refused, sent, giveUp, first, pause, body); err != nil {
			release()
			return nil, err
		}
		pause = min(2*pause, maxPause)
	}
}

// sandboxError returns ErrNotFound instead of err if err is a failure to connect and the
// sandbox no longer exists.
func (t *portTransport) sandboxError(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*net.OpError](err); !ok || e.Op != "dial" || !t.needsResume() {
		return err
	}
	if resumeErr := t.resume(ctx); errors.Is(resumeErr, sandbox.ErrNotFound) {
		return resumeErr
	}
	return err
}

// resume resumes the sandbox and sets t.resumedAt.
func (t *portTransport) resume(ctx context.Context) error {
	if err := t.sb.Resume(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resumedAt = time.Now()
	return nil
}

// maxPause is the longest pause between attempts, and the shortest between requests to
// the API. Without the second limit a server that imitates the edge could make its
// visitors use up the account's rate limit.
const maxPause = 2 * time.Second

// needsResume reports whether it is time to ask the API again if the sandbox runs.
func (t *portTransport) needsResume() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.resumedAt) >= maxPause
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
	out := req.WithContext(req.Context()) // shares the trailers, which arrive after the body
	target := *req.URL
	target.Scheme, target.Host = base.Scheme, base.Host
	out.URL, out.Host = &target, ""
	out.Body, out.GetBody = body.attempt(), nil
	resp, err := t.opts.Base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if !edge.May(resp) {
		return resp, nil
	}
	// The start of the body distinguishes an error of the edge from one of the server.
	text, err := io.ReadAll(io.LimitReader(resp.Body, 512))
	if edgeErr := edge.Said(resp, string(text), sandbox.ErrStopped); edgeErr != nil {
		_ = resp.Body.Close()
		return nil, edgeErr
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

// prepareRetry handles the edge's refusal of an attempt that was made at the time sent. It
// resumes the sandbox or starts the server if necessary, and waits. After an error the
// caller must not retry.
func (t *portTransport) prepareRetry(ctx context.Context, refused *edge.Error, sent, giveUp time.Time, first bool, pause time.Duration, body *replayBody) error {
	if body.isTruncated() {
		return fmt.Errorf("%w; the request's body is too large to be sent again", refused)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, giveUp, fmt.Errorf("%w for %v", refused, t.opts.MaxWait))
	defer cancel()
	// If nothing listens, the hook that starts the server may not have run in this session.
	if (refused.Code != edge.NotListening || first) && t.needsResume() {
		if err := t.resume(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
	}
	if refused.Code == edge.NotListening && t.opts.Start != nil {
		if err := t.callStart(ctx, sent); err != nil {
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

// callStart calls Options.Start. It does nothing if Start has just returned, or if Start has
// returned after the refused attempt was sent, because the next attempt may then succeed.
func (t *portTransport) callStart(ctx context.Context, sent time.Time) error {
	select {
	case t.starting <- struct{}{}:
		defer func() { <-t.starting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !t.startedAt.Before(sent) || time.Since(t.startedAt) < maxPause {
		return nil
	}
	if err := t.opts.Start(ctx, t.sb); err != nil {
		return err
	}
	t.startedAt = time.Now()
	return nil
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
