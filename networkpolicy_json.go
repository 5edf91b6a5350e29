package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// A policy has two similar forms in JSON: the public one, which is that of the
// JavaScript SDK, and the one of requests, which alone contains header values.
// The types of rules have their names in JSON as tags; only headers differ.

type policyJSON struct {
	Mode    PolicyMode     `json:"mode,omitempty"`
	Allow   any            `json:"allow,omitempty"`
	Subnets *policySubnets `json:"subnets,omitempty"`
	// Unread marks a policy that can't be written back for readers of the JSON.
	Unread []string `json:"unread,omitempty"`
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

type policyRuleJSON struct {
	Match      *PolicyMatch          `json:"match,omitempty"`
	Transform  []policyTransformJSON `json:"transform,omitzero"`
	ForwardURL string                `json:"forwardURL,omitempty"`
	Response   *PolicyResponse       `json:"response,omitempty"`
}

type policyTransformJSON struct {
	Headers map[string]string `json:"headers,omitzero"`
}

// encode returns the form of requests, or the public one.
func (p *NetworkPolicy) encode(request bool) ([]byte, error) {
	doc := policyJSON{Mode: p.Mode}
	if !request {
		if p.Mode != "" && p.unread == nil {
			return json.Marshal(p.Mode)
		}
		doc.Unread = p.unread
	}
	if p.Mode == "" {
		doc.Subnets = p.subnets()
		if p.Rules != nil {
			doc.Allow = p.rulesJSON(request)
		} else if p.Allow != nil {
			doc.Allow = p.Allow
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(doc)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// rulesJSON returns the rules of all domains.
func (p *NetworkPolicy) rulesJSON(values bool) map[string][]policyRuleJSON {
	out := make(map[string][]policyRuleJSON, len(p.Rules)+len(p.Allow))
	for _, domain := range p.Allow {
		out[domain] = []policyRuleJSON{}
	}
	for domain, rules := range p.Rules {
		out[domain] = make([]policyRuleJSON, len(rules))
		for i, r := range rules {
			rule := policyRuleJSON{Match: r.Match, ForwardURL: r.ForwardURL, Response: r.Response}
			if !values {
				rule.ForwardURL = shownURL(r.ForwardURL)
			}
			if r.Transform != nil {
				rule.Transform = make([]policyTransformJSON, len(r.Transform))
			}
			for j, t := range r.Transform {
				rule.Transform[j].Headers = t.Headers
				if !values {
					rule.Transform[j].Headers = t.Headers.shown()
				}
			}
			out[domain][i] = rule
		}
	}
	return out
}

// shownURL returns the URL of a proxy, unless it has what may be a secret, with which
// it can't be sent either.
func shownURL(text string) string {
	if u, err := url.Parse(text); err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return redactedHeader
	}
	return text
}

// shown returns the headers without their values.
func (h PolicyHeaders) shown() map[string]string {
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
func (r PolicyRule) MarshalJSON() ([]byte, error) {
	type rule PolicyRule
	r.ForwardURL = shownURL(r.ForwardURL)
	return json.Marshal(rule(r))
}

// Format prints the transform without the values of headers, for every verb.
func (t PolicyTransform) Format(f fmt.State, verb rune) { redact.Struct(f, verb, t) }

// Format prints the headers without their values, for every verb.
func (h PolicyHeaders) Format(f fmt.State, verb rune) {
	redact.String(f, verb, fmt.Sprint(h.shown()))
}

// MarshalJSON encodes the headers with redacted values.
func (h PolicyHeaders) MarshalJSON() ([]byte, error) { return json.Marshal(h.shown()) }

// MarshalJSON encodes the policy like the JavaScript SDK: the mode as a string,
// or an object. Header values are redacted.
func (p NetworkPolicy) MarshalJSON() ([]byte, error) { return p.encode(false) }

// ParseNetworkPolicy decodes a policy in JSON as [NetworkPolicy.UnmarshalJSON] does, with
// or without a byte order mark, and refuses what [Client.Create] would refuse. The error
// matches [ErrInvalid] and names the field, but no header value.
func ParseNetworkPolicy(data []byte) (*NetworkPolicy, error) {
	p := new(NetworkPolicy)
	switch err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), p); {
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
// fields and names that come twice, whatever their case.
func (p *NetworkPolicy) UnmarshalJSON(data []byte) error {
	read, err := decodePolicy(data)
	if err != nil {
		return fmt.Errorf("network policy: %w", policyProblem(data, err))
	}
	*p = read
	return nil
}

// policyProblem returns the error of a policy in JSON without the words of the
// decoder for an unknown field.
func policyProblem(data []byte, err error) error {
	before, name, ok := strings.Cut(err.Error(), "json: unknown field ")
	switch {
	case !ok:
		return err
	case bytes.Contains(data, []byte(`"allowedDomains"`)):
		name += ": this is the API's own form; here a policy has mode, allow and subnets"
	}
	return errors.New(before + "unknown field " + name)
}

func decodePolicy(data []byte) (p NetworkPolicy, err error) {
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '"' {
		if err = json.Unmarshal(data, &p.Mode); err == nil && p.Mode == "" {
			err = errors.New("the mode is empty")
		}
		return p, err
	}
	if err := refuseRepeated(json.NewDecoder(bytes.NewReader(data)), true); err != nil {
		return p, err
	}
	var allow json.RawMessage
	doc := policyJSON{Allow: &allow}
	if err := unmarshalStrict(data, &doc); err != nil {
		return p, err
	}
	p.unread = doc.Unread
	if s := doc.Subnets; s != nil {
		p.AllowSubnets, p.DenySubnets = s.Allow, s.Deny
		if p.subnets() == nil {
			p.AllowSubnets = []string{}
		}
	}
	p.Mode = doc.Mode
	if len(allow) > 0 && allow[0] == '[' {
		err = json.Unmarshal(allow, &p.Allow)
	} else if len(allow) > 0 {
		p.Rules, err = decodeRules(allow)
	}
	if err != nil {
		return p, fmt.Errorf("allow: %w", err)
	}
	return p, nil
}

// refuseRepeated reads a value, and refuses names that come twice: encoding/json takes
// "path" and "PATH" for one field, and keeps the last. Names of domains and headers are
// no fields: with fold unset, only the same name is refused.
func refuseRepeated(dec *json.Decoder, fold bool) error {
	token, err := dec.Token()
	names := map[string]bool{}
	for list := token == json.Delim('['); err == nil && (list || token == json.Delim('{')) && dec.More(); {
		var name string
		if !list {
			token, _ := dec.Token()
			name, _ = token.(string)
			seen := name
			if fold {
				seen = strings.ToLower(name)
			}
			if names[seen] {
				return fmt.Errorf("%q comes twice", name)
			}
			names[seen] = true
		}
		err = refuseRepeated(dec, !fold || name != "allow" && name != "headers")
	}
	if _, nested := token.(json.Delim); nested && err == nil {
		_, err = dec.Token()
	}
	return err
}

// unmarshalStrict is json.Unmarshal that refuses unknown fields.
func unmarshalStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func decodeRules(data []byte) (map[string][]PolicyRule, error) {
	var domains map[string][]policyRuleJSON
	if err := unmarshalStrict(data, &domains); err != nil {
		return nil, err
	}
	rules := make(map[string][]PolicyRule, len(domains))
	for domain, list := range domains {
		rules[domain] = make([]PolicyRule, len(list))
		for i, r := range list {
			rule := PolicyRule{Match: r.Match, ForwardURL: r.ForwardURL, Response: r.Response}
			if r.Transform != nil {
				rule.Transform = make([]PolicyTransform, len(r.Transform))
			}
			for j, t := range r.Transform {
				rule.Transform[j].Headers = t.Headers
			}
			rules[domain][i] = rule
		}
	}
	return rules, nil
}

// toWire checks the policy and returns its request form, which shares nothing
// with p. An error names the rule.
func (p *NetworkPolicy) toWire() (json.RawMessage, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.unread != nil {
		return nil, invalid("NetworkPolicy", "was read with parts that this version does not know (%s), which would be lost if it was written back: make a new one", strings.Join(p.unread, ", "))
	}
	return p.encode(true)
}

// networkPolicyFromWire converts the API's form of a policy to the public one.
// The names of headers are known, their values are not. If there are rules, the
// result has the form of Rules, with injections first.
func networkPolicyFromWire(w *wire.NetworkPolicy) *NetworkPolicy {
	switch {
	case w == nil:
		return nil
	case w.Mode != "" && w.Mode != "custom":
		return &NetworkPolicy{Mode: PolicyMode(w.Mode), unread: slices.Sorted(maps.Keys(w.Unknown))}
	}
	p := &NetworkPolicy{
		AllowSubnets: slices.Clone(w.AllowedCIDRs), DenySubnets: slices.Clone(w.DeniedCIDRs),
		unread: slices.Sorted(maps.Keys(w.Unknown)),
	}
	if len(w.InjectionRules) == 0 && len(w.ForwardRules) == 0 && len(w.ResponseRules) == 0 {
		p.Allow = slices.Clone(w.AllowedDomains)
		return p
	}
	p.Rules = make(map[string][]PolicyRule)
	for _, domain := range w.AllowedDomains {
		p.Rules[domain] = []PolicyRule{}
	}
	match := func(list string, i int, data json.RawMessage) *PolicyMatch {
		m, whole := matchFromWire(data)
		if !whole {
			p.unread = append(p.unread, fmt.Sprintf("%s[%d].match", list, i))
		}
		return m
	}
	for i, r := range w.InjectionRules {
		headers := make(PolicyHeaders, len(r.HeaderNames))
		for _, name := range r.HeaderNames {
			headers[name] = redactedHeader
		}
		p.Rules[r.Domain] = append(p.Rules[r.Domain], PolicyRule{
			Match: match("injectionRules", i, r.Match), Transform: []PolicyTransform{{Headers: headers}},
		})
	}
	// A rule whose action has an unknown form is not shown: what it would show
	// nobody has sent.
	unread := func(list string, i int) {
		if _, told := w.Unknown[list]; !told {
			p.unread = append(p.unread, fmt.Sprintf("%s[%d]", list, i))
		}
	}
	for i, r := range w.ForwardRules {
		if r.ForwardURL == "" {
			unread("forwardRules", i)
			continue
		}
		p.Rules[r.Domain] = append(p.Rules[r.Domain], PolicyRule{Match: match("forwardRules", i, r.Match), ForwardURL: r.ForwardURL})
	}
	for i, r := range w.ResponseRules {
		if r.Response.StatusCode == 0 {
			unread("responseRules", i)
			continue
		}
		p.Rules[r.Domain] = append(p.Rules[r.Domain], PolicyRule{Match: match("responseRules", i, r.Match), Response: responseFromWire(&r.Response)})
	}
	return p
}

// matchFromWire decodes a match, and reports whether it understands all of it.
func matchFromWire(data json.RawMessage) (m *PolicyMatch, whole bool) {
	if len(data) == 0 || string(data) == "null" {
		return nil, true
	}
	m = new(PolicyMatch)
	if refuseRepeated(json.NewDecoder(bytes.NewReader(data)), true) != nil || unmarshalStrict(data, m) != nil {
		return new(PolicyMatch), false // not nil, which would match everything
	}
	return m, true
}

func responseFromWire(w *wire.Response) *PolicyResponse {
	r := &PolicyResponse{StatusCode: w.StatusCode, Headers: maps.Clone(w.Headers), Body: clonePtr(w.Body)}
	if w.ContentType != nil {
		r.ContentType = *w.ContentType
	}
	return r
}
