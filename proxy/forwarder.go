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

	// TLSConfig is used for https. Nil means the system's roots and TLS 1.2 or
	// later. It is copied.
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
	log          *slog.Logger

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
	if o.MaxRequestBody < 0 || o.MaxResponseBody < 0 || o.ResponseTimeout < 0 {
		return nil, errors.New("proxy: a limit is negative")
	}
	f := &Forwarder{
		allowPrivate: append([]netip.Prefix(nil), o.AllowPrivate...),
		maxRequest:   o.MaxRequestBody,
		maxResponse:  o.MaxResponseBody,
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
			return mayDial(address, f.allowPrivate)
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
	if status, err := f.admit(r, x); err != nil {
		x.fail(w, status, err)
		return
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
func (f *Forwarder) admit(r *http.Request, x *exchange) (status int, err error) {
	meta, ok := FromContext(r.Context())
	switch {
	case !ok:
		return http.StatusForbidden, errors.New("proxy: the request did not come through Handler")
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		// TRACE would hand back the headers with the secrets in them.
		return http.StatusMethodNotAllowed, errors.New("proxy: method not allowed")
	case r.URL.Host == "" || r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return http.StatusForbidden, errors.New("proxy: not an http or https URL")
	case f.hosts != nil && !matchesAny(f.hosts, r.URL):
		return http.StatusForbidden, errors.New("proxy: host not allowed")
	case f.maxRequest > 0 && r.ContentLength > f.maxRequest:
		return http.StatusRequestEntityTooLarge, &http.MaxBytesError{Limit: f.maxRequest}
	}
	if x.edits, err = prepare(r.Context(), f.rules, r, meta); err != nil {
		return http.StatusBadGateway, err
	}
	return 0, nil
}

// rewrite completes the outgoing request, from which ReverseProxy has removed
// hop-by-hop and X-Forwarded headers.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL = new(*p.In.URL) // with the query as it came, which Out's is not
	p.Out.Host = ""            // that of the URL, with its port
	p.Out.Trailer = p.In.Trailer
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
	if x := exchangeOf(p.In); x != nil {
		for i := range x.edits {
			x.edits[i].apply(p.Out.Header)
		}
	}
}

// ofThePlatform reports whether a header is one that Vercel adds to requests for
// a service that it hosts, with credentials of that service in it. They are not
// the sandbox's, and must not go where a sandbox sends its requests.
func ofThePlatform(name string) bool {
	return name == "X-Vercel-Oidc-Token" || strings.HasPrefix(name, "X-Vercel-Sc-") ||
		strings.HasPrefix(name, "X-Vercel-Proxy-Signature") || strings.HasPrefix(name, "X-Vercel-Internal-")
}

// modifyResponse counts and limits the body of a response.
func (f *Forwarder) modifyResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	if x == nil {
		return nil
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
	var timeout interface{ Timeout() bool }
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case errors.Is(err, errPrivateAddress):
		status = http.StatusForbidden
	case tooLarge:
		status = http.StatusRequestEntityTooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		status = http.StatusGatewayTimeout
	}
	exchangeOf(r).fail(w, status, err)
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
