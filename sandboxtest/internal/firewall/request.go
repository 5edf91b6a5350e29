package firewall

import (
	"encoding/json"

	"github.com/go-vercel/sandbox/internal/wire"
)

// The modes of a network policy.
const (
	AllowAll = "allow-all"
	DenyAll  = "deny-all"
	Custom   = "custom"
)

// PolicyRequest is a policy in either form that the API accepts: that of the
// SDKs, and that of its responses.
type PolicyRequest struct {
	Mode    string          `json:"mode"`
	Allow   json.RawMessage `json:"allow"`
	Subnets *struct {
		Allow []string `json:"allow"`
		Deny  []string `json:"deny"`
	} `json:"subnets"`

	AllowedDomains []string        `json:"allowedDomains"`
	AllowedCIDRs   []string        `json:"allowedCIDRs"`
	DeniedCIDRs    []string        `json:"deniedCIDRs"`
	InjectionRules []InjectionRule `json:"injectionRules"`
}

// InjectionRule has the values of headers, of which responses have only the
// names.
type InjectionRule struct {
	Domain  string            `json:"domain"`
	Headers map[string]string `json:"headers"`
	Match   json.RawMessage   `json:"match"`
}

// PolicyRule is a rule of a domain.
type PolicyRule struct {
	Match     json.RawMessage `json:"match"`
	Transform []struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
	ForwardURL *string         `json:"forwardURL"`
	Response   *ResponseParams `json:"response"`
}

// ResponseParams is a response in a request: without the leniency of clients.
type ResponseParams wire.Response

type (
	// Matcher is how a text has to be.
	Matcher struct {
		Exact      *string `json:"exact"`
		StartsWith *string `json:"startsWith"`
		Regex      *string `json:"regex"`
	}
	// KeyValueMatcher is how the key and the value of a pair have to be.
	KeyValueMatcher struct {
		Key   *Matcher `json:"key"`
		Value *Matcher `json:"value"`
	}
	// RuleMatch is how a request has to be.
	RuleMatch struct {
		Path        *Matcher          `json:"path"`
		Method      []string          `json:"method"`
		QueryString []KeyValueMatcher `json:"queryString"`
		Headers     []KeyValueMatcher `json:"headers"`
	}
)
