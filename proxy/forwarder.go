package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ForwarderOptions are the choices that [NewForwarder] leaves open.
type ForwarderOptions struct {
	// Rules change the headers of requests: this is where credentials are put
	// in. All rules that are for a request work on it, in their order.
	Rules []Rule

	// Hosts lists the hosts that requests may go to, in the form of
	// [Rule.Hosts]; others are answered 403. Nil allows all, as far as the
	// sandbox's network policy sends them here.
	Hosts []string

	// AllowPrivate lists the networks that may be reached although they are not
	// part of the public internet. Without it connections to loopback, private,
	// link-local and other special addresses are refused, whatever name they
	// are hidden behind.
	AllowPrivate []netip.Prefix

	// MaxRequestBody and MaxResponseBody are the most bytes that bodies may
	// have. 0 means no limit. A larger request is answered 413. A larger response
	// is answered 502 when its size was announced, and is cut off otherwise.
	// They do not count what goes through a WebSocket.
	MaxRequestBody  int64
	MaxResponseBody int64

	// ResponseTimeout is how long a server may take to begin its answer once it
	// has the whole request. 0 means no limit.
	ResponseTimeout time.Duration

	// MaxDuration is how long a request may take altogether, with its answer,
	// streams and WebSockets included. A token is looked at when a request begins,
	// so this is how long a sandbox is served after its token has expired. 0 means
	// no limit.
	MaxDuration time.Duration

	// TLSConfig is used for https. Nil means the system's roots and TLS 1.2 or
	// later. It is copied. Certificates in it are shown to every host that asks
	// for one, and sandboxes choose the hosts: limit them by Hosts.
	TLSConfig *tls.Config

	// Logger gets one line at level Info for every request: who asked, which
	// host, what came of it, how many bytes and how long. It never gets headers,
	// paths or queries, where secrets may be. Nil logs nothing.
	Logger *slog.Logger
}

// Forwarder passes requests on to where the sandbox wanted to send them. It
// serves only requests that have come through [Handler], and answers all others
// 403: without a verified sandbox it would be an open proxy.
//
// Bodies stream in both directions and nothing is kept, responses reach the
// sandbox as they arrive (server-sent events do too), and WebSockets work. Other
// protocol upgrades are not offered to the server. It follows no redirect, and it
// uses no proxy of its own, because it could not see the addresses behind one.
//
// Headers that are about the way here stay behind: X-Forwarded and Forwarded, and
// those in which Vercel gives credentials to the services that it hosts, such as
// X-Vercel-Oidc-Token.
//
// Trailers of requests are passed on unless they are named like one of those, like
// a header that says how a message is sent, or like the header of a rule.
//
// Connections to the addresses of this machine's own interfaces are refused like
// those to private ones, also when they are public by their number. Neighbours
// with public addresses, as IPv6 gives them, are for a firewall to protect.
//
// A server may send back what it was sent. Rules are for hosts that can be
// trusted with the secret, not to show it to the sandbox.
//
// A Forwarder is safe for concurrent use.
type Forwarder struct {
	rules        []rule
	hosts        []hostPattern // nil: all
	allowPrivate []netip.Prefix
	maxRequest   int64
	maxResponse  int64
	maxDuration  time.Duration
	log          *slog.Logger

	own       ownAddresses
	dialer    *net.Dialer
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	buffers   bufferPool
}

// NewForwarder makes a Forwarder. opts is copied; nil means the defaults. It fails
// when a rule or host can't be understood.
func NewForwarder(opts *ForwarderOptions) (*Forwarder, error) {
	var o ForwarderOptions
	if opts != nil {
		o = *opts
	}
	if o.MaxRequestBody < 0 || o.MaxResponseBody < 0 || o.ResponseTimeout < 0 || o.MaxDuration < 0 {
		return nil, errors.New("proxy: a limit is negative")
	}
	f := &Forwarder{
		allowPrivate: append([]netip.Prefix(nil), o.AllowPrivate...),
		maxRequest:   o.MaxRequestBody,
		maxResponse:  o.MaxResponseBody,
		maxDuration:  o.MaxDuration,
		log:          o.Logger,
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	for _, r := range o.Rules {
		checked, err := newRule(r)
		if err != nil {
			return nil, err
		}
		f.rules = append(f.rules, checked)
	}
	if o.Hosts != nil {
		var err error
		if f.hosts, err = parseHostPatterns(o.Hosts); err != nil {
			return nil, err
		}
	}
	f.dialer = &net.Dialer{
		Timeout: 10 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return mayDial(address, f.allowPrivate, f.own.get)
		},
	}
	config := o.TLSConfig.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	f.transport = &http.Transport{
		DialContext:            f.dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // bodies are passed on as they are
		MaxIdleConns:           256,  // in all: sandboxes think of hosts without number
		MaxIdleConnsPerHost:    32,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  o.ResponseTimeout,
		MaxResponseHeaderBytes: 1 << 20,
	}
	f.proxy = &httputil.ReverseProxy{
		Transport:      f.transport,
		Rewrite:        rewrite,
		ModifyResponse: f.modifyResponse,
		ErrorHandler:   answerError,
		FlushInterval:  -1,
		BufferPool:     &f.buffers,
		ErrorLog:       log.New(io.Discard, "", 0), // its errors are in our own line
	}
	return f, nil
}

// CloseIdleConnections closes the connections to servers that are not in use.
// They go by themselves after 90 seconds.
func (f *Forwarder) CloseIdleConnections() {
	f.transport.CloseIdleConnections()
}

// ServeHTTP passes a request on.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{start: time.Now()}
	defer f.logLine(r, x)
	if status, reason := f.admit(r, x); reason != "" {
		x.fail(w, status, reason)
		return
	}
	if f.maxDuration > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), f.maxDuration)
		defer cancel()
		r = r.WithContext(ctx)
	}
	// A server may answer while the request is still on its way.
	_ = http.NewResponseController(w).EnableFullDuplex()
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if r.Body != nil && r.Body != http.NoBody {
		body := r.Body
		if f.maxRequest > 0 {
			body = http.MaxBytesReader(w, body, f.maxRequest)
		}
		r.Body = &countedBody{ReadCloser: body, count: &x.sent}
	}
	f.proxy.ServeHTTP(w, r)
	x.complete = true
}

// admit decides whether a request is passed on, and prepares what is put in.
func (f *Forwarder) admit(r *http.Request, x *exchange) (status int, reason string) {
	meta, ok := FromContext(r.Context())
	switch {
	case !ok:
		return http.StatusForbidden, "the request did not come through Handler"
	case slices.ContainsFunc(refusedMethods, func(m string) bool { return strings.EqualFold(m, r.Method) }):
		return http.StatusMethodNotAllowed, "method not allowed"
	case r.URL.Host == "" || r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return http.StatusForbidden, "not an http or https URL"
	case f.hosts != nil && !matchesAny(f.hosts, r.URL):
		return http.StatusForbidden, "host not allowed"
	case f.maxRequest > 0 && r.ContentLength > f.maxRequest:
		return http.StatusRequestEntityTooLarge, reasonRequestTooLarge
	}
	x.edits, status, reason = prepare(r.Context(), f.rules, r, meta)
	return status, reason
}

// refusedMethods are those that make a server hand back the headers with the
// secrets in them, some servers in any spelling, and the one that makes a tunnel.
var refusedMethods = []string{http.MethodTrace, "TRACK", http.MethodConnect}

// rewrite completes the outgoing request, from which ReverseProxy has removed
// hop-by-hop and X-Forwarded headers.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL = new(*p.In.URL) // with the query as it came, which Out's is not
	p.Out.Host = ""            // that of the URL, with its port
	x := exchangeOf(p.In)
	passTrailers(p, x.edits)
	if !strings.EqualFold(p.Out.Header.Get("Upgrade"), "websocket") {
		p.Out.Header.Del("Upgrade")
		p.Out.Header.Del("Connection")
		p.Out.Header.Del("Http2-Settings")
	}
	for name := range p.Out.Header {
		if ofThePlatform(name) {
			delete(p.Out.Header, name)
		}
	}
	for i := range x.edits {
		x.edits[i].apply(p.Out.Header)
	}
}

// ofThePlatform reports whether a header is one that Vercel adds to requests for
// a service that it hosts, with credentials of that service in it. They are not
// the sandbox's, and must not go where a sandbox sends its requests.
func ofThePlatform(name string) bool {
	name = dashed(name)
	return name == "X-Vercel-Oidc-Token" || strings.HasPrefix(name, "X-Vercel-Sc-") ||
		strings.HasPrefix(name, "X-Vercel-Proxy-Signature") || strings.HasPrefix(name, "X-Vercel-Internal-")
}

// modifyResponse counts and limits the body of a response.
func (f *Forwarder) modifyResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	if x == nil {
		return nil
	}
	// What is below could not be passed on as an answer. An upgrade that nobody
	// asked for can't either, and its connection would stay open.
	if resp.StatusCode < 200 && (resp.StatusCode != http.StatusSwitchingProtocols ||
		!strings.EqualFold(resp.Request.Header.Get("Upgrade"), resp.Header.Get("Upgrade"))) {
		return errBadStatus
	}
	// Web servers in front of a service take these for orders from it, to serve
	// one of their own files.
	for name := range resp.Header {
		if strings.HasPrefix(name, "X-Accel-") || strings.HasPrefix(name, "X-Lighttpd-") || strings.HasPrefix(name, "X-Sendfile") {
			delete(resp.Header, name)
		}
	}
	x.status = resp.StatusCode
	if tunnel, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &countedTunnel{ReadWriteCloser: tunnel, x: x}
		return nil
	}
	if f.maxResponse > 0 && resp.ContentLength > f.maxResponse && resp.Request.Method != http.MethodHead {
		return errResponseTooLarge
	}
	resp.Body = &countedBody{ReadCloser: resp.Body, count: &x.received, limit: f.maxResponse, x: x}
	return nil
}

// answerError answers a request that could not be passed on.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadGateway
	reason := reasonFor(err)
	switch reason {
	case reasonRequestTooLarge:
		status = http.StatusRequestEntityTooLarge
	case reasonTimeout:
		status = http.StatusGatewayTimeout
	case reasonPrivate:
		// A name with such an address is answered like one that there is not: the
		// difference would tell a sandbox which names exist inside.
		if _, err := netip.ParseAddr(strings.Trim(r.URL.Hostname(), "[]")); err == nil {
			status = http.StatusForbidden
		}
	}
	exchangeOf(r).fail(w, status, reason)
}

// bufferPool keeps the buffers that bodies are copied through.
type bufferPool struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, bufferSize)
}

func (p *bufferPool) Put(b []byte) {
	p.pool.Put((*[bufferSize]byte)(b))
}
