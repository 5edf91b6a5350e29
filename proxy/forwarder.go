package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

	"github.com/go-vercel/sandbox/internal/relay"
)

// ForwarderOptions are the options of [NewForwarder].
type ForwarderOptions struct {
	// Rules change the headers of requests, in particular to insert
	// credentials. All rules that apply to a request are applied, in order.
	Rules []Rule

	// Hosts lists the hosts that requests may go to, in the form of
	// [Rule.Hosts]; requests to others receive status 403. Nil allows every
	// host that the sandbox's network policy forwards.
	Hosts []string

	// AllowPrivate lists networks that may be reached although they are not
	// part of the public internet. By default connections to loopback, private,
	// link-local and other special addresses are refused, whatever name
	// resolves to them.
	AllowPrivate []netip.Prefix

	// MaxResponseBody limits the size of a response's body, in bytes. Zero means
	// no limit. A larger response is replaced with status 502 if its size was
	// announced, and is cut off otherwise. WebSocket data does not count.
	// [Handler] describes how to limit requests.
	MaxResponseBody int64

	// MaxDuration is how long a request may take in total, including its
	// response, streams and WebSockets. Tokens are checked when a request
	// begins, so this is how long a sandbox is served after its token has
	// expired. Zero means no limit.
	MaxDuration time.Duration

	// TLSConfig is used for https. Nil means the system's roots and TLS 1.2 or
	// later. It is copied. Its certificates are presented to every host that
	// asks for one, and sandboxes choose the hosts: restrict them with Hosts.
	TLSConfig *tls.Config

	// DialContext makes the connections. Nil means a dialer that refuses private
	// addresses; see AllowPrivate. With a DialContext of your own, AllowPrivate has no
	// effect. It is for tests with local servers, and for networks behind a tunnel.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)

	// Logger receives one line per request at level Info: the sandbox, the
	// host, the result, the number of bytes and the duration. It never receives
	// headers, paths or queries, which may contain secrets. Nil disables
	// logging.
	Logger *slog.Logger
}

// Forwarder is a handler that forwards requests to their original destination. It serves
// only requests from [Handler] and responds to all others with status 403, because without
// a verified sandbox it would be an open proxy.
//
// Bodies stream in both directions without being stored, responses reach the
// sandbox as they arrive (including server-sent events), and WebSockets work.
// Other protocol upgrades are not offered to the server. It does not follow
// redirects, and uses no proxy of its own, because it could not check the
// addresses behind one.
//
// Headers that proxies in front of the Forwarder add are removed: X-Forwarded headers,
// Forwarded, and those with credentials that Vercel gives to the services that it hosts, such
// as X-Vercel-Oidc-Token.
//
// Trailers of requests are not forwarded.
//
// Connections to the addresses of this machine's own interfaces are refused
// like those to private addresses, even if they are public. Neighbors with
// public addresses, as is usual with IPv6, must be protected by a firewall.
//
// A server may send back what it has received. Use rules only for hosts that
// can be trusted not to show the secret to the sandbox.
//
// A Forwarder is safe for concurrent use.
type Forwarder struct {
	rules        []rule
	hosts        []hostPattern // nil: all
	allowPrivate []netip.Prefix
	maxResponse  int64
	maxDuration  time.Duration
	log          *slog.Logger

	own       ownAddresses
	dialer    *net.Dialer
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	buffers   bufferPool
}

// NewForwarder returns a new Forwarder. opts is copied; nil means the defaults.
// It returns an error if a rule or host is invalid.
func NewForwarder(opts *ForwarderOptions) (*Forwarder, error) {
	o := *cmp.Or(opts, new(ForwarderOptions))
	if o.MaxResponseBody < 0 {
		return nil, errors.New("proxy: MaxResponseBody is negative: use 0 for no limit")
	}
	if o.MaxDuration < 0 {
		return nil, errors.New("proxy: MaxDuration is negative: use 0 for no limit")
	}
	f := &Forwarder{
		allowPrivate: append([]netip.Prefix(nil), o.AllowPrivate...),
		maxResponse:  o.MaxResponseBody,
		maxDuration:  o.MaxDuration,
		log:          o.Logger,
	}
	f.log = cmp.Or(f.log, slog.New(slog.DiscardHandler))
	for i, r := range o.Rules {
		checked, err := newRule(r)
		if err != nil {
			return nil, fmt.Errorf("proxy: Rules[%d]: %w", i, err)
		}
		f.rules = append(f.rules, checked)
	}
	if o.Hosts != nil {
		var err error
		if f.hosts, err = parseHostPatterns(o.Hosts); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	f.dialer = &net.Dialer{
		Timeout: 10 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return checkDial(address, f.allowPrivate, f.own.get)
		},
	}
	config := cmp.Or(o.TLSConfig.Clone(), &tls.Config{MinVersion: tls.VersionTLS12})
	dial := f.dialer.DialContext
	if o.DialContext != nil {
		dial = o.DialContext
	}
	f.transport = &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // bodies are forwarded unchanged
		MaxIdleConns:           256,  // in total, since the number of hosts is unlimited
		MaxIdleConnsPerHost:    32,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
	f.proxy = &httputil.ReverseProxy{
		Transport:      f.transport,
		Rewrite:        rewrite,
		ModifyResponse: f.modifyResponse,
		ErrorHandler:   respondError,
		FlushInterval:  -1,
		BufferPool:     &f.buffers,
		ErrorLog:       log.New(io.Discard, "", 0), // errors are logged by logLine
	}
	return f, nil
}

// CloseIdleConnections closes connections to servers that are not in use. They
// are closed after 90 seconds by default.
func (f *Forwarder) CloseIdleConnections() {
	if f == nil || f.transport == nil {
		return
	}
	f.transport.CloseIdleConnections()
}

// ServeHTTP forwards a request. It implements [http.Handler].
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
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &countedBody{ReadCloser: r.Body, count: &x.sent}
	}
	relay.Serve(f.proxy, w, r)
	x.complete = true
}

// admit decides whether a request is forwarded, and prepares the secrets to insert.
func (f *Forwarder) admit(r *http.Request, x *exchange) (status int, reason string) {
	meta, ok := FromContext(r.Context())
	switch {
	case !ok:
		return http.StatusForbidden, "the request did not come through Handler"
	case slices.ContainsFunc(refusedMethods, func(m string) bool { return strings.EqualFold(m, r.Method) }):
		return http.StatusMethodNotAllowed, "TRACE, TRACK and CONNECT are not forwarded"
	case r.URL.Host == "" || r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return http.StatusForbidden, "the URL is not an http or https URL"
	case f.hosts != nil && !matchesURL(f.hosts, r.URL):
		return http.StatusForbidden, "the host is not in ForwarderOptions.Hosts"
	}
	x.edits, status, reason, x.cause = prepareEdits(r.Context(), f.rules, r, meta)
	return status, reason
}

// refusedMethods make a server return the request's headers, including the
// secrets (some servers in any spelling), or open a tunnel.
var refusedMethods = []string{http.MethodTrace, "TRACK", http.MethodConnect}

// rewrite completes the outgoing request, from which ReverseProxy has removed
// hop-by-hop and X-Forwarded headers.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL = new(*p.In.URL) // with the original query, unlike Out
	p.Out.Host = ""            // empty means the host of the URL, with its port
	p.Out.Trailer = nil        // rules don't change trailers, so none are sent
	x := exchangeOf(p.In)
	if !strings.EqualFold(p.Out.Header.Get("Upgrade"), "websocket") {
		p.Out.Header.Del("Upgrade")
		p.Out.Header.Del("Connection")
		p.Out.Header.Del("Http2-Settings")
	}
	for name := range p.Out.Header {
		if isPlatformHeader(name) {
			delete(p.Out.Header, name)
		}
	}
	for i := range x.edits {
		x.edits[i].apply(p.Out.Header)
	}
}

// isPlatformHeader reports whether Vercel adds a header to requests for a service
// that it hosts, with credentials of that service. Servers that a sandbox chooses
// must not receive these credentials.
func isPlatformHeader(name string) bool {
	name = canonicalHeader(name)
	return name == "X-Vercel-Oidc-Token" || strings.HasPrefix(name, "X-Vercel-Sc-") ||
		strings.HasPrefix(name, "X-Vercel-Proxy-Signature") || strings.HasPrefix(name, "X-Vercel-Internal-")
}

// modifyResponse counts and limits the body of a response.
func (f *Forwarder) modifyResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	if x == nil {
		return nil
	}
	// An informational response can't be forwarded here. The connection of an upgrade that was
	// not requested would stay open.
	if resp.StatusCode < 200 && (resp.StatusCode != http.StatusSwitchingProtocols ||
		!strings.EqualFold(resp.Request.Header.Get("Upgrade"), resp.Header.Get("Upgrade"))) {
		return errBadStatus
	}
	relay.Disarm(resp.Header)
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

// respondError responds to a request that could not be forwarded.
func respondError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadGateway
	reason := reasonFor(err)
	switch reason {
	case reasonRequestTooLarge:
		status = http.StatusRequestEntityTooLarge
	case reasonTimeout:
		status = http.StatusGatewayTimeout
	case reasonPrivate:
		// Treat a name with a private address like one that does not exist.
		// Otherwise a sandbox could find out which names exist in the private
		// network.
		if _, err := netip.ParseAddr(strings.Trim(r.URL.Hostname(), "[]")); err == nil {
			status = http.StatusForbidden
		}
	}
	exchangeOf(r).fail(w, status, reason)
}

// bufferPool holds the buffers that bodies are copied through.
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
