package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// PolicyMode is the mode of a network policy without lists. The API may report
// other modes than the two constants.
type PolicyMode string

// The modes of a network policy.
const (
	PolicyAllowAll PolicyMode = "allow-all"
	PolicyDenyAll  PolicyMode = "deny-all"
)

// redactedHeader is the value of every header in a policy read from the API.
const redactedHeader = "<redacted>"

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

// policyJSON is the JSON of a policy, in two forms. The public form is that of the
// JavaScript SDK, with redacted header values. The form for requests contains the values,
// and is an object even for a mode alone.
type policyJSON struct {
	Mode       PolicyMode     `json:"mode,omitempty"`
	Allow      any            `json:"allow,omitempty"`
	Subnets    *policySubnets `json:"subnets,omitempty"`
	Incomplete bool           `json:"incomplete,omitempty"`
}

type policySubnets struct {
	Allow []string `json:"allow,omitzero"`
	Deny  []string `json:"deny,omitzero"`
}

func (p *NetworkPolicy) subnets() *policySubnets {
	if p.AllowSubnets == nil && p.DenySubnets == nil {
		return nil
	}
	return &policySubnets{p.AllowSubnets, p.DenySubnets}
}

// encodedRule is the JSON of a [PolicyRule]. It encodes the values of headers as they
// are, unlike [PolicyHeaders].
type encodedRule struct {
	Match      *PolicyMatch       `json:"match,omitempty"`
	Transform  []encodedTransform `json:"transform,omitzero"`
	ForwardURL string             `json:"forwardURL,omitempty"`
	Response   *PolicyResponse    `json:"response,omitempty"`
}

type encodedTransform struct {
	Headers map[string]string `json:"headers,omitzero"`
}

// encode returns the form for requests, or the public one.
func (p *NetworkPolicy) encode(request bool) ([]byte, error) {
	if p.Mode != "" && !p.incomplete && !request {
		return json.Marshal(p.Mode)
	}
	doc := policyJSON{Mode: p.Mode, Incomplete: p.incomplete}
	if p.Mode == "" {
		doc.Subnets = p.subnets()
		switch {
		case p.Rules != nil:
			doc.Allow = p.encodeRules(request)
		case p.Allow != nil:
			doc.Allow = p.Allow
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(doc)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// encodeRules returns the rules of all domains. No list is nil, which would be null.
func (p *NetworkPolicy) encodeRules(request bool) map[string][]encodedRule {
	out := make(map[string][]encodedRule, len(p.Rules)+len(p.Allow))
	for _, domain := range p.Allow {
		out[domain] = []encodedRule{}
	}
	for domain, rules := range p.Rules {
		out[domain] = make([]encodedRule, len(rules))
		for i, r := range rules {
			out[domain][i] = r.encode(request)
		}
	}
	return out
}

func (r PolicyRule) encode(request bool) encodedRule {
	out := encodedRule{Match: r.Match, ForwardURL: r.ForwardURL, Response: r.Response}
	if !request {
		out.ForwardURL = redactedURL(r.ForwardURL)
	}
	if r.Transform != nil {
		out.Transform = make([]encodedTransform, len(r.Transform))
	}
	for i, t := range r.Transform {
		out.Transform[i].Headers = t.Headers
		if !request {
			out.Transform[i].Headers = t.Headers.redacted()
		}
	}
	return out
}

// redactedURL returns the URL of a proxy, or the placeholder if the URL may contain a
// secret. checkForwardURL refuses such a URL.
func redactedURL(text string) string {
	if u, err := url.Parse(text); err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return redactedHeader
	}
	return text
}

// redacted returns the headers without their values.
func (h PolicyHeaders) redacted() map[string]string {
	if h == nil {
		return nil
	}
	out := make(map[string]string, len(h))
	for name := range h {
		out[name] = redactedHeader
	}
	return out
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

// MarshalJSON encodes the rule with redacted header values, and with a redacted
// ForwardURL if that has a password, a query or a fragment.
func (r PolicyRule) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode(false)) }

// Format prints the transform without the values of headers, for every verb.
func (t PolicyTransform) Format(f fmt.State, verb rune) { redact.Struct(f, verb, t) }

// Format prints the headers without their values, for every verb.
func (h PolicyHeaders) Format(f fmt.State, verb rune) {
	redact.String(f, verb, fmt.Sprint(h.redacted()))
}

// MarshalJSON encodes the headers with redacted values.
func (h PolicyHeaders) MarshalJSON() ([]byte, error) { return json.Marshal(h.redacted()) }

// MarshalJSON encodes the policy like the JavaScript SDK: the mode as a string,
// or an object. Header values are redacted.
func (p NetworkPolicy) MarshalJSON() ([]byte, error) { return p.encode(false) }

// ParseNetworkPolicy decodes a policy in JSON as [NetworkPolicy.UnmarshalJSON] does, with
// or without a byte order mark, and refuses what [Client.Create] would refuse. The error
// matches [ErrInvalid] and names the field, but no header value.
func ParseNetworkPolicy(data []byte) (*NetworkPolicy, error) {
	p := new(NetworkPolicy)
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch err := json.Unmarshal(data, p); {
	case err != nil:
		return nil, invalid("network policy", "%s", strings.TrimPrefix(err.Error(), "network policy: "))
	case string(bytes.TrimSpace(data)) == "null":
		return nil, invalid("network policy", "is null")
	case !utf8.Valid(data):
		return nil, invalid("network policy", "is not UTF-8")
	}
	if _, err := p.toWire(); err != nil {
		return nil, err
	}
	return p, nil
}

// UnmarshalJSON decodes a policy in the form of the JavaScript SDK. It refuses unknown
// fields and repeated names, ignoring case.
func (p *NetworkPolicy) UnmarshalJSON(data []byte) error {
	var read NetworkPolicy
	if err := read.decode(data); err != nil {
		return fmt.Errorf("network policy: %w", policyError(data, err))
	}
	*p = read
	return nil
}

func (p *NetworkPolicy) decode(data []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte(`"`)) {
		err := json.Unmarshal(data, &p.Mode)
		if p.Mode == "" && err == nil {
			err = errors.New("the mode is empty")
		}
		return err
	}
	var allow json.RawMessage // a list of domains, or an object of rules
	doc := policyJSON{Allow: &allow}
	if err := wire.DecodeStrictly(data, &doc); err != nil {
		return err
	}
	p.Mode, p.incomplete = doc.Mode, doc.Incomplete
	if s := doc.Subnets; s != nil {
		p.AllowSubnets, p.DenySubnets = s.Allow, s.Deny
		if p.subnets() == nil {
			p.AllowSubnets = []string{} // keeps the empty object, which is then sent back
		}
	}
	var err error
	switch {
	case len(allow) == 0:
	case allow[0] == '[':
		err = json.Unmarshal(allow, &p.Allow)
	default:
		err = wire.DecodeStrictly(allow, &p.Rules)
	}
	if err != nil {
		return fmt.Errorf("allow: %w", err)
	}
	return nil
}

// policyError describes a mistake in a policy's JSON in JSON's terms, not Go's. The text
// before "json: " says where the mistake is.
func policyError(data []byte, err error) error {
	where, what, _ := strings.Cut(err.Error(), "json: ")
	if strings.HasPrefix(what, "unknown field ") {
		if bytes.Contains(data, []byte(`"allowedDomains"`)) {
			what += ": this is the API's own form; here a policy has mode, allow and subnets"
		}
		return errors.New(where + what)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field != "" {
			where += wrong.Field + ": "
		}
		needed := "an object"
		switch wrong.Type.Kind() {
		case reflect.String:
			needed = "a string"
		case reflect.Int:
			needed = "a whole number"
		case reflect.Bool:
			needed = "true or false"
		case reflect.Slice:
			needed = "a list"
		}
		return fmt.Errorf("%s%s is needed, not %s", where, needed, wrong.Value)
	}
	return err
}

// toWire checks the policy and returns the form for requests. An error names the rule.
func (p *NetworkPolicy) toWire() (json.RawMessage, error) {
	if p.incomplete {
		return nil, invalid("NetworkPolicy", "was read with parts that this version does not know, which would be lost if it was written back: make a new one")
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p.encode(true)
}

// networkPolicyFromWire converts a policy in a response. The values of its headers are
// placeholders, because responses contain only the names. If there are rules, the
// result has Rules and no Allow.
func networkPolicyFromWire(w *wire.NetworkPolicy) *NetworkPolicy {
	switch {
	case w == nil:
		return nil
	case w.Mode != "" && w.Mode != "custom":
		return &NetworkPolicy{Mode: PolicyMode(w.Mode), incomplete: w.Incomplete}
	}
	p := &NetworkPolicy{AllowSubnets: slices.Clone(w.AllowedCIDRs), DenySubnets: slices.Clone(w.DeniedCIDRs), incomplete: w.Incomplete}
	if len(w.InjectionRules) == 0 && len(w.ForwardRules) == 0 && len(w.ResponseRules) == 0 {
		p.Allow = slices.Clone(w.AllowedDomains)
		return p
	}
	p.Rules = make(map[string][]PolicyRule)
	for _, domain := range w.AllowedDomains {
		p.Rules[domain] = []PolicyRule{}
	}
	add := func(domain string, match json.RawMessage, rule PolicyRule) {
		if rule.actions() == 0 { // the action's form is unknown
			p.incomplete = true
			return
		}
		if len(match) > 0 && string(match) != "null" {
			rule.Match = new(PolicyMatch)
			if wire.DecodeStrictly(match, rule.Match) != nil {
				*rule.Match, p.incomplete = PolicyMatch{}, true
			}
		}
		p.Rules[domain] = append(p.Rules[domain], rule)
	}
	for _, r := range w.InjectionRules {
		headers := make(PolicyHeaders, len(r.HeaderNames))
		for _, name := range r.HeaderNames {
			headers[name] = redactedHeader
		}
		add(r.Domain, r.Match, PolicyRule{Transform: []PolicyTransform{{Headers: headers}}})
	}
	for _, r := range w.ForwardRules {
		add(r.Domain, r.Match, PolicyRule{ForwardURL: r.ForwardURL})
	}
	for _, r := range w.ResponseRules {
		rule := PolicyRule{}
		if from := r.Response; from.StatusCode != 0 {
			rule.Response = &PolicyResponse{StatusCode: from.StatusCode, Headers: maps.Clone(from.Headers), Body: clonePtr(from.Body), ContentType: orZero(from.ContentType)}
		}
		add(r.Domain, r.Match, rule)
	}
	return p
}
