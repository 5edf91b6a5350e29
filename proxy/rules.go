package proxy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Secret gives the value that a [Rule] puts into a request, for the sandbox that
// makes it. It is asked for every request that needs it, and may be asked from
// many goroutines at once. When it fails the request is answered 502; the error
// is neither logged nor sent to anybody.
type Secret func(ctx context.Context, meta Meta) (string, error)

// StaticSecret returns a Secret that is the same for all sandboxes.
func StaticSecret(value string) Secret {
	return func(context.Context, Meta) (string, error) { return value, nil }
}

// Rule changes one header of the requests to some hosts. Its zero value is not
// valid: Hosts and Header are required.
//
// With a Placeholder the sandbox is given that text in place of the credential,
// and the rule replaces it wherever it stands in the header's value; a header
// without it is left alone. For Authorization with Basic credentials it is also
// looked for inside the encoded user name and password. A header with more than
// 8 placeholders, or that would be larger than 64 KiB, is answered 431.
//
// Without a Placeholder the header is set to the Secret, whatever the sandbox
// sent; without a Secret too, it is removed. Both also remove headers whose name
// differs in nothing but underscores in the place of dashes: many servers take
// the two for the same.
type Rule struct {
	// Hosts are the hosts that the rule is for: a name (api.example.com), all
	// names below another (*.example.com), or an address. They stand for the
	// default port of the scheme; another is given as api.example.com:8443.
	Hosts []string
	// PathPrefix narrows the rule to paths that are equal to it or continue it
	// after a slash: /v1 is for /v1 and /v1/things, not for /v10. It can't have
	// characters that need percent-escapes. A path that some server might take to
	// climb, with escaped control characters or spaces after dots, gets no secret;
	// what a server makes of escapes inside escapes is its own affair. Empty means
	// all paths.
	PathPrefix string
	// AllowHTTP makes the rule work for http URLs too. Without it, secrets
	// travel in https requests only, and others are sent on without the change.
	AllowHTTP bool
	// Header is the name of the header.
	Header string
	// Placeholder is what the sandbox sends in place of the secret.
	Placeholder string
	// Secret gives what is put in.
	Secret Secret
}

// rule is a Rule that has been checked.
type rule struct {
	Rule
	hosts []hostPattern
}

func newRule(r Rule) (rule, error) {
	c := rule{Rule: r}
	if len(r.Hosts) == 0 {
		return c, errors.New("proxy: a rule names no hosts")
	}
	var err error
	if c.hosts, err = parseHostPatterns(r.Hosts); err != nil {
		return c, err
	}
	if r.Header == "" || strings.ContainsFunc(r.Header, notToken) {
		return c, fmt.Errorf("proxy: %q is not the name of a header", r.Header)
	}
	c.Header = http.CanonicalHeaderKey(r.Header)
	switch c.Header {
	case "Connection", "Content-Length", "Host", "Transfer-Encoding", "Trailer", "Upgrade":
		return c, fmt.Errorf("proxy: a rule can't change the header %s", c.Header)
	}
	if r.Placeholder != "" && r.Secret == nil {
		return c, fmt.Errorf("proxy: the rule for %s has a placeholder but no secret", c.Header)
	}
	if r.PathPrefix != "" && (r.PathPrefix[0] != '/' || (&url.URL{Path: r.PathPrefix}).EscapedPath() != r.PathPrefix) {
		return c, fmt.Errorf("proxy: the path prefix %q does not begin with a slash, or needs escapes", r.PathPrefix)
	}
	c.PathPrefix = strings.TrimSuffix(r.PathPrefix, "/")
	return c, nil
}

// concerns reports whether the rule is for a URL.
func (r *rule) concerns(u *url.URL) bool {
	if u.Scheme != "https" && !r.AllowHTTP && r.Secret != nil {
		return false
	}
	// Servers do not agree on what an escaped slash is, so the path has to be
	// inside both before and after escapes are resolved.
	return under(u.Path, r.PathPrefix) && under(u.EscapedPath(), r.PathPrefix) && matchesAny(r.hosts, u) &&
		(r.PathPrefix == "" || r.Secret == nil || !doubtful(u.Path))
}

// doubtful reports whether a path that parsePath has let through might climb for
// a server that drops control characters, or spaces at the end of a name.
func doubtful(path string) bool {
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

func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// notToken is true for what can't be in the name of a header.
func notToken(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", c)
}

// isControl is true for what can't be in the value of a header.
func isControl(c rune) bool {
	return c < ' ' && c != '\t' || c == 0x7f
}

// edit is a rule together with its secret, for one request.
type edit struct {
	*rule
	secret string
}

const (
	// maxPlaceholders and maxHeader bound what one request makes of a secret: a
	// header full of placeholders would grow a thousandfold. One placeholder is
	// what clients send.
	maxPlaceholders = 8
	maxHeader       = 64 << 10
)

// prepare asks for the secrets that a request needs. A reason says why the
// request is not to be sent, and the status what to answer.
func prepare(ctx context.Context, rules []rule, r *http.Request, meta Meta) (edits []edit, status int, reason string) {
	for i := range rules {
		rule := &rules[i]
		if !rule.concerns(r.URL) {
			continue
		}
		placeholders, size := 0, 0
		if rule.Placeholder != "" {
			if placeholders, size = rule.placeholders(r.Header); placeholders == 0 {
				continue
			}
			if placeholders > maxPlaceholders {
				return nil, http.StatusRequestHeaderFieldsTooLarge, "too many placeholders in " + rule.Header
			}
		}
		e := edit{rule: rule}
		if rule.Secret != nil {
			secret, err := rule.Secret(ctx, meta)
			if err != nil {
				return nil, http.StatusBadGateway, "no secret for " + rule.Header
			}
			if strings.ContainsFunc(secret, isControl) {
				return nil, http.StatusBadGateway, "the secret for " + rule.Header + " can't be sent in a header"
			}
			if size+placeholders*len(secret) > maxHeader {
				return nil, http.StatusRequestHeaderFieldsTooLarge, rule.Header + " is too large"
			}
			e.secret = secret
		}
		edits = append(edits, e)
	}
	return edits, 0, ""
}

// placeholders counts the placeholders in a header, and the bytes of the values
// that have any.
func (r *rule) placeholders(h http.Header) (count, size int) {
	for _, v := range h[r.Header] {
		n := strings.Count(v, r.Placeholder)
		if n == 0 {
			if plain, ok := r.basic(v); ok {
				n = strings.Count(plain, r.Placeholder)
			}
		}
		if n > 0 {
			count, size = count+n, size+len(v)
		}
	}
	return count, size
}

// apply changes the header.
func (e *edit) apply(h http.Header) {
	if e.Placeholder != "" {
		values := h[e.Header]
		for i, v := range values {
			values[i] = e.replaced(v, e.secret)
		}
		return
	}
	for name := range h {
		if dashed(name) == dashed(e.Header) {
			delete(h, name)
		}
	}
	if e.Secret != nil {
		h[e.Header] = []string{e.secret}
	}
}

// dashed is the name of a header as software reads it that knows no difference
// between a dash and an underscore (as CGI does).
func dashed(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// replaced puts a secret in the place of the placeholder in a header's value.
func (r *rule) replaced(value, secret string) string {
	if strings.Contains(value, r.Placeholder) {
		return strings.ReplaceAll(value, r.Placeholder, secret)
	}
	plain, ok := r.basic(value)
	if !ok || !strings.Contains(plain, r.Placeholder) {
		return value
	}
	plain = strings.ReplaceAll(plain, r.Placeholder, secret)
	return value[:len(basicScheme)] + base64.StdEncoding.EncodeToString([]byte(plain))
}

const basicScheme = "basic "

// basic returns the user name and password in a value of the rule's header, if
// that is where they are.
func (r *rule) basic(value string) (plain string, ok bool) {
	if r.Header != "Authorization" || len(value) < len(basicScheme) || !strings.EqualFold(value[:len(basicScheme)], basicScheme) {
		return "", false
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value[len(basicScheme):]))
	return string(decoded), err == nil
}
