package wire

import (
	"encoding/json"
	"reflect"
	"slices"
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
	// Unknown holds unknown fields, and the lists with rules that have unknown
	// fields.
	Unknown map[string]json.RawMessage `json:"-"`
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

// UnmarshalJSON leaves a response of an unknown form zero, which no response is,
// so that what comes with it can be read.
func (r *Response) UnmarshalJSON(data []byte) error {
	type plain Response
	var p plain
	if json.Unmarshal(data, &p) == nil {
		*r = Response(p)
	}
	return nil
}

type plainPolicy NetworkPolicy

var policyKnown = jsonNames(reflect.TypeFor[NetworkPolicy]())

// ruleKnown names the fields of the rules in each list.
var ruleKnown = map[string]map[string]bool{
	"injectionRules": jsonNames(reflect.TypeFor[InjectionRule]()),
	"forwardRules":   jsonNames(reflect.TypeFor[ForwardRule]()),
	"responseRules":  jsonNames(reflect.TypeFor[ResponseRule]()),
}

var responseKnown = jsonNames(reflect.TypeFor[Response]())

// UnmarshalJSON keeps unknown fields in Unknown.
func (p *NetworkPolicy) UnmarshalJSON(data []byte) error {
	var plain plainPolicy
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	var err error
	plain.Unknown, err = unknown(data, func(name string, list json.RawMessage) bool {
		if known, rules := ruleKnown[name]; rules {
			return onlyKnown(list, known)
		}
		return policyKnown[name]
	})
	*p = NetworkPolicy(plain)
	return err
}

// onlyKnown reports whether the objects of a list have no other fields, and their
// responses neither.
func onlyKnown(list json.RawMessage, known map[string]bool) bool {
	var rules []map[string]json.RawMessage
	if json.Unmarshal(list, &rules) != nil {
		return false
	}
	for _, r := range rules {
		for name, value := range r {
			if !known[name] || name == "response" && !onlyKnown(slices.Concat([]byte("["), value, []byte("]")), responseKnown) {
				return false
			}
		}
	}
	return true
}

// jsonNames returns the names of a type's fields in JSON.
func jsonNames(t reflect.Type) map[string]bool {
	known := map[string]bool{}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			known[name] = true
		}
	}
	return known
}
