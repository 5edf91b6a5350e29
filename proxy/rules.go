package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Secret returns the value that a [Rule] inserts into a request. meta describes the
// sandbox that sent the request. A Secret is called for every request that needs it, by
// many goroutines at the same time. If it fails, the request receives status 502. The error is
// not sent to anyone; its first 128 bytes go to the log, as a warning, so it must
// not contain the secret.
type Secret func(ctx context.Context, meta Meta) (string, error)

// StaticSecret returns a Secret that is the same for all sandboxes.
func StaticSecret(value string) Secret {
	return func(context.Context, Meta) (string, error) { return value, nil }
}

// Rule changes one header of the requests to some hosts. The zero value is not
// valid: Hosts and Header are required.
//
// With a Placeholder, the sandbox sends that text instead of the credential,
// and the rule replaces it wherever it occurs in the header's value; a header
// without it is not changed. A placeholder in Basic credentials is not found,
// because they are encoded. If a header has more than 8 placeholders, or would be
// larger than 64 KiB, the request receives status 431.
//
// Without a Placeholder the header is set to the Secret, whatever the sandbox
// sent. Without a Secret too, the header is removed. In both cases the rule also
// removes headers whose name differs only by underscores in place of dashes,
// since many servers treat the two the same.
type Rule struct {
	// Hosts are the hosts that the rule applies to: a name (api.example.com),
	// all subdomains of another (*.example.com), or an address. They match the
	// default port of the scheme; another port is written as in
	// api.example.com:8443.
	Hosts []string
	// PathPrefix restricts the rule to paths that are equal to it or continue
	// it after a slash: /v1 matches /v1 and /v1/things, but not /v10. It must
	// not contain characters that need percent-escapes. A path that a server
	// might treat as having dot segments, because of escaped control characters
	// or spaces after dots, gets no secret; nested escapes are not interpreted.
	// Empty means all paths.
	PathPrefix string
	// AllowHTTP applies the rule to http URLs too. By default secrets are
	// inserted into https requests only, and other requests are sent unchanged.
	AllowHTTP bool
	// Header is the name of the header.
	Header string
	// Placeholder is what the sandbox sends instead of the secret.
	Placeholder string
	// Secret returns the value to insert.
	Secret Secret
}

// rule is a Rule that was checked.
type rule struct {
	Rule
	hosts []hostPattern
}

func newRule(r Rule) (rule, error) {
	c := rule{Rule: r}
	if len(r.Hosts) == 0 {
		return c, errors.New("option Hosts is empty: list the hosts that may get the header")
	}
	var err error
	if c.hosts, err = parseHostPatterns(r.Hosts); err != nil {
		return c, err
	}
	if r.Header == "" {
		return c, errors.New("option Header is empty: name the header to set")
	}
	if strings.ContainsFunc(r.Header, invalidInName) {
		return c, fmt.Errorf("option Header: %q is not the name of a header", r.Header)
	}
	c.Header = http.CanonicalHeaderKey(r.Header)
	switch c.Header {
	case "Connection", "Content-Length", "Host", "Transfer-Encoding", "Trailer", "Upgrade":
		return c, fmt.Errorf("option Header: %s belongs to the connection, which a rule can't change", c.Header)
	}
	if r.Placeholder != "" && r.Secret == nil {
		return c, errors.New("option Placeholder needs a Secret to replace it with")
	}
	if r.PathPrefix != "" && (r.PathPrefix[0] != '/' || (&url.URL{Path: r.PathPrefix}).EscapedPath() != r.PathPrefix) {
		return c, fmt.Errorf("PathPrefix: %q must begin with a slash and have no characters that a URL escapes", r.PathPrefix)
	}
	c.PathPrefix = strings.TrimSuffix(r.PathPrefix, "/")
	return c, nil
}

// appliesTo reports whether the rule applies to a URL.
func (r *rule) appliesTo(u *url.URL) bool {
	if u.Scheme != "https" && !r.AllowHTTP && r.Secret != nil {
		return false
	}
	// Servers disagree about escaped slashes, so the path must match both
	// before and after unescaping.
	return isUnder(u.Path, r.PathPrefix) && isUnder(u.EscapedPath(), r.PathPrefix) && matchesURL(r.hosts, u) &&
		(r.PathPrefix == "" || r.Secret == nil || !mayHaveDotSegments(u.Path))
}

// mayHaveDotSegments reports whether a path that parsePath has accepted might have dot
// segments for a server that drops control characters, or spaces at the end of
// a name.
func mayHaveDotSegments(path string) bool {
	if strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if trimmed := strings.TrimRight(segment, " "); trimmed == "." || trimmed == ".." {
			return true
		}
	}
	return false
}

func isUnder(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// invalidInName reports whether c can't be part of a header's name.
func invalidInName(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", c)
}

// invalidInValue reports whether c can't be part of a header's value.
func invalidInValue(c rune) bool {
	return c < ' ' && c != '\t' || c == 0x7f
}

// headerEdit is a rule together with its secret, for one request.
type headerEdit struct {
	*rule
	secret string
}

const (
	// maxPlaceholders and maxHeader limit the expansion of one request: a
	// header full of placeholders would grow a thousandfold. Clients send one
	// placeholder.
	maxPlaceholders = 8
	maxHeader       = 64 << 10
)

// prepareEdits obtains the secrets that a request needs. If the request must not be
// sent, it returns the reason, and the status of the response. For a Secret that
// failed it also returns the cause, for the log alone.
func prepareEdits(ctx context.Context, rules []rule, r *http.Request, meta Meta) (edits []headerEdit, status int, reason string, cause error) {
	for i := range rules {
		rule := &rules[i]
		if !rule.appliesTo(r.URL) {
			continue
		}
		placeholders, size := 0, 0
		if rule.Placeholder != "" {
			if placeholders, size = rule.placeholders(r.Header); placeholders == 0 {
				continue
			}
			if placeholders > maxPlaceholders {
				return nil, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("%s has more than %d placeholders", rule.Header, maxPlaceholders), nil
			}
		}
		e := headerEdit{rule: rule}
		if rule.Secret != nil {
			secret, err := rule.Secret(ctx, meta)
			if err != nil {
				return nil, http.StatusBadGateway, "no secret for " + rule.Header, err
			}
			if strings.ContainsFunc(secret, invalidInValue) {
				return nil, http.StatusBadGateway, "the secret for " + rule.Header + " can't be sent in a header", nil
			}
			if size+placeholders*len(secret) > maxHeader {
				return nil, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("%s would have more than %d bytes", rule.Header, maxHeader), nil
			}
			e.secret = secret
		}
		edits = append(edits, e)
	}
	return edits, 0, "", nil
}

// placeholders returns the number of placeholders in a header, and the size of
// the values that have any.
func (r *rule) placeholders(h http.Header) (count, size int) {
	for _, v := range h[r.Header] {
		if n := strings.Count(v, r.Placeholder); n > 0 {
			count, size = count+n, size+len(v)
		}
	}
	return count, size
}

// apply changes the header.
func (e *headerEdit) apply(h http.Header) {
	if e.Placeholder != "" {
		values := h[e.Header]
		for i, v := range values {
			values[i] = strings.ReplaceAll(v, e.Placeholder, e.secret)
		}
		return
	}
	for name := range h {
		if canonicalHeader(name) == canonicalHeader(e.Header) {
			delete(h, name)
		}
	}
	if e.Secret != nil {
		h[e.Header] = []string{e.secret}
	}
}

// canonicalHeader returns the name of a header as read by software that treats dashes
// and underscores the same (like CGI).
func canonicalHeader(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}
