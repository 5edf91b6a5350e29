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

// PolicyRequest is a policy in either form that the API accepts: the SDKs', and that of
// its own responses.
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
	InjectionRules []injectionRule `json:"injectionRules"`
}

// injectionRule contains the values of headers. Responses contain only their names.
type injectionRule struct {
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
	Response   *responseParams `json:"response"`
}

// responseParams is the response of a rule in a request. Unlike wire.Response, it is
// decoded strictly.
type responseParams wire.Response

type (
	// Matcher matches a text.
	Matcher struct {
		Exact      *string `json:"exact"`
		StartsWith *string `json:"startsWith"`
		Regex      *string `json:"regex"`
	}
	// keyValueMatcher matches the key and the value of a pair.
	keyValueMatcher struct {
		Key   *Matcher `json:"key"`
		Value *Matcher `json:"value"`
	}
	// RuleMatch matches a request.
	RuleMatch struct {
		Path        *Matcher          `json:"path"`
		Method      []string          `json:"method"`
		QueryString []keyValueMatcher `json:"queryString"`
		Headers     []keyValueMatcher `json:"headers"`
	}
)
