package proxytest

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/go-vercel/sandbox/internal/relay"
)

// Firewall sends requests to a forward URL like the firewall of a sandbox: with
// the original method, body and headers, the original address in forwarding
// headers, and a token for the forward URL. The original path is appended to
// that of the forward URL. It is an [http.RoundTripper], for a client that
// plays the sandbox; [Firewall.Proxy] serves real processes. It is safe for
// concurrent use; its fields must not be changed after first use.
type Firewall struct {
	// Authority signs the tokens. It is required.
	Authority *Authority
	// ForwardURL is where requests go. It is required.
	ForwardURL string
	// Audience is the audience of tokens. Empty means the ForwardURL, as on the
	// platform. Set it if the service's address in the test differs from that
	// in its [proxy.Options].
	Audience string
	// Claims are the other claims of the tokens. Its Audience is ignored.
	Claims Claims
	// Transport makes the requests to the forward URL. Nil means
	// [http.DefaultTransport].
	Transport http.RoundTripper
}

// RoundTrip sends a request to the forward URL.
func (f *Firewall) RoundTrip(r *http.Request) (*http.Response, error) {
	out, err := f.Forward(r)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	transport := cmp.Or(f.Transport, http.DefaultTransport)
	return transport.RoundTrip(out)
}

// Forward returns the request that the forward URL receives for a sandbox's
// request, whose body it takes over. Tests may modify it before they send it,
// or pass it directly to a handler.
func (f *Firewall) Forward(r *http.Request) (*http.Request, error) {
	if f.Authority == nil {
		return nil, errors.New("proxytest: the firewall has no Authority")
	}
	forward, err := url.Parse(f.ForwardURL)
	if err != nil || forward.Host == "" {
		return nil, errors.New("proxytest: the firewall's ForwardURL is not a URL")
	}
	if r.URL.Host == "" {
		return nil, errors.New("proxytest: the sandbox's request has no host")
	}
	port := r.URL.Port()
	if port == "" {
		port = "443"
		if r.URL.Scheme == "http" {
			port = "80"
		}
	}
	host := r.URL.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	claims := f.Claims
	claims.Audience = cmp.Or(f.Audience, f.ForwardURL)
	token, err := f.Authority.Token(claims)
	if err != nil {
		return nil, err
	}

	original := r.URL.RequestURI()
	target, err := url.Parse(forward.Scheme + "://" + forward.Host + strings.TrimRight(forward.EscapedPath(), "/") + original)
	if err != nil {
		return nil, fmt.Errorf("proxytest: the original path: %w", err)
	}
	out := r.WithContext(r.Context())
	out.Header = r.Header.Clone()
	if out.Header == nil {
		out.Header = make(http.Header)
	}
	out.URL = target
	out.Host = forward.Host
	out.RequestURI = ""
	out.TLS = nil
	if forward.Scheme == "https" {
		out.TLS = &tls.ConnectionState{} // for handlers; clients ignore it
	}
	out.Header.Set("vercel-forwarded-host", host)
	out.Header.Set("vercel-forwarded-scheme", r.URL.Scheme)
	out.Header.Set("vercel-forwarded-port", port)
	out.Header.Set("vercel-forwarded-path", original)
	out.Header.Set("vercel-sandbox-oidc-token", token)
	return out, nil
}

// Proxy returns a plain HTTP proxy that sends requests to the forward URL.
// Processes use it through the environment variable http_proxy. It accepts http
// URLs only: unlike the real firewall it can't see into TLS.
func (f *Firewall) Proxy() http.Handler {
	through := &httputil.ReverseProxy{
		Transport:     f,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL, r.Out.Host = r.In.URL, "" },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || r.URL.Host == "" {
			http.Error(w, "this proxy takes http URLs only", http.StatusBadRequest)
			return
		}
		relay.Serve(through, w, r)
	})
}
