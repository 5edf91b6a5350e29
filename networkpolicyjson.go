package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/wire"
)

// redactedHeader is the value of every header in a policy read from the API.
const redactedHeader = "<redacted>"

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

// MarshalJSON encodes the rule with redacted header values, and with a redacted
// ForwardURL if that has a password, a query or a fragment.
func (r PolicyRule) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode(false)) }

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
