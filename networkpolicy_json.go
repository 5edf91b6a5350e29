package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

// A policy has two similar forms in JSON: the public one, which is that of the
// JavaScript SDK, and the one of requests, which alone contains header values.
// encode produces both; secrets selects which.

type fields = map[string]any

func (p *NetworkPolicy) encode(secrets bool) any {
	if p.Mode != "" {
		if secrets || len(p.unread) > 0 {
			return p.extra.into(p.withUnread(fields{"mode": p.Mode}))
		}
		return p.Mode
	}
	out := fields{}
	switch {
	case p.Rules != nil:
		allow := make(map[string][]any, len(p.Rules)+len(p.Allow))
		for _, domain := range p.Allow {
			allow[domain] = []any{}
		}
		for domain, rules := range p.Rules {
			allow[domain] = encodeEach(rules, secrets)
		}
		out["allow"] = allow
	case p.Allow != nil:
		out["allow"] = p.Allow
	}
	if s := p.Subnets; s != nil {
		subnets := fields{}
		putList(subnets, "allow", s.Allow)
		putList(subnets, "deny", s.Deny)
		out["subnets"] = s.extra.into(subnets)
	}
	return p.extra.into(p.withUnread(out))
}

// withUnread marks a policy that can't be written back for readers of the JSON.
func (p *NetworkPolicy) withUnread(out fields) fields {
	putList(out, "unread", p.unread)
	return out
}

func (r PolicyRule) encode(secrets bool) any {
	out := fields{}
	if r.Match != nil {
		out["match"] = r.Match.encode(secrets)
	}
	if r.Transform != nil {
		out["transform"] = encodeEach(r.Transform, secrets)
	}
	if r.ForwardURL != "" {
		out["forwardURL"] = r.ForwardURL
	}
	if r.Response != nil {
		out["response"] = r.Response.encode(secrets)
	}
	return r.extra.redacted(secrets).into(out)
}

func (t PolicyTransform) encode(secrets bool) any {
	out := fields{}
	if t.Headers != nil {
		out["headers"] = t.Headers.encode(secrets)
	}
	return t.extra.redacted(secrets).into(out)
}

func (h PolicyHeaders) encode(secrets bool) any {
	out := make(map[string]string, len(h))
	for name, value := range h {
		if !secrets {
			value = RedactedHeader
		}
		out[name] = value
	}
	return out
}

func (m *PolicyMatch) encode(secrets bool) any {
	if m.raw != nil {
		return m.raw
	}
	out := fields{}
	if m.Path != nil {
		out["path"] = m.Path.encode(secrets)
	}
	putList(out, "method", m.Method)
	if m.QueryString != nil {
		out["queryString"] = encodeEach(m.QueryString, secrets)
	}
	if m.Headers != nil {
		out["headers"] = encodeEach(m.Headers, secrets)
	}
	return m.extra.into(out)
}

func (m PolicyKeyValueMatcher) encode(secrets bool) any {
	out := fields{}
	if m.Key != nil {
		out["key"] = m.Key.encode(secrets)
	}
	if m.Value != nil {
		out["value"] = m.Value.encode(secrets)
	}
	return m.extra.into(out)
}

func (m *PolicyMatcher) encode(bool) any {
	out := fields{}
	for name, s := range map[string]*string{"exact": m.Exact, "startsWith": m.StartsWith, "regex": m.Regex} {
		if s != nil {
			out[name] = *s
		}
	}
	return m.extra.into(out)
}

func encodeEach[T interface{ encode(bool) any }](s []T, secrets bool) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v.encode(secrets)
	}
	return out
}

func putList(out fields, name string, list []string) {
	if list != nil {
		out[name] = list
	}
}

func (f rawFields) into(out fields) fields {
	for name, value := range f {
		out[name] = value
	}
	return out
}

// redacted hides the values of unknown fields, which may be secret.
func (f rawFields) redacted(secrets bool) rawFields {
	if secrets {
		return f
	}
	hidden := maps.Clone(f)
	for name := range hidden {
		hidden[name] = json.RawMessage(`"` + RedactedHeader + `"`)
	}
	return hidden
}

// MarshalJSON encodes the policy like the JavaScript SDK: the mode as a string,
// or an object. Header values are redacted.
func (p NetworkPolicy) MarshalJSON() ([]byte, error) { return json.Marshal(p.encode(false)) }

// MarshalJSON encodes the rule with redacted header values.
func (r PolicyRule) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode(false)) }

// MarshalJSON encodes the transform with redacted header values.
func (t PolicyTransform) MarshalJSON() ([]byte, error) { return json.Marshal(t.encode(false)) }

// MarshalJSON encodes the headers with redacted values.
func (h PolicyHeaders) MarshalJSON() ([]byte, error) { return json.Marshal(h.encode(false)) }

// MarshalJSON encodes the match like the JavaScript SDK.
func (m PolicyMatch) MarshalJSON() ([]byte, error) { return json.Marshal(m.encode(false)) }

// MarshalJSON encodes the matcher like the JavaScript SDK.
func (m PolicyKeyValueMatcher) MarshalJSON() ([]byte, error) {
	return json.Marshal(m.encode(false))
}

// MarshalJSON encodes the matcher like the JavaScript SDK.
func (m PolicyMatcher) MarshalJSON() ([]byte, error) { return json.Marshal(m.encode(false)) }

// UnmarshalJSON decodes a policy in the form of the JavaScript SDK.
func (p *NetworkPolicy) UnmarshalJSON(data []byte) error {
	var read NetworkPolicy
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &read.Mode); err != nil {
			return fmt.Errorf("network policy: %w", err)
		}
		if read.Mode == "" {
			return errors.New("network policy: the mode is empty")
		}
		*p = read
		return nil
	}
	var allow json.RawMessage
	var err error
	read.extra, err = decodeFields(data, fields{"allow": &allow, "subnets": &read.Subnets, "unread": &read.unread})
	if err == nil && len(allow) > 0 {
		into := any(&read.Rules)
		if allow[0] == '[' {
			into = &read.Allow
		}
		if err = json.Unmarshal(allow, into); err != nil {
			err = fmt.Errorf("allow: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("network policy: %w", err)
	}
	// The API's own form of the modes.
	switch mode := string(read.extra["mode"]); mode {
	case `"` + string(PolicyAllowAll) + `"`, `"` + string(PolicyDenyAll) + `"`:
		if len(read.extra) == 1 && read.unread == nil && read.Allow == nil && read.Rules == nil && read.Subnets == nil {
			read = NetworkPolicy{Mode: PolicyMode(mode[1 : len(mode)-1])}
		}
	}
	*p = read
	return nil
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (s *PolicySubnets) UnmarshalJSON(data []byte) error {
	var read PolicySubnets
	var err error
	read.extra, err = decodeFields(data, fields{"allow": &read.Allow, "deny": &read.Deny})
	return store(s, read, err)
}

// MarshalJSON encodes the ranges like the JavaScript SDK.
func (s PolicySubnets) MarshalJSON() ([]byte, error) {
	out := fields{}
	putList(out, "allow", s.Allow)
	putList(out, "deny", s.Deny)
	return json.Marshal(s.extra.into(out))
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (r *PolicyRule) UnmarshalJSON(data []byte) error {
	var read PolicyRule
	var err error
	read.extra, err = decodeFields(data, fields{"match": &read.Match, "transform": &read.Transform, "forwardURL": &read.ForwardURL, "response": &read.Response})
	return store(r, read, err)
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (t *PolicyTransform) UnmarshalJSON(data []byte) error {
	var read PolicyTransform
	var headers map[string]string
	var err error
	read.extra, err = decodeFields(data, fields{"headers": &headers})
	read.Headers = headers
	return store(t, read, err)
}

// UnmarshalJSON decodes what MarshalJSON encodes. A match in an unknown form is
// not an error, so that every response of the API can be read, but it can't be
// written back.
func (m *PolicyMatch) UnmarshalJSON(data []byte) error {
	var read PolicyMatch
	if err := read.decode(data); err != nil {
		read = PolicyMatch{raw: slices.Clone(data)}
	}
	*m = read
	return nil
}

func (m *PolicyMatch) decode(data []byte) (err error) {
	m.extra, err = decodeFields(data, fields{
		"path": &m.Path, "method": &m.Method, "queryString": &m.QueryString, "headers": &m.Headers,
	})
	return err
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (m *PolicyKeyValueMatcher) UnmarshalJSON(data []byte) error {
	var read PolicyKeyValueMatcher
	var err error
	read.extra, err = decodeFields(data, fields{"key": &read.Key, "value": &read.Value})
	return store(m, read, err)
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (m *PolicyMatcher) UnmarshalJSON(data []byte) error {
	var read PolicyMatcher
	var err error
	read.extra, err = decodeFields(data, fields{"exact": &read.Exact, "startsWith": &read.StartsWith, "regex": &read.Regex})
	return store(m, read, err)
}

func store[T any](to *T, read T, err error) error {
	if err == nil {
		*to = read
	}
	return err
}

// decodeFields decodes the known fields of a JSON object, by their exact names,
// and returns the others. A known field that is null stays unset.
func decodeFields(data []byte, known fields) (rawFields, error) {
	var all rawFields
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errors.New("null where an object is needed")
	}
	for name, into := range known {
		value, ok := all[name]
		if !ok {
			continue
		}
		delete(all, name)
		if string(value) == "null" {
			continue
		}
		if err := json.Unmarshal(value, into); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// toWire checks the policy and returns its request form, which shares nothing
// with p. An error names the rule.
func (p *NetworkPolicy) toWire() (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return p.clone().encode(true), nil
}

func (p *NetworkPolicy) check() error {
	const at = "NetworkPolicy"
	if len(p.unread) > 0 {
		return invalid(at, "was read from the API with parts that this version does not know (%s), which would be lost if it was written back: make a new one", strings.Join(p.unread, ", "))
	}
	switch p.Mode {
	case "":
	case PolicyAllowAll, PolicyDenyAll:
		if p.Allow != nil || p.Rules != nil || p.Subnets != nil {
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
	if p.Subnets == nil {
		return nil
	}
	if err := checkSubnets(at+".Subnets.Allow", p.Subnets.Allow); err != nil {
		return err
	}
	return checkSubnets(at+".Subnets.Deny", p.Subnets.Deny)
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
	case r.kinds() > 1:
		return invalid(at, "Transform, ForwardURL and Response can't be used together")
	case r.kinds() == 0:
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
	if err := r.extra.check(at); err != nil {
		return err
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

// kinds counts the actions of the rule, of which there must be one.
func (r *PolicyRule) kinds() int {
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
		case value == RedactedHeader:
			return redactedError(fmt.Sprintf("%s.Headers[%q]", at, name))
		case strings.ContainsAny(value, "\r\n\x00"):
			return invalid(at+".Headers", "the value of %s contains a line break or NUL", name)
		}
	}
	return t.extra.check(at)
}

func redactedError(at string) error {
	return invalid(at, "holds the placeholder %s that stands for a value read from the API: put the value in before the policy is written", RedactedHeader)
}

func (f rawFields) check(at string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		var text string
		if json.Unmarshal(f[name], &text) == nil && text == RedactedHeader {
			return redactedError(at + "." + name)
		}
	}
	return nil
}

func isToken(s string) bool {
	ok := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c < 0x80 && strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}
	return s != "" && strings.IndexFunc(s, func(c rune) bool { return !ok(c) }) < 0
}

func (m *PolicyMatch) check(at string) error {
	if m.raw != nil {
		return invalid(at, "%v", new(PolicyMatch).decode(m.raw))
	}
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
	p := &NetworkPolicy{unread: slices.Sorted(maps.Keys(w.Unknown))}
	if w.AllowedCIDRs != nil || w.DeniedCIDRs != nil {
		p.Subnets = &PolicySubnets{Allow: slices.Clone(w.AllowedCIDRs), Deny: slices.Clone(w.DeniedCIDRs)}
	}
	if len(w.InjectionRules) == 0 && len(w.ForwardRules) == 0 && len(w.ResponseRules) == 0 {
		p.Allow = slices.Clone(w.AllowedDomains)
		return p
	}
	p.Rules = make(map[string][]PolicyRule)
	for _, domain := range w.AllowedDomains {
		p.Rules[domain] = []PolicyRule{}
	}
	for _, r := range w.InjectionRules {
		headers := make(PolicyHeaders, len(r.HeaderNames))
		for _, name := range r.HeaderNames {
			headers[name] = RedactedHeader
		}
		p.Rules[r.Domain] = append(p.Rules[r.Domain], PolicyRule{
			Match: matchFromWire(r.Match), Transform: []PolicyTransform{{Headers: headers}},
		})
	}
	for _, r := range w.ForwardRules {
		p.Rules[r.Domain] = append(p.Rules[r.Domain], PolicyRule{Match: matchFromWire(r.Match), ForwardURL: r.ForwardURL})
	}
	for _, r := range w.ResponseRules {
		p.Rules[r.Domain] = append(p.Rules[r.Domain], PolicyRule{Match: matchFromWire(r.Match), Response: responseFromWire(&r.Response)})
	}
	return p
}

func matchFromWire(data json.RawMessage) *PolicyMatch {
	var m *PolicyMatch
	if len(data) > 0 && json.Unmarshal(data, &m) != nil {
		return nil
	}
	return m
}
