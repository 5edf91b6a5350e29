package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// The headers that the firewall adds, in the spelling of http.Header.
const (
	hostHeader   = "Vercel-Forwarded-Host"
	schemeHeader = "Vercel-Forwarded-Scheme"
	portHeader   = "Vercel-Forwarded-Port"
	pathHeader   = "Vercel-Forwarded-Path"
	tokenHeader  = "Vercel-Sandbox-Oidc-Token"
)

var forwardingHeaders = [...]string{hostHeader, schemeHeader, portHeader, pathHeader, tokenHeader}

// forwarded is the content of the forwarding headers.
type forwarded struct {
	host, scheme, port, path, token string
}

// readForwarded reads the forwarding headers. It refuses duplicates, and names that
// other software might take for a forwarding header. Otherwise software behind this
// handler could read another address or token than the handler has verified.
func readForwarded(h http.Header) (forwarded, error) {
	var values [len(forwardingHeaders)]string
	repeated := ""
	for i, name := range forwardingHeaders {
		switch v := h[name]; {
		case len(v) > 1:
			repeated = name
		case len(v) == 0 || v[0] == "":
			return forwarded{}, fmt.Errorf("%w: %s, which a network policy with a forward URL adds", ErrMissingHeaders, name)
		default:
			values[i] = v[0]
		}
	}
	if repeated != "" {
		return forwarded{}, fmt.Errorf("%w: %s was sent more than once", ErrInvalidURL, repeated)
	}
	for name := range h {
		if canonical := forwardingHeader(name); canonical != "" && canonical != name {
			return forwarded{}, fmt.Errorf("%w: %s was also sent as %q", ErrInvalidURL, canonical, truncate(name))
		}
	}
	return forwarded{values[0], values[1], values[2], values[3], values[4]}, nil
}

// withoutForwarding returns a copy of h without the forwarding headers, in any
// spelling.
func withoutForwarding(h http.Header) http.Header {
	h = h.Clone()
	for name := range h {
		if forwardingHeader(name) != "" {
			delete(h, name)
		}
	}
	return h
}

// forwardingHeader returns the forwarding header for which software might take name, or "".
// Such software ignores case, surrounding space, or the difference between a dash and an
// underscore (like CGI).
func forwardingHeader(name string) string {
	name = strings.TrimSpace(name)
	if len(name) < 6 || !strings.EqualFold(name[:6], "vercel") {
		return ""
	}
	name = strings.ReplaceAll(name, "_", "-")
	for _, canonical := range forwardingHeaders {
		if strings.EqualFold(name, canonical) {
			return canonical
		}
	}
	return ""
}

// url returns the original URL. Its host includes the port unless that is the
// scheme's default.
func (f forwarded) url() (*url.URL, error) {
	scheme := strings.ToLower(f.scheme)
	if scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("%w: %s is %q, not http or https", ErrInvalidURL, schemeHeader, truncate(f.scheme))
	}
	host, err := parseHost(f.host)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is %q: %w", ErrInvalidURL, hostHeader, truncate(f.host), err)
	}
	port, err := parsePort(f.port)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is %q, not a port from 1 to 65535", ErrInvalidURL, portHeader, truncate(f.port))
	}
	u, err := parsePath(f.path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", ErrInvalidURL, pathHeader, err)
	}
	u.Scheme = scheme
	u.Host = withPort(host, port, scheme)
	return u, nil
}

// parseHost accepts a DNS name, an IPv4 address, or an IPv6 address in
// brackets, and returns it in lower case. A port, userinfo, a path, a
// percent-escape and a zone are refused.
func parseHost(s string) (string, error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !ok || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", errors.New("not an IPv6 address")
		}
		return "[" + addr.String() + "]", nil
	}
	if s == "" || len(s) > 254 {
		return "", errors.New("not a host name: it has 1 to 254 characters")
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 {
			return "", errors.New("not a host name")
		}
	}
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' {
			continue
		}
		return "", errors.New("not a host name")
	}
	return strings.ToLower(s), nil
}

// parsePort accepts 1 to 65535 in plain decimal digits.
func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, errors.New("not a port")
	}
	return int(n), nil
}

// parsePath accepts a path with an optional query. It refuses dot segments, even
// if percent-escapes or backslashes hide them: a handler that decides by path
// would see a different path than the one that the server serves. It also refuses
// a path that a careless parser would take for a host (//example.com/).
func parsePath(s string) (*url.URL, error) {
	if s == "" || s[0] != '/' {
		return nil, errors.New("does not begin with a slash")
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c == 0x7f || c == '#' {
			return nil, errors.New("has a space, a control character or #, which a request must escape")
		}
	}
	u, err := url.ParseRequestURI(s)
	if err != nil {
		return nil, errors.New("has a percent sign without two digits")
	}
	decoded := strings.ReplaceAll(u.Path, `\`, "/")
	if strings.HasPrefix(decoded, "//") {
		return nil, errors.New("begins with two slashes")
	}
	for segment := range strings.SplitSeq(decoded, "/") {
		// Some servers first drop parameters, which turns "..;x" into "..".
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return nil, errors.New("has a dot segment (. or ..)")
		}
	}
	return u, nil
}

// withPort appends a port unless it is the default of the scheme.
func withPort(host string, port int, scheme string) string {
	if scheme == "https" && port == 443 || scheme == "http" && port == 80 {
		return host
	}
	return host + ":" + strconv.Itoa(port)
}

// truncate shortens text from the network before it becomes part of an error.
func truncate(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
