// Package api is the transport of the Vercel Sandbox API: the table of
// operations with their retry classes, requests, retries, and the decoding of
// responses and errors.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	// As says in words whose they are, for the error of a refusal.
	As string
}

// Config configures a Client. Every field but Observer, Secrets and Refresh is
// required.
type Config struct {
	BaseURL    *url.URL
	HTTPClient *http.Client
	UserAgent  func() string // called before every operation
	Retry      Retry
	// Observer is told of operations and their requests, of which no event has a
	// secret.
	Observer observe.Observer
	// Secrets records the tokens that are sent. They are removed from what
	// responses and the transport report, as is what Known adds to them.
	Secrets *redact.Known
	// Auth is called before every operation.
	Auth func(context.Context) (Auth, error)
	// Refresh is called if a response rejects the token. It returns false if
	// no better token exists.
	Refresh func(ctx context.Context, stale Auth) (Auth, bool)
	// MaxRateLimitWait limits how long an operation waits for rate limits to
	// permit its requests. If it is not positive, none is held back.
	MaxRateLimitWait time.Duration
}

// Client sends operations. It is safe for concurrent use.
type Client struct {
	cfg     Config
	base    string // escaped path prefix
	retrier *retryablehttp.Client
	limits  sync.Map    // *Op to the RateLimit of its last response
	vouches atomic.Bool // there was one
	clock   *clock
	owners  owners
}

// New returns a new client.
func New(cfg Config) *Client {
	if cfg.Secrets == nil {
		cfg.Secrets = &redact.Known{}
	}
	hc := *cfg.HTTPClient
	rt := hc.Transport
	if rt == nil {
		rt = http.DefaultTransport
	}
	told := &clock{}
	hc.Transport = wholeResponses{once{next: rt, http1: new(atomic.Bool)}, newGates(cfg.MaxRateLimitWait, told), told}
	hc.CheckRedirect = redirectPolicy(cfg.BaseURL, hc.CheckRedirect)
	return &Client{
		cfg:     cfg,
		clock:   told,
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
	New    string      // the requested name, if the operation makes something
	Extra  any         // what of the query and Body is secret, whatever it is; nil for nothing

	// Uncertain is set when the operation is over, if an attempt may have taken
	// effect, or may still do so, without a clear response.
	Uncertain bool
	// Sent is the length of the bodies that were sent.
	Sent int64
}

var (
	jsonType = []string{"application/json"}
	identity = []string{"identity"}
)

// Do performs an operation and decodes its JSON response into out, unless out
// is nil. Errors are of type *Failure, or *AuthError if there are no
// credentials. A response that breaks off, or is not the API's, counts as none.
func (c *Client) Do(ctx context.Context, req *Request, out any) error {
	a := &attempts{client: c, req: req, whole: true, out: out}
	ctx, a.op = a.start(ctx, observe.Event{Kind: observe.Operation})
	resp, err := c.send(ctx, a)
	if resp != nil {
		resp.Body.Close()
	}
	if about, ok := out.(named); ok && err == nil {
		sandbox, session := about.Names()
		c.owners.learn(session, sandbox)
	}
	a.end(err)
	return err
}

// decode decodes a JSON response into out. What an earlier attempt has left there
// is gone.
func decode(body []byte, out any) error {
	if len(body) == 0 {
		return io.ErrUnexpectedEOF
	}
	reflect.ValueOf(out).Elem().SetZero()
	return json.Unmarshal(body, out)
}

// Stream performs an operation and returns its response with the body unread;
// the caller must close it. Errors are like those of Do.
func (c *Client) Stream(ctx context.Context, req *Request) (*http.Response, error) {
	a := &attempts{client: c, req: req}
	ctx, a.op = a.start(ctx, observe.Event{Kind: observe.Operation})
	resp, err := c.send(ctx, a)
	if err != nil {
		a.end(err)
		return nil, err
	}
	resp.Body = &streamBody{ReadCloser: resp.Body, attempts: a}
	return resp, nil
}

// send performs an operation. It returns neither a response nor an error if a
// delete turned out to be done already.
func (c *Client) send(ctx context.Context, a *attempts) (*http.Response, error) {
	req := a.req
	auth, err := c.cfg.Auth(ctx)
	if err != nil {
		return nil, &AuthError{Err: err}
	}
	var body []byte
	if req.Body != nil {
		if body, err = json.Marshal(req.Body); err != nil {
			return nil, c.broken(a, err)
		}
	}
	if ctx.Err() != nil {
		return nil, c.broken(a, ContextError(ctx)) // nothing is sent
	}
	c.cfg.Secrets.Add(auth.Token)
	traced := a.trace(ctx)
	resp, err := c.try(traced, a, auth, body)
	if err == nil && (a.verdict.kind == Unauthorized || a.verdict.kind == NoDrives) && c.cfg.Refresh != nil {
		// The token was rejected, so the operation had no effect and may be
		// retried whatever its class.
		if better, ok := c.cfg.Refresh(ctx, auth); ok {
			c.cfg.Secrets.Add(better.Token)
			a.because(nil)
			resp.Body.Close()
			resp, err = c.try(traced, a, better, body)
		}
	}
	req.Uncertain, req.Sent = a.uncertain, a.op.Sent+a.sent.Load()
	if err == nil && a.verdict.err == nil {
		c.noteLimit(req.Op, resp.Header)
	}
	switch {
	case err != nil:
		// Whether the connection or an upload's source breaks first when the
		// context ends is chance. Report the context's error.
		if ctx.Err() != nil {
			err = ContextError(ctx)
		} else if limited, ok := errors.AsType[*LimitError](err); ok {
			err = limited // no URL: nothing was sent there
		}
		return nil, c.broken(a, err)
	case a.verdict.err == nil && resp.StatusCode < 300:
		return resp, nil
	}
	f := c.failure(a)
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
		if tellsLimit(resp.Header) || !c.Vouches() {
			return nil, nil
		}
		f.Kind, f.Err = Foreign, foreign(resp, nil, errors.New("not found, and no rate limit, of which the API's responses have told"))
	}
	return nil, c.shown(f, req)
}

// try runs the retry loop once.
func (c *Client) try(ctx context.Context, a *attempts, auth Auth, body []byte) (*http.Response, error) {
	req := a.req
	rr, err := retryablehttp.FromRequest(c.request(ctx, req, auth))
	if err != nil {
		return nil, err
	}
	switch {
	case req.Open != nil:
		err = rr.SetBody(retryablehttp.ReaderFunc(func() (io.Reader, error) {
			a.asked.Store(false)
			return &lazyBody{open: req.Open, sent: &a.sent, asked: &a.asked}, nil
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

// request makes the HTTP request of an operation, without its body.
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
		// A compressed stream would be delayed by the compressor's window, and
		// a compressed file would lose its length.
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

func (c *Client) failure(a *attempts) *Failure {
	op, path := a.req.Op, a.req.Path
	f := &Failure{
		Op: op, Attempts: a.count, Uncertain: a.uncertain, Kind: Broken,
		Sandbox: op.placeholder("sandbox", path), Session: op.placeholder("session", path), Command: op.placeholder("command", path),
	}
	if f.Session != "" {
		f.Sandbox = c.Owner(f.Session)
	}
	return f
}

// broken returns the failure of an operation that received no response.
func (c *Client) broken(a *attempts, err error) error {
	f := c.failure(a)
	f.Err = err
	return c.shown(f, a.req)
}

// shown returns a failure as it leaves the package, without secrets in what the
// other end sent.
func (c *Client) shown(f *Failure, req *Request) *Failure {
	known := c.Known(req)
	f.Code, f.Message, f.Err = known.Text(f.Code), known.Text(f.Message), known.Error(f.Err)
	f.Header = known.Header(f.Header)
	if body := string(f.Body); known.Text(body) != body {
		f.Body = []byte(known.Text(body))
	}
	return f
}

// Known returns the secrets that must not come back in what is said of a request,
// which may be nil: the tokens that were sent, and the request's own. A body with
// a method Secrets returns the part of it that may hold secrets.
func (c *Client) Known(req *Request) *redact.Known {
	if req == nil || req.Body == nil && req.Extra == nil {
		return c.cfg.Secrets
	}
	body := req.Body
	if b, ok := body.(interface{ Secrets() any }); ok {
		body = b.Secrets()
	}
	data, err := json.Marshal([]any{body, req.Extra})
	var sent [2]any
	if err != nil || json.Unmarshal(data, &sent) != nil {
		return c.cfg.Secrets // nothing was sent
	}
	return c.cfg.Secrets.With(secretsOf(secretsOf(nil, sent[0], false), sent[1], true)...)
}

// secretsOf adds the secrets of a value of a request: the values of variables and
// headers, names and passwords, those in addresses, or all that is in it.
func secretsOf(list []string, v any, all bool) []string {
	switch v := v.(type) {
	case string:
		if all {
			list = append(list, v)
		}
	case []any:
		for _, x := range v {
			list = secretsOf(list, x, all)
		}
	case map[string]any:
		for name, x := range v {
			text, _ := x.(string)
			_, table := x.(map[string]any) // other headers are those that a rule matches
			switch name {
			case "url", "forwardURL":
				list = append(secretsOf(list, x, all), redact.URLSecrets(text)...)
			case "env", "username", "password", "credentials":
				list = secretsOf(list, x, true)
			default:
				list = secretsOf(list, x, all || name == "headers" && table)
			}
		}
	}
	return list
}
