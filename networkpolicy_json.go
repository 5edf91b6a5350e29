package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

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
