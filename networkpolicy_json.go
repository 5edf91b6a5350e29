package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A policy has two forms in JSON which differ little: the public one, which is
// that of the JavaScript SDK, and the one that requests carry, which alone has
// the values of headers. encode makes both; secrets says which.

type fields = map[string]any

func (p *NetworkPolicy) encode(secrets bool) any {
	if p.Mode != "" {
		if secrets {
			return p.extra.into(fields{"mode": p.Mode})
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
	return p.extra.into(out)
}

func (r NetworkPolicyRule) encode(secrets bool) any {
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
	return r.extra.redacted(secrets).into(out)
}

func (t NetworkTransformer) encode(secrets bool) any {
	out := fields{}
	if t.Headers != nil {
		out["headers"] = t.Headers.encode(secrets)
	}
	return t.extra.redacted(secrets).into(out)
}

func (h NetworkHeaders) encode(secrets bool) any {
	out := make(map[string]string, len(h))
	for name, value := range h {
		if !secrets {
			value = RedactedHeader
		}
		out[name] = value
	}
	return out
}

func (m *NetworkPolicyMatch) encode(secrets bool) any {
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

func (m NetworkPolicyKeyValueMatcher) encode(secrets bool) any {
	out := fields{}
	if m.Key != nil {
		out["key"] = m.Key.encode(secrets)
	}
	if m.Value != nil {
		out["value"] = m.Value.encode(secrets)
	}
	return m.extra.into(out)
}

func (m *NetworkPolicyMatcher) encode(bool) any {
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

// redacted hides the values of fields that may be secret, since nobody knows
// what they are.
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

// MarshalJSON writes the policy as the JavaScript SDK has it: the mode as a
// string, or an object. The values of headers are redacted.
func (p NetworkPolicy) MarshalJSON() ([]byte, error) { return json.Marshal(p.encode(false)) }

// MarshalJSON writes the rule with the values of headers redacted.
func (r NetworkPolicyRule) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode(false)) }

// MarshalJSON writes the change with the values of headers redacted.
func (t NetworkTransformer) MarshalJSON() ([]byte, error) { return json.Marshal(t.encode(false)) }

// MarshalJSON writes the names of the headers with redacted values.
func (h NetworkHeaders) MarshalJSON() ([]byte, error) { return json.Marshal(h.encode(false)) }

// MarshalJSON writes the match as the JavaScript SDK has it.
func (m NetworkPolicyMatch) MarshalJSON() ([]byte, error) { return json.Marshal(m.encode(false)) }

// MarshalJSON writes the matcher as the JavaScript SDK has it.
func (m NetworkPolicyKeyValueMatcher) MarshalJSON() ([]byte, error) {
	return json.Marshal(m.encode(false))
}

// MarshalJSON writes the matcher as the JavaScript SDK has it.
func (m NetworkPolicyMatcher) MarshalJSON() ([]byte, error) { return json.Marshal(m.encode(false)) }

// UnmarshalJSON reads a policy in the shape of the JavaScript SDK.
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
	read.extra, err = decodeFields(data, fields{"allow": &allow, "subnets": &read.Subnets})
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
	// The API's own form of the one-word policies.
	switch mode := string(read.extra["mode"]); mode {
	case `"` + string(NetworkAllowAll) + `"`, `"` + string(NetworkDenyAll) + `"`:
		if len(read.extra) == 1 && read.Allow == nil && read.Rules == nil && read.Subnets == nil {
			read = NetworkPolicy{Mode: NetworkPolicyMode(mode[1 : len(mode)-1])}
		}
	}
	*p = read
	return nil
}

// UnmarshalJSON reads what MarshalJSON of [NetworkPolicy] writes.
func (s *NetworkPolicySubnets) UnmarshalJSON(data []byte) error {
	var read NetworkPolicySubnets
	var err error
	read.extra, err = decodeFields(data, fields{"allow": &read.Allow, "deny": &read.Deny})
	return store(s, read, err)
}

// MarshalJSON writes the ranges as the JavaScript SDK has them.
func (s NetworkPolicySubnets) MarshalJSON() ([]byte, error) {
	out := fields{}
	putList(out, "allow", s.Allow)
	putList(out, "deny", s.Deny)
	return json.Marshal(s.extra.into(out))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *NetworkPolicyRule) UnmarshalJSON(data []byte) error {
	var read NetworkPolicyRule
	var err error
	read.extra, err = decodeFields(data, fields{"match": &read.Match, "transform": &read.Transform, "forwardURL": &read.ForwardURL})
	return store(r, read, err)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *NetworkTransformer) UnmarshalJSON(data []byte) error {
	var read NetworkTransformer
	var headers map[string]string
	var err error
	read.extra, err = decodeFields(data, fields{"headers": &headers})
	read.Headers = headers
	return store(t, read, err)
}

// UnmarshalJSON reads what MarshalJSON writes. A match in a form that is not
// known is no error, so that every answer of the API can be read, but it can't
// be written back.
func (m *NetworkPolicyMatch) UnmarshalJSON(data []byte) error {
	var read NetworkPolicyMatch
	if err := read.decode(data); err != nil {
		read = NetworkPolicyMatch{raw: slices.Clone(data)}
	}
	*m = read
	return nil
}

func (m *NetworkPolicyMatch) decode(data []byte) (err error) {
	m.extra, err = decodeFields(data, fields{
		"path": &m.Path, "method": &m.Method, "queryString": &m.QueryString, "headers": &m.Headers,
	})
	return err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *NetworkPolicyKeyValueMatcher) UnmarshalJSON(data []byte) error {
	var read NetworkPolicyKeyValueMatcher
	var err error
	read.extra, err = decodeFields(data, fields{"key": &read.Key, "value": &read.Value})
	return store(m, read, err)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *NetworkPolicyMatcher) UnmarshalJSON(data []byte) error {
	var read NetworkPolicyMatcher
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

// decodeFields reads the fields of a JSON object that are known, by their exact
// names, and returns the others. A known field that is null stays unset.
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
