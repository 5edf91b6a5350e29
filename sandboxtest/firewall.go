package sandboxtest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// peekTimeout is how long a connection may take to say what it is for.
const peekTimeout = 10 * time.Second

// firewall stands between one session and the outside. It implements box.Gate.
type firewall struct {
	s      *Server
	claims proxytest.Claims // of the session
	policy atomic.Pointer[egress]
	npm    *npmrc // whose credentials are added; nil is none

	// The server speaks HTTP with the programs of the sandbox on connections
	// whose TLS ends here, and transport with the outside.
	server    *http.Server
	conns     chan net.Conn
	transport *http.Transport
	forward   *http.Transport // to forward URLs, which no policy is about
	ctx       context.Context
	cancel    context.CancelFunc
	serving   sync.WaitGroup
}

func (s *Server) newFirewall(claims proxytest.Claims, policy *egress, npm *npmrc) *firewall {
	f := &firewall{s: s, claims: claims, conns: make(chan net.Conn), npm: npm}
	f.policy.Store(policy)
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	f.transport, f.forward = f.newTransport(f.dialOut), f.newTransport(f.dialForward)
	f.server = newHTTPServer(f.serveHTTP, s.opts.Logger)
	f.server.TLSConfig = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	f.server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, flowKey{}, flowOf(c))
	}
	f.serving.Go(func() { _ = f.server.Serve(f) }) // ends by close
	return f
}

func (f *firewall) newTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:       dial,
		TLSClientConfig:   &tls.Config{RootCAs: f.s.opts.RootCAs},
		ForceAttemptHTTP2: true,
		// What a program of the sandbox wants compressed it says by itself.
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
	}
}

func (f *firewall) close() {
	f.cancel()
	_ = f.server.Close() // broken connections are expected
	f.serving.Wait()
	f.transport.CloseIdleConnections()
	f.forward.CloseIdleConnections()
}

// guard puts the firewall before a machine that is about to be made, as far as
// there can be one.
func (sess *session) guard(config *box.Config, set *settings) error {
	s, sb := sess.sb.s, sess.sb
	e, err := newEgress(set.PolicyRequest)
	if err != nil {
		return err
	}
	if !s.host.Gated() {
		if set.NPM {
			return badRequest("The emulator can't add npm credentials to requests here: %v", s.Enforces().Missing)
		}
		return s.enforceable(e.mode)
	}
	var npm *npmrc
	if set.NPM {
		npm = s.npm
	}
	sess.firewall = s.newFirewall(proxytest.Claims{
		Issuer: "https://oidc.vercel.com/emulator", TeamID: teamID, ProjectID: sb.key.project, SandboxID: sess.id, SandboxName: sb.key.name,
	}, e, npm)
	config.Gate = sess.firewall
	return nil
}

// unguard takes it away again. The machine is gone.
func (sess *session) unguard() {
	if sess.firewall != nil {
		sess.firewall.close()
	}
}

// enforce puts another policy into force while the machine runs, as far as it
// can. What was connected before has to connect anew.
func (sess *session) enforce(machine *box.Box, policy *wire.NetworkPolicy, raw []byte) error {
	e, err := newEgress(raw)
	if err != nil {
		return err
	}
	if sess.firewall == nil {
		if err := sess.sb.s.unenforced(e.mode == modeAllowAll); err != nil {
			return err
		}
	} else {
		sess.firewall.policy.Store(e)
	}
	err = machine.SetNetwork(policy.Mode == modeDenyAll)
	if errors.Is(err, box.ErrUnsupported) || sess.firewall == nil && e.mode == modeCustom {
		return sess.sb.s.unenforced(false)
	}
	if err == nil && e.mode == modeCustom {
		machine.Disconnect()
	}
	return err
}

// Accept, Close and Addr make it the listener of its server.
func (f *firewall) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (f *firewall) Close() error   { return nil }
func (f *firewall) Addr() net.Addr { return &net.TCPAddr{} }

// Lookup implements box.Gate.
func (f *firewall) Lookup(name string) (netip.Addr, bool) {
	p := f.policy.Load()
	if name == "" {
		return netip.Addr{}, p.mode == modeAllowAll
	}
	if !p.allowsName(name) {
		return netip.Addr{}, false
	}
	if name == HostName {
		return box.HostAddr, true
	}
	if f.npm == nil && f.s.names.registry(name) {
		return netip.Addr{}, true
	}
	return f.s.names.addr(name), true
}

// Connect implements box.Gate.
func (f *firewall) Connect(to netip.AddrPort) box.Verdict {
	p := f.policy.Load()
	switch {
	case p.mode == modeDenyAll || contains(p.deny, to.Addr()):
		return box.Refuse
	case f.s.names.name(to.Addr()) != "":
		return box.Inspect
	case p.mode == modeAllowAll || contains(p.allow, to.Addr()):
		return box.Pass
	case len(p.domains) > 0:
		return box.Inspect
	}
	return box.Refuse
}

// Send implements box.Gate.
func (f *firewall) Send(to netip.AddrPort) bool {
	p := f.policy.Load()
	return p.mode == modeAllowAll || p.mode == modeCustom && contains(p.allow, to.Addr()) && !contains(p.deny, to.Addr())
}

// Serve implements box.Gate: it finds out whom a connection is for, by what a
// TLS client says before anything is encrypted.
func (f *firewall) Serve(ctx context.Context, conn net.Conn, to netip.AddrPort) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	named := f.s.names.name(to.Addr()) // that the address was made up for
	_ = conn.SetReadDeadline(time.Now().Add(peekTimeout))
	p := f.policy.Load()
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return
	}
	const handshake = 22 // the type of a TLS record
	if first[0] != handshake {
		// Without TLS nobody says whom it is for. What is not allowed by its
		// address is not allowed.
		_ = conn.SetReadDeadline(time.Time{})
		if named != "" && (p.mode == modeAllowAll || contains(p.allow, to.Addr())) {
			f.relay(ctx, &replayed{Conn: conn, before: first}, named, to)
		}
		return
	}
	name, hello := peekServerName(conn, first)
	_ = conn.SetReadDeadline(time.Time{})
	if name == "" && p.mode == modeAllowAll {
		name = named
	}
	if name = plainName(name); !p.allowsName(name) {
		_, _ = conn.Write(accessDenied)
		return
	}
	whole := &replayed{Conn: conn, before: hello}
	if len(p.rulesOf(name)) == 0 && !f.s.names.plain(name) && !f.npm.has(name) {
		f.relay(ctx, whole, name, to)
		return
	}
	cert, err := f.s.authority.certificate(name)
	if err != nil {
		f.s.opts.Logger.Error("make a certificate", "name", name, "error", err)
		return
	}
	fl := &flow{Conn: whole, name: name, to: to, over: make(chan struct{})}
	secure := tls.Server(fl, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}})
	select {
	case f.conns <- secure:
	case <-ctx.Done():
		return
	}
	select {
	case <-fl.over:
	case <-ctx.Done():
	}
}

// accessDenied is the fatal alert of that name.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// relay connects a connection to a server that it names, as it is.
func (f *firewall) relay(ctx context.Context, conn *replayed, name string, to netip.AddrPort) {
	server, err := f.dial(ctx, name, to)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = conn.Close(), server.Close() })()
	var both sync.WaitGroup
	half := func(dst, src net.Conn) {
		_, err := io.Copy(dst, src)
		if w, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
			_ = w.CloseWrite() // the other side may have gone
			return
		}
		_, _ = dst.Close(), src.Close()
	}
	f.s.guard.Go(&both, "sending", func() { half(server, conn) })
	f.s.guard.Go(&both, "receiving", func() { half(conn, server) })
	both.Wait()
}

// dialOut connects the transport, whose addresses have the names of servers.
func (f *firewall) dialOut(ctx context.Context, _, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	to, _ := ctx.Value(flowKey{}).(*flow)
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
func (f *firewall) dialForward(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if target := f.s.names.target(plainName(host)); target != "" {
		addr = target
	}
	return dialAsSandbox(ctx, network, addr)
}

// dial connects to a server by its name. Where the sandbox's programs believe it
// to be does not count, except to choose among its addresses: a program may
// claim any name for any address.
func (f *firewall) dial(ctx context.Context, name string, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	name = plainName(name)
	if target := f.s.names.target(name); target != "" {
		return d.DialContext(ctx, "tcp", target)
	}
	p := f.policy.Load()
	if name == HostName {
		if contains(p.deny, box.HostAddr) {
			return nil, errDenied
		}
		return d.DialContext(ctx, "tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port()).String())
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	err = errDenied
	for _, addr := range preferred(addrs, to.Addr()) {
		if box.Special(addr) || contains(p.deny, addr) {
			continue
		}
		var conn net.Conn
		if conn, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr.Unmap(), to.Port()).String()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

var errDenied = errors.New("the network policy denies the address")

// preferred puts an address first if it is there.
func preferred(addrs []netip.Addr, first netip.Addr) []netip.Addr {
	for i, addr := range addrs {
		if addr.Unmap() == first {
			addrs[0], addrs[i] = addrs[i], addrs[0]
		}
	}
	return addrs
}

// flow is a connection of the sandbox whose TLS ends here.
type flow struct {
	net.Conn
	name string // that the client has asked for
	to   netip.AddrPort
	once sync.Once
	over chan struct{}
}

type flowKey struct{}

// flowOf is the flow under a connection of the server.
func flowOf(c net.Conn) *flow {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	fl, _ := c.(*flow)
	return fl
}

func (fl *flow) Close() error {
	fl.once.Do(func() { close(fl.over) })
	return fl.Conn.Close()
}

// serveHTTP applies the first rule that matches a request of the sandbox.
func (f *firewall) serveHTTP(w http.ResponseWriter, r *http.Request) {
	fl, _ := r.Context().Value(flowKey{}).(*flow)
	p := f.policy.Load()
	switch {
	case fl == nil || !p.allowsName(fl.name):
		http.Error(w, "The network policy does not allow this host.", http.StatusForbidden)
		return
	case plainName(hostName(r.Host)) != fl.name:
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
			if f.s.names.plain(fl.name) {
				pr.Out.URL.Scheme = "http"
			}
			if npm := f.npm.header(fl.name, fl.to.Port(), pr.In); npm != "" {
				pr.Out.Header.Set("Authorization", npm)
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
		authority, err := f.s.Authority()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		pass.Transport = &proxytest.Firewall{
			Authority: authority, ForwardURL: rule.forwardURL, Audience: rule.forwardURL, Claims: f.claims, Transport: (*toForwardURL)(f),
		}
	}
	w.Header()["Content-Type"] = nil // not to be guessed
	pass.ServeHTTP(w, r)
}

// toForwardURL makes the requests to forward URLs.
type toForwardURL firewall

func (f *toForwardURL) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.s.names.plain(plainName(r.URL.Hostname())) {
		r.URL = cloneURL(r.URL)
		r.URL.Scheme = "http"
	}
	return f.forward.RoundTrip(r)
}

func cloneURL(u *url.URL) *url.URL {
	out := *u
	return &out
}

func respondByRule(w http.ResponseWriter, rule *egressRule) {
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

// Authority returns the authority that signs the tokens which the firewall
// sends to forward URLs: its Client provides [proxy.Handler] with the keys to
// verify them. It is [Options].Authority, or one created by the first call.
func (s *Server) Authority() (*proxytest.Authority, error) { return s.tokens() }
