package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/go-vercel/sandbox/internal/redact"
)

// PolicyMode is a network policy in one word. The API may add further
// values.
type PolicyMode string

// The policies of one word.
const (
	// PolicyAllowAll gives full access to the internet, which is the default.
	PolicyAllowAll PolicyMode = "allow-all"
	// PolicyDenyAll gives none.
	PolicyDenyAll PolicyMode = "deny-all"
)

// RedactedHeader stands for the value of a header in a policy that was read
// from the API, which never gives the values themselves. A policy that holds it
// can't be written back: put the values in first, or leave the rules out.
const RedactedHeader = "<redacted>"

// NetworkPolicy restricts what a sandbox can reach. It has one of three forms:
//
//   - Mode alone, see [AllowAll] and [DenyAll];
//   - Allow, a list of domains;
//   - Rules, domains with what is done to requests to them.
//
// Subnets can go with the second and third. What is not allowed is denied, so
// that a policy with no field set denies everything.
//
// A nil list and an empty one are told apart, as in the JavaScript SDK: a nil
// one is not sent. Fields that this version of the SDK does not know are kept
// when a policy is read from JSON, and sent when it is written. A policy that was
// read from the API with parts that this version does not know can be looked at
// but not written back: that could open what those parts close.
//
// A NetworkPolicy marshals to JSON and back in the shape of the JavaScript SDK.
// The values of headers never show when one is printed, logged or marshalled.
type NetworkPolicy struct {
	// Mode allows or denies everything; empty when the lists decide.
	Mode PolicyMode
	// Allow lists the domains that can be reached; "*.example.com" means every
	// subdomain, "*" every domain. When Rules is set as well, these are domains
	// without rules.
	Allow []string
	// Rules maps the domains that can be reached to rules for requests to them.
	// A domain without rules is reached as it is.
	Rules map[string][]PolicyRule
	// Subnets allows and denies by address. Nil leaves addresses to the domains.
	Subnets *PolicySubnets

	extra rawFields
	// unread names what the API said and this version does not understand.
	unread []string
}

// PolicySubnets is access by address, in CIDR notation.
type PolicySubnets struct {
	// Allow lists ranges that can be reached whatever the domain.
	Allow []string
	// Deny lists ranges that can't be reached. It takes precedence over all
	// that is allowed.
	Deny []string

	extra rawFields
}

// PolicyRule is what is done to requests to a domain. Exactly one of Transform,
// ForwardURL and Response is set. Of the rules of a domain the first that matches
// a request holds; a request that none matches goes out as it is, because
// matching only ever selects: it never blocks.
type PolicyRule struct {
	// Match limits the rule to some requests. Nil means all.
	Match *PolicyMatch
	// Transform changes the requests.
	Transform []PolicyTransform
	// ForwardURL is the https address of a proxy, without query and fragment,
	// that gets the requests; package proxy has a handler for it.
	ForwardURL string
	// Response answers the requests without letting them out.
	Response *PolicyResponse

	extra rawFields
}

// PolicyTransform is a change to requests.
type PolicyTransform struct {
	// Headers are set on the request, replacing what the sandbox sent.
	Headers PolicyHeaders

	extra rawFields
}

// PolicyHeaders maps the names of headers to values. A map literal can be
// assigned to it. The values, which usually are credentials, never show when it
// is printed, logged or marshalled.
type PolicyHeaders map[string]string

// PolicyMatch limits a rule to requests that every field which is set
// matches.
type PolicyMatch struct {
	// Path matches the path of the URL.
	Path *PolicyMatcher
	// Method lists methods, of which one has to be the request's.
	Method []string
	// QueryString lists parameters of the query, all of which have to be there.
	QueryString []PolicyKeyValueMatcher
	// Headers lists headers, all of which have to be there.
	Headers []PolicyKeyValueMatcher

	extra rawFields
	// raw is a match in a form that is not known.
	raw json.RawMessage
}

// PolicyKeyValueMatcher matches a header or a parameter by its name and
// its value; nil matches any.
type PolicyKeyValueMatcher struct {
	Key, Value *PolicyMatcher

	extra rawFields
}

// PolicyMatcher matches a text in one of three ways. [MatchExact],
// [MatchPrefix] and [MatchRegex] make one.
type PolicyMatcher struct {
	// Exact is the whole text.
	Exact *string
	// StartsWith is what the text begins with.
	StartsWith *string
	// Regex is a regular expression in RE2 syntax, which is that of package
	// regexp.
	Regex *string

	extra rawFields
}

// rawFields are JSON fields that this version of the SDK does not know.
type rawFields map[string]json.RawMessage

// AllowAll returns the policy that gives full access to the internet.
func AllowAll() *NetworkPolicy { return &NetworkPolicy{Mode: PolicyAllowAll} }

// DenyAll returns the policy that gives no access to any network.
func DenyAll() *NetworkPolicy { return &NetworkPolicy{Mode: PolicyDenyAll} }

// AllowDomains returns the policy that lets some domains be reached and nothing
// else.
func AllowDomains(domains ...string) *NetworkPolicy {
	return &NetworkPolicy{Allow: append([]string{}, domains...)}
}

// MatchExact matches the text s.
func MatchExact(s string) *PolicyMatcher { return &PolicyMatcher{Exact: &s} }

// MatchPrefix matches texts that begin with s.
func MatchPrefix(s string) *PolicyMatcher { return &PolicyMatcher{StartsWith: &s} }

// MatchRegex matches texts by a regular expression in RE2 syntax.
func MatchRegex(expr string) *PolicyMatcher { return &PolicyMatcher{Regex: &expr} }

// Equal reports whether p and q are the same policy in the same form, values of
// headers included. Either may be nil.
func (p *NetworkPolicy) Equal(q *NetworkPolicy) bool {
	if p == nil || q == nil {
		return p == q
	}
	a, errA := json.Marshal(p.encode(true))
	b, errB := json.Marshal(q.encode(true))
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// String shows the policy as JSON with the values of headers redacted.
func (p NetworkPolicy) String() string { return encodedText(p.encode(false)) }

// Format writes String for every verb.
func (p NetworkPolicy) Format(f fmt.State, verb rune) { redact.String(f, verb, p.String()) }

// LogValue is String for log/slog.
func (p NetworkPolicy) LogValue() slog.Value { return slog.StringValue(p.String()) }

// String shows the rule as JSON with the values of headers redacted.
func (r PolicyRule) String() string { return encodedText(r.encode(false)) }

// Format writes String for every verb.
func (r PolicyRule) Format(f fmt.State, verb rune) { redact.String(f, verb, r.String()) }

// LogValue is String for log/slog.
func (r PolicyRule) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String shows the change as JSON with the values of headers redacted.
func (t PolicyTransform) String() string { return encodedText(t.encode(false)) }

// Format writes String for every verb.
func (t PolicyTransform) Format(f fmt.State, verb rune) { redact.String(f, verb, t.String()) }

// LogValue is String for log/slog.
func (t PolicyTransform) LogValue() slog.Value { return slog.StringValue(t.String()) }

// String shows the headers as JSON with redacted values.
func (h PolicyHeaders) String() string { return encodedText(h.encode(false)) }

// Format writes String for every verb.
func (h PolicyHeaders) Format(f fmt.State, verb rune) { redact.String(f, verb, h.String()) }

// LogValue is String for log/slog.
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

// cloneEach keeps nil and empty apart.
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
