// Package api is the transport of the Vercel Sandbox API: the table of
// operations with their retry classes, requests, retries, and the decoding of
// responses and errors.
package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/observe"
	"github.com/hashicorp/go-retryablehttp"
)

// Auth is the part of the credentials that a request needs.
type Auth struct {
	Token, TeamID string
	// As describes whose credentials these are, for the error of a refusal.
	As string
}

// Config configures a Client. Every field but Observer, Logger, Secrets and Refresh is
// required.
type Config struct {
	BaseURL    *url.URL
	HTTPClient *http.Client
	UserAgent  func() string // called before every operation
	Retry      Retry
	// Observer receives events for operations and their requests. Events contain no
	// secrets.
	Observer observe.Observer
	// Logger receives records that belong to no event. Nil logs nothing.
	Logger *slog.Logger
	// Secrets records the tokens that are sent. They are redacted in the texts of
	// responses and of the transport, as are those that Known adds.
	Secrets *redact.Known
	// Auth is called before every operation.
	Auth func(context.Context) (Auth, error)
	// Refresh is called if a response rejects the token. It returns false if
	// no better token exists.
	Refresh func(ctx context.Context, stale Auth) (Auth, bool)
	// MaxRateLimitWait limits how long an operation waits for rate limits. If it is not
	// positive, no request is held back.
	MaxRateLimitWait time.Duration
}

// Client sends operations. It is safe for concurrent use.
type Client struct {
	cfg      Config
	base     string // escaped path prefix
	retrier  *retryablehttp.Client
	limits   sync.Map    // from *Op to the RateLimit of its last response
	sawLimit atomic.Bool // a response has reported a limit
	clock    *clock
	owners   owners
}

// New returns a new client.
func New(cfg Config) *Client {
	cfg.Secrets = cmp.Or(cfg.Secrets, &redact.Known{})
	hc := *cfg.HTTPClient
	rt := cmp.Or(hc.Transport, http.DefaultTransport)
	clk := &clock{}
	hc.Transport = bufferingTransport{onceTransport{next: rt, http1: new(atomic.Bool)}, newGates(cfg.MaxRateLimitWait, clk), clk}
	hc.CheckRedirect = redirectPolicy(cfg.BaseURL, hc.CheckRedirect)
	return &Client{
		cfg:     cfg,
		clock:   clk,
		base:    cfg.BaseURL.EscapedPath(),
		retrier: newRetrier(&hc, cfg.Retry),
	}
}

// Request is one call of an operation.
type Request struct {
	Op    *Op
	Path  []string   // values of the path's placeholders
	Query url.Values // teamId is added
	Body  any        // sent as JSON; nil sends none
	// Open, instead of Body, opens the request body for each attempt.
	Open   func() (io.ReadCloser, error)
	Header http.Header // added to the request; keys in canonical form
	New    string      // the requested name, if the operation creates something
	Extra  any         // all of its values are secret; may be nil

	// Uncertain is set at the end of the operation if an attempt without a clear response
	// may have taken effect, or may still do so.
	Uncertain bool
	// Sent is the length of the bodies that were sent.
	Sent int64
}

var (
	jsonType = []string{"application/json"}
	identity = []string{"identity"}
)

// Do performs an operation and decodes its JSON response into out, unless out
// is nil. Errors are of type *Failure, or *AuthError if there are no credentials. A
// response that breaks off or is not the API's counts as no response.
func (c *Client) Do(ctx context.Context, req *Request, out any) error {
	a := &attempts{client: c, req: req, buffered: true, out: out}
	ctx, a.op = a.startEvent(ctx, observe.Event{Kind: observe.Operation})
	resp, err := c.send(ctx, a)
	if resp != nil {
		resp.Body.Close()
	}
	if n, ok := out.(namedResponse); ok && err == nil {
		sandbox, session := n.Names()
		c.owners.learn(session, sandbox)
	}
	a.finish(err)
	return err
}

// decode decodes a JSON response into out. It first clears what an earlier attempt has
// decoded.
func decode(body []byte, out any) error {
	if len(body) == 0 {
		return io.ErrUnexpectedEOF
	}
	reflect.ValueOf(out).Elem().SetZero()
	return json.Unmarshal(body, out)
}

// Stream performs an operation and returns its response with the body unread. The caller
// must close it. Errors are like those of Do.
func (c *Client) Stream(ctx context.Context, req *Request) (*http.Response, error) {
	a := &attempts{client: c, req: req}
	ctx, a.op = a.startEvent(ctx, observe.Event{Kind: observe.Operation})
	resp, err := c.send(ctx, a)
	if err != nil {
		a.finish(err)
		return nil, err
	}
	resp.Body = &streamBody{ReadCloser: resp.Body, attempts: a}
	return resp, nil
}

// send performs an operation. It returns neither a response nor an error for a delete that
// an earlier attempt has completed.
func (c *Client) send(ctx context.Context, a *attempts) (*http.Response, error) {
	req := a.req
	auth, err := c.cfg.Auth(ctx)
	if err != nil {
		return nil, &AuthError{Err: err}
	}
	var body []byte
	if req.Body != nil {
		if body, err = json.Marshal(req.Body); err != nil {
			return nil, c.sendFailure(a, err)
		}
	}
	if ctx.Err() != nil {
		return nil, c.sendFailure(a, ContextError(ctx)) // nothing is sent
	}
	c.cfg.Secrets.Add(auth.Token)
	traced := a.trace(ctx)
	resp, err := c.sendWithRetries(traced, a, auth, body)
	if err == nil && (a.verdict.kind == Unauthorized || a.verdict.kind == NoDrives) && c.cfg.Refresh != nil {
		// The token was rejected, so the operation had no effect and may be
		// retried whatever its class.
		if better, ok := c.cfg.Refresh(ctx, auth); ok {
			c.cfg.Secrets.Add(better.Token)
			a.setCause(nil)
			resp.Body.Close()
			resp, err = c.sendWithRetries(traced, a, better, body)
		}
	}
	req.Uncertain, req.Sent = a.uncertain, a.op.Sent+a.sent.Load()
	if err == nil && a.verdict.err == nil {
		c.storeLimit(req.Op, resp.Header)
	}
	switch {
	case err != nil:
		// When the context ends, either the connection or an upload's source may fail
		// first. Always return the context's error.
		if ctx.Err() != nil {
			err = ContextError(ctx)
		} else if limited, ok := errors.AsType[*LimitError](err); ok {
			err = limited // without the URL, because nothing was sent
		}
		return nil, c.sendFailure(a, err)
	case a.verdict.err == nil && resp.StatusCode < 300:
		return resp, nil
	}
	f := c.newFailure(a)
	f.Kind, f.Err = a.verdict.kind, a.verdict.err
	if f.Kind == Unauthorized || f.Kind == NoDrives {
		f.As = auth.As
	}
	f.Code, f.Message = a.verdict.refusal.Error.Code, a.verdict.refusal.Error.Message
	f.Status, f.Header = resp.StatusCode, resp.Header
	f.RetryAfter, _ = retryAfter(resp.Header, time.Now())
	if body, ok := resp.Body.(*responseBody); ok {
		f.Body = bytes.Clone(body.content.Bytes()[:min(body.content.Len(), maxErrorBody)])
	}
	resp.Body.Close()
	if req.Op.Method == http.MethodDelete && req.Op.Class == Safe && f.Kind == NotFound && a.uncertain {
		if reportsLimit(resp.Header) || !c.Vouches() {
			return nil, nil
		}
		f.Kind, f.Err = Foreign, foreignError(resp, nil, errors.New("not found, without the rate limit of the API's responses"))
	}
	return nil, c.redactFailure(f, req)
}

// sendWithRetries sends the request, with retries.
func (c *Client) sendWithRetries(ctx context.Context, a *attempts, auth Auth, body []byte) (*http.Response, error) {
	req := a.req
	rr, err := retryablehttp.FromRequest(c.request(ctx, req, auth))
	if err != nil {
		return nil, err
	}
	switch {
	case req.Open != nil:
		err = rr.SetBody(retryablehttp.ReaderFunc(func() (io.Reader, error) {
			a.bodyRead.Store(false)
			return &lazyBody{open: req.Open, sent: &a.sent, opened: &a.bodyRead}, nil
		}))
		rr.ContentLength = -1
	case body != nil:
		err = rr.SetBody(body)
	}
	if err != nil {
		return nil, err
	}
	resp, err := c.retrier.Do(rr)
	if err != nil && resp != nil {
		resp.Body.Close()
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		// Queries may contain secrets, in particular after a redirect.
		e.URL, _, _ = strings.Cut(e.URL, "?")
	}
	return resp, err
}

// request returns the HTTP request of an operation, without its body.
func (c *Client) request(ctx context.Context, req *Request, auth Auth) *http.Request {
	plain, escaped := req.Op.expand(req.Path)
	query := "teamId=" + url.QueryEscape(auth.TeamID)
	if len(req.Query) > 0 {
		query += "&" + req.Query.Encode()
	}
	header := make(http.Header, 6)
	header["Authorization"] = []string{"Bearer " + auth.Token}
	header["User-Agent"] = []string{c.cfg.UserAgent()}
	if req.Open == nil {
		// The service responds with 415 to a POST without one, even without a
		// body.
		header["Content-Type"] = jsonType
	}
	if req.Op.Stream() {
		// Compression would delay a stream, and hide the length of a file.
		header["Accept-Encoding"] = identity
	}
	maps.Copy(header, req.Header)
	return (&http.Request{
		Method: req.Op.Method,
		URL: &url.URL{
			Scheme: c.cfg.BaseURL.Scheme, Host: c.cfg.BaseURL.Host,
			Path: c.cfg.BaseURL.Path + plain, RawPath: c.base + escaped, RawQuery: query,
		},
		Host: c.cfg.BaseURL.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header,
	}).WithContext(ctx)
}

func (c *Client) newFailure(a *attempts) *Failure {
	op, path := a.req.Op, a.req.Path
	f := &Failure{
		Op: op, Attempts: a.count, Uncertain: a.uncertain, Kind: Broken,
		Sandbox: op.placeholder("sandbox", path), Session: op.placeholder("session", path), Command: op.placeholder("command", path),
		Object: cmp.Or(op.placeholder("snapshot", path), op.placeholder("drive", path)),
	}
	if f.Session != "" {
		f.Sandbox = c.Owner(f.Session)
	}
	return f
}

// sendFailure returns the failure of an operation that received no response.
func (c *Client) sendFailure(a *attempts, err error) error {
	f := c.newFailure(a)
	f.Err = err
	return c.redactFailure(f, a.req)
}
