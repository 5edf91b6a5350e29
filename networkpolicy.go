package sandbox

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// PolicyMode is the mode of a network policy without lists. The API may report
// other modes than the two constants.
type PolicyMode string

// The modes of a network policy.
const (
	PolicyAllowAll PolicyMode = "allow-all"
	PolicyDenyAll  PolicyMode = "deny-all"
)

// NetworkPolicy restricts what a sandbox can reach. It has one of three forms:
//
//   - Mode alone, see [AllowAll] and [DenyAll];
//   - Allow, a list of domains;
//   - Rules, domains with rules for the requests to them.
//
// Subnets can be combined with the last two. A policy denies what it does not
// allow, so the zero value denies everything. An empty slice or map is sent, a nil
// one is not.
//
// A policy has the JSON of the JavaScript SDK. The values of headers are redacted
// there and wherever a policy is printed. A policy from the API with parts that this
// version does not know can't be sent back: without them it might allow more.
type NetworkPolicy struct {
	// Mode is [PolicyAllowAll], the default of a sandbox, or [PolicyDenyAll];
	// empty if the other fields decide.
	Mode PolicyMode
	// Allow lists the domains that can be reached; "*.example.com" matches all
	// subdomains, "*" all domains. If Rules is also set, these are domains
	// without rules.
	Allow []string
	// Rules maps the domains that can be reached to rules for requests to them.
	// Requests to a domain without rules are not changed.
	Rules map[string][]PolicyRule
	// AllowSubnets lists ranges in CIDR notation that can be reached regardless of
	// domains. IPv6 ranges are sent unchanged: the platform's documentation
	// mentions them, but its API was seen to refuse them with 400, "Invalid CIDR".
	AllowSubnets []string
	// DenySubnets lists ranges that can't be reached. It takes precedence over
	// everything that is allowed.
	DenySubnets []string

	// incomplete marks a policy from the API that has parts which this version does
	// not know.
	incomplete bool
}

// PolicyRule applies to requests to a domain. Exactly one of Transform,
// ForwardURL and Response must be set. The first rule of a domain that matches
// a request is applied; a request that matches none is sent unchanged. Matching
// never blocks a request.
type PolicyRule struct {
	// Match restricts the rule to some requests. Nil means all.
	Match *PolicyMatch `json:"match,omitempty"`
	// Transform changes the requests.
	Transform []PolicyTransform `json:"transform,omitzero"`
	// ForwardURL is the https URL of a proxy, without query and fragment, that
	// receives the requests; package proxy implements one.
	ForwardURL string `json:"forwardURL,omitempty" secret:"url"`
	// Response is returned for the requests, which are not sent.
	Response *PolicyResponse `json:"response,omitempty"`
}

// PolicyTransform is a change to requests.
type PolicyTransform struct {
	// Headers are set on the request, replacing those that the sandbox sent.
	Headers PolicyHeaders `json:"headers,omitzero"`
}

// PolicyHeaders maps the names of headers to values. A map literal can be
// assigned to it. The values are usually credentials; they are never printed,
// logged or marshaled. The API does not return them: a policy that is read back
// has "<redacted>", and can't be written before the values are set again.
type PolicyHeaders map[string]string

// PolicyResponse is a response that the firewall returns itself, without
// sending the request. With a status such as 403 it blocks what its rule
// matches.
type PolicyResponse struct {
	// StatusCode is from 200 to 599.
	StatusCode int `json:"statusCode"`
	// Headers are sent with the response; Connection, Content-Length and
	// Transfer-Encoding can't be set. The program in the sandbox sees the
	// values, so they must not contain secrets.
	Headers map[string]string `json:"headers,omitzero"`
	// Body requires a ContentType, and is not allowed with status 204, 205 or
	// 304. Nil sends none.
	Body        *string `json:"body,omitempty"`
	ContentType string  `json:"contentType,omitempty"`
}

// PolicyMatch selects the requests that match all of the fields that are set.
type PolicyMatch struct {
	// Path matches the path of the URL.
	Path *PolicyMatcher `json:"path,omitempty"`
	// Method lists methods, one of which must be the request's.
	Method []string `json:"method,omitzero"`
	// QueryString lists query parameters, all of which must be present.
	QueryString []PolicyKeyValueMatcher `json:"queryString,omitzero"`
	// Headers lists headers, all of which must be present.
	Headers []PolicyKeyValueMatcher `json:"headers,omitzero"`
}

// PolicyKeyValueMatcher matches a header or a query parameter by its name and
// value. A nil matcher matches anything.
type PolicyKeyValueMatcher struct {
	Key   *PolicyMatcher `json:"key,omitempty"`
	Value *PolicyMatcher `json:"value,omitempty"`
}

// PolicyMatcher matches a string in one of three ways. One of the fields must be
// set: &PolicyMatcher{Exact: new("GET")}.
type PolicyMatcher struct {
	// Exact is the whole string.
	Exact *string `json:"exact,omitempty"`
	// StartsWith is a prefix of the string.
	StartsWith *string `json:"startsWith,omitempty"`
	// Regex is a regular expression in RE2 syntax, as used by package regexp.
	Regex *string `json:"regex,omitempty"`
}

// AllowAll returns a policy that allows access to the whole internet.
func AllowAll() *NetworkPolicy { return &NetworkPolicy{Mode: PolicyAllowAll} }

// DenyAll returns a policy that denies access to any network.
func DenyAll() *NetworkPolicy { return &NetworkPolicy{Mode: PolicyDenyAll} }

func (p *NetworkPolicy) check() error {
	const at = "NetworkPolicy"
	switch p.Mode {
	case "":
	case PolicyAllowAll, PolicyDenyAll:
		if p.Allow != nil || p.Rules != nil || p.subnets() != nil {
			return invalid(at+".Mode", "%q can't be used together with lists", p.Mode)
		}
		return nil
	default:
		return invalid(at+".Mode", "%q is not %q or %q", p.Mode, PolicyAllowAll, PolicyDenyAll)
	}
	for i, domain := range p.Allow {
		if err := checkDomain(fmt.Sprintf("%s.Allow[%d]", at, i), domain); err != nil {
			return err
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(p.Rules)) {
		if err := checkDomain(at+".Rules", domain); err != nil {
			return err
		}
		for i, rule := range p.Rules[domain] {
			if err := rule.check(fmt.Sprintf("%s.Rules[%q][%d]", at, domain, i)); err != nil {
				return err
			}
		}
	}
	if err := checkSubnets(at+".AllowSubnets", p.AllowSubnets); err != nil {
		return err
	}
	return checkSubnets(at+".DenySubnets", p.DenySubnets)
}

func checkDomain(at, domain string) error {
	if domain == "" {
		return invalid(at, "the domain is empty")
	}
	if strings.ContainsAny(domain, " \t\r\n/") {
		return invalid(at, "%q is not a domain: give a host name such as api.example.com or *.example.com", domain)
	}
	for label := range strings.SplitSeq(domain, ".") {
		if label != "*" && strings.Contains(label, "*") {
			return invalid(at, "%q: a * stands for whole labels, as in *.example.com", domain)
		}
	}
	return checkText(at, domain)
}

func checkSubnets(at string, subnets []string) error {
	for i, s := range subnets {
		if _, err := netip.ParsePrefix(s); err == nil {
			continue
		}
		if _, err := netip.ParseAddr(s); err != nil {
			return invalid(fmt.Sprintf("%s[%d]", at, i), "%q is not a range of addresses such as 10.0.0.0/8", s)
		}
	}
	return nil
}

func (r *PolicyRule) check(at string) error {
	switch {
	case r.actions() > 1:
		return invalid(at, "Transform, ForwardURL and Response can't be used together")
	case r.actions() == 0:
		return invalid(at, "Transform, ForwardURL or Response is needed; for a domain without rules leave the list empty")
	case r.Response != nil:
		if err := r.Response.check(at + ".Response"); err != nil {
			return err
		}
	case r.ForwardURL != "":
		if err := checkForwardURL(at+".ForwardURL", r.ForwardURL); err != nil {
			return err
		}
	}
	for i, t := range r.Transform {
		if err := t.check(fmt.Sprintf("%s.Transform[%d]", at, i)); err != nil {
			return err
		}
	}
	if r.Match == nil {
		return nil
	}
	return r.Match.check(at + ".Match")
}

// actions counts the actions of the rule. There must be exactly one.
func (r *PolicyRule) actions() int {
	n := 0
	for _, set := range []bool{r.Transform != nil, r.ForwardURL != "", r.Response != nil} {
		if set {
			n++
		}
	}
	return n
}

// checkForwardURL keeps the URL out of the message, since it may contain a
// password.
func checkForwardURL(at, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return invalid(at, "is not a URL with a host")
	case u.Scheme != "https":
		return invalid(at, "the scheme is %q; https is needed", u.Scheme)
	case u.User != nil:
		return invalid(at, "holds a user name or password; the proxy knows its callers by their token")
	case u.RawQuery != "" || u.ForceQuery:
		return invalid(at, "has a query, which is not allowed")
	case u.Fragment != "":
		return invalid(at, "has a fragment, which is not allowed")
	}
	return nil
}

func (t *PolicyTransform) check(at string) error {
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		value := t.Headers[name]
		switch {
		case !isToken(name):
			return invalid(at+".Headers", "%q can't be the name of a header", name)
		case value == redactedHeader:
			return invalid(fmt.Sprintf("%s.Headers[%q]", at, name), "holds the placeholder %s that stands for a value read from the API: put the value in before the policy is written", redactedHeader)
		case strings.ContainsAny(value, "\r\n\x00"):
			return invalid(at+".Headers", "the value of %s contains a line break or NUL", name)
		}
	}
	return nil
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"
	return s != "" && strings.Trim(s, chars) == ""
}

func (m *PolicyMatch) check(at string) error {
	if err := m.Path.check(at + ".Path"); err != nil {
		return err
	}
	if err := checkKeyValues(at+".QueryString", m.QueryString); err != nil {
		return err
	}
	return checkKeyValues(at+".Headers", m.Headers)
}

func checkKeyValues(at string, list []PolicyKeyValueMatcher) error {
	for i, kv := range list {
		one := fmt.Sprintf("%s[%d]", at, i)
		if err := kv.Key.check(one + ".Key"); err != nil {
			return err
		}
		if err := kv.Value.check(one + ".Value"); err != nil {
			return err
		}
	}
	return nil
}

func (m *PolicyMatcher) check(at string) error {
	if m == nil || m.Regex == nil {
		return nil
	}
	if _, err := regexp.Compile(*m.Regex); err != nil {
		return invalid(at+".Regex", "%v", err)
	}
	return nil
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

// Format prints the policy as JSON with redacted header values, for every verb.
func (p NetworkPolicy) Format(f fmt.State, verb rune) {
	text, err := p.encode(false)
	if err != nil {
		text = []byte("invalid network policy")
	}
	redact.String(f, verb, string(text))
}

// Format prints the rule without the values of headers, for every verb.
func (r PolicyRule) Format(f fmt.State, verb rune) { redact.Struct(f, verb, r) }

// Format prints the transform without the values of headers, for every verb.
func (t PolicyTransform) Format(f fmt.State, verb rune) { redact.Struct(f, verb, t) }

// Format prints the headers without their values, for every verb.
func (h PolicyHeaders) Format(f fmt.State, verb rune) {
	redact.String(f, verb, fmt.Sprint(h.redacted()))
}
