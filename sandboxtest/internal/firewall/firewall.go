// Package firewall carries the connections of sandboxes to the outside. A [Policy] says
// which are allowed, a [Firewall] enforces it for one session, and a [NAT] carries the
// bytes.
package firewall

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/relay"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// peekTimeout limits the time until a connection shows its destination.
const peekTimeout = 10 * time.Second

// Options are shared by the firewalls of a server.
type Options struct {
	// Names are servers that replace others, as in the server's options.
	Names map[string]string
	// Tokens returns the authority that signs the requests to forward URLs.
	Tokens func() (*proxytest.Authority, error)
	Guard  *guard.Guard
	Log    *slog.Logger
}

// Site is the state that the firewalls of a server share.
type Site struct {
	// Authority signs the certificates for inspected connections. It is set before the
	// first firewall is created.
	Authority *Authority

	opts  Options
	names *names
}

// NewSite reads the options.
func NewSite(opts Options) (*Site, error) {
	s := &Site{opts: opts}
	var err error
	if s.names, err = newNames(opts.Names); err != nil {
		return nil, err
	}
	return s, nil
}

// Firewall is between one session and the outside.
type Firewall struct {
	site   *Site
	claims proxytest.Claims // of the session
	policy atomic.Pointer[Policy]

	// server speaks HTTP with the sandbox's programs on connections whose TLS ends here,
	// and transport speaks HTTP with the outside.
	server    *http.Server
	conns     chan net.Conn
	transport *http.Transport
	forward   *http.Transport // to forward URLs, to which no policy applies
	ctx       context.Context
	cancel    context.CancelFunc
	serving   sync.WaitGroup
}

// New returns the firewall of a session. All connections end with ctx.
func (s *Site) New(ctx context.Context, claims proxytest.Claims, policy *Policy) *Firewall {
	f := &Firewall{site: s, claims: claims, conns: make(chan net.Conn)}
	f.policy.Store(policy)
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.transport, f.forward = f.newTransport(f.dialOut), f.newTransport(f.dialForward)
	f.server = &http.Server{
		Handler: http.HandlerFunc(f.serveHTTP), ReadHeaderTimeout: 2 * time.Minute,
		// The server would log broken connections, which are expected here.
		ErrorLog:  slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{NextProtos: []string{"h2", "http/1.1"}},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, flowKey{}, flowOf(c))
		},
	}
	f.serving.Go(func() { _ = f.server.Serve((*inbound)(f)) }) // ends by Close
	return f
}

func (f *Firewall) newTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:       dial,
		ForceAttemptHTTP2: true,
		// Programs in the sandbox request compression themselves if they want it.
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
	}
}

// Close ends all connections. It does nothing on nil.
func (f *Firewall) Close() {
	if f == nil {
		return
	}
	f.cancel()
	_ = f.server.Close() // broken connections are expected
	f.serving.Wait()
	f.transport.CloseIdleConnections()
	f.forward.CloseIdleConnections()
}

// Enforce sets another policy. Open connections stay.
func (f *Firewall) Enforce(policy *Policy) { f.policy.Store(policy) }

// inbound is the listener of the firewall's server. It accepts what is sent to conns.
type inbound Firewall

func (f *inbound) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (f *inbound) Close() error   { return nil }
func (f *inbound) Addr() net.Addr { return &net.TCPAddr{} }

// lookup implements filter.
func (f *Firewall) lookup(name string) (netip.Addr, bool) {
	p := f.policy.Load()
	if name == "" {
		return netip.Addr{}, p.Mode == AllowAll
	}
	if !p.allowsName(name) {
		return netip.Addr{}, false
	}
	if name == HostName {
		return HostAddr, true
	}
	return f.site.names.addr(name), true
}

// connect implements filter.
func (f *Firewall) connect(to netip.AddrPort) verdict {
	p := f.policy.Load()
	switch {
	case p.Mode == DenyAll || contains(p.deny, to.Addr()):
		return refuse
	case f.site.names.name(to.Addr()) != "":
		return inspect
	case p.Mode == AllowAll || contains(p.allow, to.Addr()):
		return pass
	case len(p.domains) > 0:
		return inspect
	}
	return refuse
}

// send implements filter.
func (f *Firewall) send(to netip.AddrPort) bool {
	p := f.policy.Load()
	return p.Mode == AllowAll || p.Mode == Custom && contains(p.allow, to.Addr()) && !contains(p.deny, to.Addr())
}

// serve implements filter. It determines the destination of a connection from what a TLS
// client sends before the encryption starts.
func (f *Firewall) serve(ctx context.Context, conn net.Conn, to netip.AddrPort) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	named := f.site.names.name(to.Addr()) // the name for which the firewall made up the address, or ""
	_ = conn.SetReadDeadline(time.Now().Add(peekTimeout))
	p := f.policy.Load()
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return
	}
	const handshake = 22 // the type of a TLS record
	if first[0] != handshake {
		// Without TLS the connection does not name its destination, so only its address
		// can allow it.
		_ = conn.SetReadDeadline(time.Time{})
		if named != "" && (p.Mode == AllowAll || contains(p.allow, to.Addr())) {
			f.relay(ctx, &replayed{Conn: conn, before: first}, named, to)
		}
		return
	}
	name, hello := peekServerName(conn, first)
	_ = conn.SetReadDeadline(time.Time{})
	if name == "" && p.Mode == AllowAll {
		name = named
	}
	if name = plainName(name); !p.allowsName(name) {
		_, _ = conn.Write(accessDenied)
		return
	}
	whole := &replayed{Conn: conn, before: hello}
	if len(p.rulesOf(name)) == 0 && !f.site.names.isPlain(name) {
		f.relay(ctx, whole, name, to)
		return
	}
	cert, err := f.site.Authority.certificate(name)
	if err != nil {
		f.site.opts.Log.Error("make a certificate", "name", name, "error", err)
		return
	}
	fl := &tlsFlow{Conn: whole, name: name, to: to, closed: make(chan struct{})}
	secure := tls.Server(fl, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}})
	select {
	case f.conns <- secure:
	case <-ctx.Done():
		return
	}
	select {
	case <-fl.closed:
	case <-ctx.Done():
	}
}

// accessDenied is the fatal TLS alert access_denied.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// relay connects a connection to the server that it names, and copies the bytes unchanged.
func (f *Firewall) relay(ctx context.Context, conn *replayed, name string, to netip.AddrPort) {
	server, err := f.dial(ctx, name, to)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = conn.Close(), server.Close() })()
	var both sync.WaitGroup
	copyOneWay := func(dst, src net.Conn) {
		_, err := io.Copy(dst, src)
		if w, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
			_ = w.CloseWrite() // the other side may have gone
			return
		}
		_, _ = dst.Close(), src.Close()
	}
	f.site.opts.Guard.Go(&both, "sending", func() { copyOneWay(server, conn) })
	f.site.opts.Guard.Go(&both, "receiving", func() { copyOneWay(conn, server) })
	both.Wait()
}

// dialOut makes the transport's connections. Addresses contain the names of servers.
func (f *Firewall) dialOut(ctx context.Context, _, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	to, _ := ctx.Value(flowKey{}).(*tlsFlow)
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		return nil, err
	}
	wanted := netip.AddrPortFrom(netip.Addr{}, uint16(number))
	if to != nil && to.name == plainName(host) {
		wanted = netip.AddrPortFrom(to.to.Addr(), uint16(number))
	}
	return f.dial(ctx, host, wanted)
}

// dialForward connects to a forward URL.
func (f *Firewall) dialForward(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if target := f.site.names.target(plainName(host)); target != "" {
		addr = target
	}
	return Dial(ctx, network, addr)
}

// dial connects to a server by its name. The address that the sandbox's program has used
// only selects among the server's addresses: a program may claim any name for any
// address.
func (f *Firewall) dial(ctx context.Context, name string, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	name = plainName(name)
	if target := f.site.names.target(name); target != "" {
		return d.DialContext(ctx, "tcp", target)
	}
	p := f.policy.Load()
	if name == HostName {
		if contains(p.deny, HostAddr) {
			return nil, ErrDenied
		}
		return d.DialContext(ctx, "tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port()).String())
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	err = ErrDenied
	for _, addr := range preferred(addrs, to.Addr()) {
		if isSpecial(addr) || contains(p.deny, addr) {
			continue
		}
		var conn net.Conn
		if conn, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr.Unmap(), to.Port()).String()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// Dial connects to the server that a sandbox would reach by a name.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if host, port, err := net.SplitHostPort(addr); err == nil && strings.EqualFold(host, HostName) {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// ErrDenied means that the network policy denies an address.
var ErrDenied = errors.New("the network policy denies the address")

// preferred moves an address to the front if the list contains it.
func preferred(addrs []netip.Addr, first netip.Addr) []netip.Addr {
	for i, addr := range addrs {
		if addr.Unmap() == first {
			addrs[0], addrs[i] = addrs[i], addrs[0]
		}
	}
	return addrs
}

// tlsFlow is a connection of the sandbox whose TLS the firewall terminates.
type tlsFlow struct {
	net.Conn
	name   string // the server name that the client requests
	to     netip.AddrPort
	once   sync.Once
	closed chan struct{}
}

type flowKey struct{}

// flowOf returns the tlsFlow under a connection of the server.
func flowOf(c net.Conn) *tlsFlow {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	fl, _ := c.(*tlsFlow)
	return fl
}

func (fl *tlsFlow) Close() error {
	fl.once.Do(func() { close(fl.closed) })
	return fl.Conn.Close()
}

// serveHTTP applies the first rule that matches a request.
func (f *Firewall) serveHTTP(w http.ResponseWriter, r *http.Request) {
	fl, _ := r.Context().Value(flowKey{}).(*tlsFlow)
	p := f.policy.Load()
	switch {
	case fl == nil || !p.allowsName(fl.name):
		http.Error(w, "The network policy does not allow this host.", http.StatusForbidden)
		return
	case plainName((&url.URL{Host: r.Host}).Hostname()) != fl.name:
		http.Error(w, "The connection is for another host.", http.StatusMisdirectedRequest)
		return
	case r.Method == http.MethodConnect:
		http.Error(w, "This is not a proxy.", http.StatusMethodNotAllowed)
		return
	}
	rule := p.rule(fl.name, r)
	if rule != nil && rule.response != nil {
		respondByRule(w, rule)
		return
	}
	host := hostPort(fl.name, fl.to.Port())
	pass := &httputil.ReverseProxy{
		Transport: f.transport, FlushInterval: -1, ErrorLog: f.server.ErrorLog,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "https", host, pr.In.Host
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // Out has lost what package url can't parse
			if rule != nil && rule.forwardURL != "" {
				return
			}
			if f.site.names.isPlain(fl.name) {
				pr.Out.URL.Scheme = "http"
			}
			if rule != nil {
				for name, value := range rule.headers {
					if strings.EqualFold(name, "host") {
						pr.Out.Host = value
					} else {
						pr.Out.Header.Set(name, value)
					}
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "The host can't be reached: "+err.Error(), http.StatusBadGateway)
		},
	}
	if rule != nil && rule.forwardURL != "" {
		authority, err := f.site.opts.Tokens()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		pass.Transport = &proxytest.Firewall{
			Authority: authority, ForwardURL: rule.forwardURL, Audience: rule.forwardURL, Claims: f.claims, Transport: (*toForwardURL)(f),
		}
	}
	relay.Serve(pass, w, r)
}

// toForwardURL sends the requests to forward URLs.
type toForwardURL Firewall

func (f *toForwardURL) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.site.names.isPlain(plainName(r.URL.Hostname())) {
		plain := *r.URL
		plain.Scheme = "http"
		r.URL = &plain
	}
	return f.forward.RoundTrip(r)
}

func respondByRule(w http.ResponseWriter, rule *rule) {
	for name, value := range rule.response.Headers {
		w.Header().Set(name, value)
	}
	if t := rule.response.ContentType; t != nil {
		w.Header().Set("Content-Type", *t)
	}
	w.WriteHeader(rule.response.StatusCode)
	if b := rule.response.Body; b != nil {
		_, _ = io.WriteString(w, *b) // the client may have gone
	}
}

// hostPort returns the host and port of an https URL. It omits the default port.
func hostPort(host string, port uint16) string {
	if port == 443 {
		return host
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}
