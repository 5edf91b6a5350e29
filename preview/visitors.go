package preview

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/edge"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/relay"
)

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

// writeError responds with the reason why there is no response of the server. It shows
// visitors no details.
func writeError(w http.ResponseWriter, r *http.Request, err error, log func(string, ...any)) {
	if r.Context().Err() == nil {
		log("preview: %v", err)
	}
	status, title, text := http.StatusBadGateway, "No answer", "The server did not answer this request. It may have received it."
	edgeErr, refused := errors.AsType[*edge.Error](err)
	timeout, ok := errors.AsType[net.Error](err)
	opErr, _ := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrSnapshotNotFound), errors.Is(err, sandbox.ErrNoRoute):
		status, title, text = http.StatusNotFound, "Gone", "There is nothing at this address any more."
	case refused && edgeErr.Code == edge.NotListening:
		status, title, text = http.StatusGatewayTimeout, "Not listening", "The machine runs, and its server does not listen yet."
		if edgeErr.Message != "" {
			text = redact.Printable(edgeErr.Message)
		}
	case refused:
		status, title, text = http.StatusGatewayTimeout, "Waking", "The machine is being started. Try again in a moment."
	case opErr != nil && opErr.Op == "dial":
		text = "The server can't be reached at the moment."
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		status, title, text = http.StatusGatewayTimeout, "No answer", "The server did not answer in time. It may have received the request."
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if refused && status == http.StatusGatewayTimeout {
		h.Set("Retry-After", "5")
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, title+": "+text, status)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	var refresh, note string
	if h.Get("Retry-After") != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		refresh, note = "\n"+`<meta http-equiv="refresh" content="5">`, "<p>This page loads again by itself.</p>\n"
	}
	title, text = html.EscapeString(title), html.EscapeString(text)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, failurePage, refresh, title, title, text, note) // the visitor may have left
}

// failurePage is a format of package fmt, because html/template would make each program a
// megabyte larger.
const failurePage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">%s
<title>%s</title>
<style>body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto 0;padding:0 1.5rem;color-scheme:light dark}</style>
<h1>%s</h1>
<p>%s</p>
%s</html>
`

// logger returns the proxy's log function.
func logger(p *Proxy) func(string, ...any) {
	if p.ErrorLog != nil {
		return p.ErrorLog.Printf
	}
	return log.Printf
}
