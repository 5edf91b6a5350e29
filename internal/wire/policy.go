package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// NetworkPolicy is a network policy in a response of the API, which contains
// only the names of headers, never their values.
type NetworkPolicy struct {
	Mode           string          `json:"mode"`
	AllowedDomains []string        `json:"allowedDomains,omitzero"`
	AllowedCIDRs   []string        `json:"allowedCIDRs,omitzero"`
	DeniedCIDRs    []string        `json:"deniedCIDRs,omitzero"`
	InjectionRules []InjectionRule `json:"injectionRules,omitzero"`
	ForwardRules   []ForwardRule   `json:"forwardRules,omitzero"`
	ResponseRules  []ResponseRule  `json:"responseRules,omitzero"`
	// Incomplete says that parts of the response had an unknown name or form and are
	// missing here.
	Incomplete bool `json:"-"`
}

// InjectionRule names the headers that are set on requests to a domain.
type InjectionRule struct {
	Domain      string          `json:"domain"`
	HeaderNames []string        `json:"headerNames,omitzero"`
	Match       json.RawMessage `json:"match,omitempty"`
}

// ForwardRule sends requests to a domain through a proxy.
type ForwardRule struct {
	Domain     string          `json:"domain"`
	ForwardURL string          `json:"forwardURL"`
	Match      json.RawMessage `json:"match,omitempty"`
}

// ResponseRule responds to requests to a domain without forwarding them.
type ResponseRule struct {
	Domain   string          `json:"domain"`
	Match    json.RawMessage `json:"match,omitempty"`
	Response Response        `json:"response"`
}

// Response is the response of a response rule.
type Response struct {
	StatusCode  int               `json:"statusCode"`
	Headers     map[string]string `json:"headers,omitempty"`
	Body        *string           `json:"body,omitempty"`
	ContentType *string           `json:"contentType,omitempty"`
}

// UnmarshalJSON reads the known parts of a policy. It never fails.
func (p *NetworkPolicy) UnmarshalJSON(data []byte) error {
	switch string(data) { // most policies: the strict decoder would take a third of a listing's time
	case `{"mode":"allow-all"}`:
		*p = NetworkPolicy{Mode: "allow-all"}
		return nil
	case `{"mode":"deny-all"}`:
		*p = NetworkPolicy{Mode: "deny-all"}
		return nil
	}
	type plain NetworkPolicy
	var read plain
	err := DecodeStrictly(data, &read)
	*p = NetworkPolicy(read)
	p.Incomplete = err != nil
	return nil
}

// DecodeStrictly is json.Unmarshal for policies. It refuses unknown fields and repeated
// names: encoding/json treats "path" and "PATH" as one field and keeps the last. After an
// error, v holds the parts that were decoded.
func DecodeStrictly(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	return cmp.Or(refuseRepeated(json.NewDecoder(bytes.NewReader(data)), true), err)
}

// refuseRepeated reads a value and refuses repeated names. Names of domains and headers
// are not fields: without fold, their case counts.
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
