package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// PolicyMode is a network policy that consists of one word. The API may add
// others.
type PolicyMode string

// The modes of a network policy.
const (
	// PolicyAllowAll allows access to the whole internet. It is the default.
	PolicyAllowAll PolicyMode = "allow-all"
	// PolicyDenyAll denies all access.
	PolicyDenyAll PolicyMode = "deny-all"
)

// RedactedHeader is the value of every header in a policy read from the API,
// which never returns the actual values. A policy that contains it can't be
// written back: set the values first, or remove the rules.
const RedactedHeader = "<redacted>"

// NetworkPolicy restricts what a sandbox can reach. It has one of three forms:
//
//   - Mode alone, see [AllowAll] and [DenyAll];
//   - Allow, a list of domains;
//   - Rules, domains with rules for the requests to them.
//
// Subnets can be combined with the second and third. Whatever is not allowed is
// denied, so a policy without any field set denies everything.
//
// As in the JavaScript SDK, a nil slice or map is not sent, while an empty one
// is. Fields unknown to this version of the SDK are kept when a policy is read
// from JSON, and sent when it is written. A policy read from the API that this
// version does not fully understand can be inspected but not written back,
// since that might open what the unknown parts close.
//
// A NetworkPolicy is encoded in JSON as in the JavaScript SDK. Header values
// are never printed, logged or marshaled.
type NetworkPolicy struct {
	// Mode allows or denies everything; empty if the other fields decide.
	Mode PolicyMode
	// Allow lists the domains that can be reached; "*.example.com" matches all
	// subdomains, "*" all domains. If Rules is also set, these are domains
	// without rules.
	Allow []string
	// Rules maps the domains that can be reached to rules for requests to them.
	// Requests to a domain without rules are not changed.
	Rules map[string][]PolicyRule
	// Subnets allows and denies addresses. Nil leaves that to the domains.
	Subnets *PolicySubnets

	extra rawFields
	// unread names parts of the API's response that this version does not
	// understand.
	unread []string
}

// PolicySubnets allows and denies addresses by ranges in CIDR notation. IPv6
// ranges are sent unchanged: the platform's documentation mentions them, but
// its API was seen to refuse them with 400, "Invalid CIDR".
type PolicySubnets struct {
	// Allow lists ranges that can be reached regardless of domains.
	Allow []string
	// Deny lists ranges that can't be reached. It takes precedence over
	// everything that is allowed.
	Deny []string

	extra rawFields
}

// PolicyRule applies to requests to a domain. Exactly one of Transform,
// ForwardURL and Response must be set. The first rule of a domain that matches
// a request is applied; a request that matches none is sent unchanged. Matching
// never blocks a request.
type PolicyRule struct {
	// Match restricts the rule to some requests. Nil means all.
	Match *PolicyMatch
	// Transform changes the requests.
	Transform []PolicyTransform
	// ForwardURL is the https URL of a proxy, without query and fragment, that
	// receives the requests; package proxy implements one.
	ForwardURL string
	// Response is returned for the requests, which are not sent.
	Response *PolicyResponse

	extra rawFields
}

// PolicyTransform is a change to requests.
type PolicyTransform struct {
	// Headers are set on the request, replacing those that the sandbox sent.
	Headers PolicyHeaders

	extra rawFields
}

// PolicyHeaders maps the names of headers to values. A map literal can be
// assigned to it. The values are usually credentials; they are never printed,
// logged or marshaled.
type PolicyHeaders map[string]string

// PolicyMatch selects the requests that match all of the fields that are set.
type PolicyMatch struct {
	// Path matches the path of the URL.
	Path *PolicyMatcher
	// Method lists methods, one of which must be the request's.
	Method []string
	// QueryString lists query parameters, all of which must be present.
	QueryString []PolicyKeyValueMatcher
	// Headers lists headers, all of which must be present.
	Headers []PolicyKeyValueMatcher

	extra rawFields
	// raw is a match in an unknown form.
	raw json.RawMessage
}

// PolicyKeyValueMatcher matches a header or a query parameter by its name and
// value. A nil matcher matches anything.
type PolicyKeyValueMatcher struct {
	Key, Value *PolicyMatcher

	extra rawFields
}

// PolicyMatcher matches a string in one of three ways. Use [MatchExact],
// [MatchPrefix] or [MatchRegex] to create one.
type PolicyMatcher struct {
	// Exact is the whole string.
	Exact *string
	// StartsWith is a prefix of the string.
	StartsWith *string
	// Regex is a regular expression in RE2 syntax, as used by package regexp.
	Regex *string

	extra rawFields
}

// rawFields are JSON fields unknown to this version of the SDK.
type rawFields map[string]json.RawMessage

// AllowAll returns a policy that allows access to the whole internet.
func AllowAll() *NetworkPolicy { return &NetworkPolicy{Mode: PolicyAllowAll} }

// DenyAll returns a policy that denies access to any network.
func DenyAll() *NetworkPolicy { return &NetworkPolicy{Mode: PolicyDenyAll} }

// AllowDomains returns a policy that allows access to the given domains only.
func AllowDomains(domains ...string) *NetworkPolicy {
	return &NetworkPolicy{Allow: append([]string{}, domains...)}
}

// MatchExact returns a matcher for the string s.
func MatchExact(s string) *PolicyMatcher { return &PolicyMatcher{Exact: &s} }

// MatchPrefix returns a matcher for strings that begin with s.
func MatchPrefix(s string) *PolicyMatcher { return &PolicyMatcher{StartsWith: &s} }

// MatchRegex returns a matcher for strings that match a regular expression in
// RE2 syntax.
func MatchRegex(expr string) *PolicyMatcher { return &PolicyMatcher{Regex: &expr} }

// Equal reports whether p and q are the same policy in the same form, including
// header values. Either may be nil.
func (p *NetworkPolicy) Equal(q *NetworkPolicy) bool {
	if p == nil || q == nil {
		return p == q
	}
	a, errA := json.Marshal(p.encode(true))
	b, errB := json.Marshal(q.encode(true))
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// String returns the policy as JSON with redacted header values.
func (p NetworkPolicy) String() string { return encodedText(p.encode(false)) }

// Format writes String for every verb.
func (p NetworkPolicy) Format(f fmt.State, verb rune) { redact.String(f, verb, p.String()) }

// LogValue implements [slog.LogValuer].
func (p NetworkPolicy) LogValue() slog.Value { return slog.StringValue(p.String()) }

// String returns the rule as JSON with redacted header values.
func (r PolicyRule) String() string { return encodedText(r.encode(false)) }

// Format writes String for every verb.
func (r PolicyRule) Format(f fmt.State, verb rune) { redact.String(f, verb, r.String()) }

// LogValue implements [slog.LogValuer].
func (r PolicyRule) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String returns the transform as JSON with redacted header values.
func (t PolicyTransform) String() string { return encodedText(t.encode(false)) }

// Format writes String for every verb.
func (t PolicyTransform) Format(f fmt.State, verb rune) { redact.String(f, verb, t.String()) }

// LogValue implements [slog.LogValuer].
func (t PolicyTransform) LogValue() slog.Value { return slog.StringValue(t.String()) }

// String returns the headers as JSON with redacted values.
func (h PolicyHeaders) String() string { return encodedText(h.encode(false)) }

// Format writes String for every verb.
func (h PolicyHeaders) Format(f fmt.State, verb rune) { redact.String(f, verb, h.String()) }

// LogValue implements [slog.LogValuer].
func (h PolicyHeaders) LogValue() slog.Value { return slog.StringValue(h.String()) }

func encodedText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "invalid network policy"
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// clone returns a copy that shares nothing with p.
func (p *NetworkPolicy) clone() *NetworkPolicy {
	if p == nil {
		return nil
	}
	c := &NetworkPolicy{Mode: p.Mode, Allow: slices.Clone(p.Allow), extra: p.extra.clone(), unread: slices.Clone(p.unread)}
	if p.Rules != nil {
		c.Rules = make(map[string][]PolicyRule, len(p.Rules))
		for domain, rules := range p.Rules {
			c.Rules[domain] = cloneEach(rules, PolicyRule.clone)
		}
	}
	if s := p.Subnets; s != nil {
		c.Subnets = &PolicySubnets{Allow: slices.Clone(s.Allow), Deny: slices.Clone(s.Deny), extra: s.extra.clone()}
	}
	return c
}

func (r PolicyRule) clone() PolicyRule {
	r.Match = r.Match.clone()
	r.Transform = cloneEach(r.Transform, func(t PolicyTransform) PolicyTransform {
		return PolicyTransform{Headers: maps.Clone(t.Headers), extra: t.extra.clone()}
	})
	r.Response = r.Response.clone()
	r.extra = r.extra.clone()
	return r
}

func (m *PolicyMatch) clone() *PolicyMatch {
	if m == nil {
		return nil
	}
	return &PolicyMatch{
		Path: m.Path.clone(), Method: slices.Clone(m.Method),
		QueryString: cloneEach(m.QueryString, PolicyKeyValueMatcher.clone),
		Headers:     cloneEach(m.Headers, PolicyKeyValueMatcher.clone),
		extra:       m.extra.clone(), raw: slices.Clone(m.raw),
	}
}

func (m PolicyKeyValueMatcher) clone() PolicyKeyValueMatcher {
	return PolicyKeyValueMatcher{Key: m.Key.clone(), Value: m.Value.clone(), extra: m.extra.clone()}
}

func (m *PolicyMatcher) clone() *PolicyMatcher {
	if m == nil {
		return nil
	}
	c := &PolicyMatcher{extra: m.extra.clone()}
	for _, field := range [][2]**string{{&c.Exact, &m.Exact}, {&c.StartsWith, &m.StartsWith}, {&c.Regex, &m.Regex}} {
		if from := *field[1]; from != nil {
			*field[0] = new(*from)
		}
	}
	return c
}

func (f rawFields) clone() rawFields {
	c := maps.Clone(f)
	for k, v := range c {
		c[k] = slices.Clone(v)
	}
	return c
}

// cloneEach preserves the difference between nil and empty.
func cloneEach[T any](s []T, clone func(T) T) []T {
	if s == nil {
		return nil
	}
	c := make([]T, len(s))
	for i, v := range s {
		c[i] = clone(v)
	}
	return c
}

// PolicyResponse is a response that the firewall returns itself, without
// sending the request. With a status such as 403 it blocks what its rule
// matches.
type PolicyResponse struct {
	// StatusCode is from 200 to 599.
	StatusCode int
	// Headers are sent with the response; Connection, Content-Length and
	// Transfer-Encoding can't be set. The program in the sandbox sees the
	// values, so they must not contain secrets.
	Headers map[string]string
	// Body requires a ContentType, and is not allowed with status 204, 205 or
	// 304. Nil sends none.
	Body        *string
	ContentType string

	extra rawFields
}

func (r *PolicyResponse) encode(bool) any {
	out := fields{"statusCode": r.StatusCode}
	if r.Headers != nil {
		out["headers"] = r.Headers
	}
	if r.Body != nil {
		out["body"] = *r.Body
	}
	if r.ContentType != "" {
		out["contentType"] = r.ContentType
	}
	return r.extra.into(out)
}

// MarshalJSON encodes the response like the JavaScript SDK.
func (r PolicyResponse) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode(false)) }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (r *PolicyResponse) UnmarshalJSON(data []byte) error {
	var read PolicyResponse
	var err error
	read.extra, err = decodeFields(data, fields{
		"statusCode": &read.StatusCode, "headers": &read.Headers, "body": &read.Body, "contentType": &read.ContentType,
	})
	return store(r, read, err)
}

func (r *PolicyResponse) clone() *PolicyResponse {
	if r == nil {
		return nil
	}
	return &PolicyResponse{
		StatusCode: r.StatusCode, Headers: maps.Clone(r.Headers), Body: clonePtr(r.Body), ContentType: r.ContentType, extra: r.extra.clone(),
	}
}

func (r *PolicyResponse) check(at string) error {
	if r.StatusCode < 200 || r.StatusCode > 599 {
		return invalid(at+".StatusCode", "%d is outside 200 to 599", r.StatusCode)
	}
	if r.Body != nil {
		switch r.StatusCode {
		case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
			return invalid(at+".Body", "a response of status %d has none", r.StatusCode)
		}
		if r.ContentType == "" {
			return invalid(at+".ContentType", "is empty; a Body needs one")
		}
		if err := checkText(at+".Body", *r.Body); err != nil {
			return err
		}
	}
	if strings.ContainsAny(r.ContentType, "\r\n\x00") {
		return invalid(at+".ContentType", "contains a line break or NUL")
	}
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		lower := strings.ToLower(name)
		switch lower {
		case "connection", "content-length", "transfer-encoding":
			return invalid(at+".Headers", "%s can't be set: it is the firewall's own", name)
		}
		if first, twice := seen[lower]; twice {
			return invalid(at+".Headers", "%s and %s are the same header", first, name)
		}
		seen[lower] = name
		switch {
		case !isToken(name):
			return invalid(at+".Headers", "%q can't be the name of a header", name)
		case strings.ContainsAny(r.Headers[name], "\r\n\x00"):
			return invalid(at+".Headers", "the value of %s contains a line break or NUL", name)
		}
	}
	return nil
}

func responseFromWire(w *wire.Response) *PolicyResponse {
	r := &PolicyResponse{StatusCode: w.StatusCode, Headers: maps.Clone(w.Headers), Body: clonePtr(w.Body)}
	if w.ContentType != nil {
		r.ContentType = *w.ContentType
	}
	return r
}
