package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// endpoint is the address at which a request arrived.
type endpoint struct {
	scheme, host string // the host includes its port unless that is the default
	path         string // escaped, as it was sent
}

// receivedAt returns where a request arrived. The path is that of the request
// line, as the firewall sent it, because routers that strip prefixes change
// r.URL. If trustForwarded is set, X-Forwarded-Proto and X-Forwarded-Host take
// precedence.
func receivedAt(r *http.Request, trustForwarded bool) (endpoint, error) {
	at := endpoint{scheme: "http"}
	if r.TLS != nil {
		at.scheme = "https"
	}
	host := r.Host
	if trustForwarded {
		proto, err := singleValue(r.Header, "X-Forwarded-Proto")
		if err != nil {
			return at, err
		}
		switch proto = strings.ToLower(proto); proto {
		case "http", "https":
			at.scheme = proto
		case "":
		default:
			return at, fmt.Errorf("X-Forwarded-Proto is %q, not http or https", truncate(proto))
		}
		forwardedHost, err := singleValue(r.Header, "X-Forwarded-Host")
		if err != nil {
			return at, err
		}
		if forwardedHost != "" {
			host = forwardedHost
		}
	}
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
	}
	name, err := parseHost(name)
	if err != nil {
		return at, fmt.Errorf("the request's host %q is not a host name", truncate(host))
	}
	at.host = name
	if port != "" {
		n, err := parsePort(port)
		if err != nil {
			return at, fmt.Errorf("the port of the request's host %q is not from 1 to 65535", truncate(host))
		}
		at.host = withPort(name, n, at.scheme)
	}
	switch {
	case r.RequestURI == "":
		at.path = r.URL.EscapedPath()
	case r.RequestURI[0] == '/':
		at.path, _, _ = strings.Cut(r.RequestURI, "?")
	default:
		u, err := url.ParseRequestURI(r.RequestURI)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return at, errors.New("the request is not for a path on this host")
		}
		at.path = u.EscapedPath()
	}
	return at, nil
}

// singleValue returns the value of a header that may appear at most once. A list
// means that a proxy in front appended its value to one that a stranger sent.
func singleValue(h http.Header, name string) (string, error) {
	values := h[name]
	if len(values) > 1 || len(values) == 1 && strings.Contains(values[0], ",") {
		return "", errors.New(name + " has more than one value; the proxy in front must replace it")
	}
	if len(values) == 0 {
		return "", nil
	}
	return values[0], nil
}

// audience returns the forward URL to which the firewall sent a request, without
// a trailing slash. It removes forwardedPath from the end of the path: the
// firewall may have appended it, with an extra slash if the forward URL ends in
// one. Paths are compared as they were sent, including escapes.
func (at endpoint) audience(forwardedPath string) string {
	base := strings.TrimRight(at.path, "/")
	tail, _, _ := strings.Cut(forwardedPath, "?")
	tail = strings.TrimRight(tail, "/")
	if tail != "" {
		if rest, ok := strings.CutSuffix(base, tail); ok {
			base = strings.TrimSuffix(rest, "/")
		}
	}
	return at.scheme + "://" + at.host + base
}
