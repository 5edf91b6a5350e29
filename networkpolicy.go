package sandbox

// PolicyMode is the mode of a network policy without lists. The API may report
// others.
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
// allow, so the zero value denies everything. A nil slice or map is not sent,
// an empty one is. JSON is that of the JavaScript SDK, without header values,
// which are never printed either. A policy of the API with parts that this version
// does not know can't be sent back, since that might open what they close.
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

	// unread names the parts that this version does not understand.
	unread []string
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
// has "<redacted>", and can't be written before the values are set anew.
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
