package preview

import (
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/relay"
)

// ReverseProxy returns a handler that forwards requests to the server at an exposed port
// with [Transport]. A request resumes a stopped sandbox.
//
// The server knows itself by the platform's address, but visitors use the proxy's. The
// proxy therefore translates addresses. In requests from the server's pages, Origin and
// Referer get the platform's address. In responses, Location and Content-Location become
// paths, and cookies lose their Domain and apply to the visitor's host only. The visitor's
// address, host and scheme are in X-Original-For, X-Original-Host and X-Original-Proto,
// because the platform sets the X-Forwarded headers itself. Behind a load balancer, put a
// handler in front that sets the request's RemoteAddr.
//
// The proxy removes Alt-Svc and the headers that tell a web server in front to serve a
// local file, such as X-Accel-Redirect and X-Sendfile. A server may respond before it has
// received the whole request, also over HTTP/1.
//
// If the server can't be reached, the visitor gets a short page with the reason: 504 with
// Retry-After if the sandbox was still starting or nothing listened after MaxWait, 404 if
// the sandbox is gone, and 502 if the server may have received the request. ErrorLog gets
// the error. Replace ErrorHandler to change this. Wrap Rewrite rather than replace it.
//
// The proxy admits everybody: put a handler in front that authenticates visitors. Serve it
// on a host of its own, because the sandbox's server receives the cookies and credentials
// that browsers send to that host, and scripts in its pages can make requests to the host
// with them.
func ReverseProxy(sb *sandbox.Sandbox, port int, opts *Options) *Proxy {
	t := newTransport(sb, port, opts)
	if base, ok := t.opts.Base.(*http.Transport); ok && (opts == nil || opts.Base == nil) {
		base.DisableCompression = true // compress only if the visitor asks for it
	}
	v := translatingTransport{t}
	p := &Proxy{httputil.ReverseProxy{Transport: v, FlushInterval: -1, Rewrite: v.rewrite}}
	p.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) { writeError(w, r, err, logger(p)) }
	return p
}

// Proxy is the handler that [ReverseProxy] returns.
type Proxy struct{ httputil.ReverseProxy }

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	relay.Serve(&p.ReverseProxy, w, r)
}

// logger returns the proxy's log function.
func logger(p *Proxy) func(string, ...any) {
	if p.ErrorLog != nil {
		return p.ErrorLog.Printf
	}
	return log.Printf
}

// translatingTransport is a portTransport that translates addresses, because the server and
// its visitors know it by different ones.
type translatingTransport struct{ *portTransport }

// The edge overwrites X-Forwarded-For and related headers with what it sees.
const (
	originalFor   = "X-Original-For"
	originalHost  = "X-Original-Host"
	originalProto = "X-Original-Proto"
)

// rewrite changes a visitor's request for the server.
func (v translatingTransport) rewrite(r *httputil.ProxyRequest) {
	relay.Pass(r.In, r.Out)
	r.Out.URL.Scheme, r.Out.URL.Host = "http", "sandbox"
	r.Out.Host = ""
	h := r.Out.Header
	h.Del(originalFor)
	if address, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		h.Set(originalFor, address)
	}
	h.Set(originalHost, r.In.Host)
	h.Set(originalProto, "http")
	if r.In.TLS != nil {
		h.Set(originalProto, "https")
	}
	// Servers refuse forms and WebSockets whose origin is another site.
	if own := v.address(); own != nil {
		for _, name := range []string{"Origin", "Referer", "Destination"} {
			for i, value := range h[name] {
				if host, rest := cutOrigin(value); host != "" && strings.EqualFold(host, r.In.Host) {
					h[name][i] = own.Scheme + "://" + own.Host + rest
				}
			}
		}
	}
}

// address returns the server's own address; nil if it has none.
func (v translatingTransport) address() *url.URL {
	address, err := v.sb.URL(v.port)
	if err != nil {
		return nil
	}
	own, err := url.Parse(address)
	if err != nil {
		return nil
	}
	return own
}

func (v translatingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := v.portTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	own := v.address()
	relay.Disarm(resp.Header)
	resp.Header.Del("Alt-Svc") // would bypass the proxy
	// These affect the host after the sandbox is gone, and possibly its subdomains. The
	// host belongs to the program, not to the sandbox.
	resp.Header.Del("Strict-Transport-Security")
	resp.Header.Del("Clear-Site-Data")
	for _, name := range []string{"Location", "Content-Location"} {
		for i, value := range resp.Header[name] {
			resp.Header[name][i] = v.relative(value, own)
		}
	}
	for i, cookie := range resp.Header["Set-Cookie"] {
		resp.Header["Set-Cookie"][i] = withoutDomain(cookie)
	}
	return resp, nil
}

// relative returns the path of an address of the server, and other addresses unchanged.
func (v translatingTransport) relative(value string, own *url.URL) string {
	host, rest := cutOrigin(value)
	if host == "" || own == nil {
		return value
	}
	// Some servers add the port on which they listen.
	if !strings.EqualFold(host, own.Host) && !strings.EqualFold(host, net.JoinHostPort(own.Hostname(), strconv.Itoa(v.port))) {
		return value
	}
	if !strings.HasPrefix(rest, "/") {
		return "/" + rest
	}
	if strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, `/\`) {
		return "/." + rest // a leading "//" would denote a host
	}
	return rest
}

// cutOrigin splits an absolute address into the host, without the scheme's default port,
// and the rest.
func cutOrigin(address string) (host, rest string) {
	scheme, after, ok := strings.Cut(address, "//")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "" && scheme != "http:" && scheme != "https:" {
		return "", ""
	}
	end := strings.IndexAny(after, `/?#\`)
	if end < 0 {
		end = len(after)
	}
	host, rest = after[:end], after[end:]
	if port := map[string]string{"http:": ":80", "https:": ":443"}[scheme]; port != "" {
		host = strings.TrimSuffix(host, port)
	}
	return host, rest
}

// withoutDomain removes the Domain attribute of a cookie, so that it applies only to the
// host that the visitor asked. The Domain is that of another host, or covers other hosts too.
func withoutDomain(cookie string) string {
	parts := strings.Split(cookie, ";")
	kept := parts[:1]
	for _, part := range parts[1:] {
		name, _, _ := strings.Cut(part, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "domain") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ";")
}
