package firewall

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

// Policy is a network policy in the form that the firewall uses.
type Policy struct {
	Mode        string
	domains     []string // patterns, in lower case
	allow, deny []netip.Prefix
	rules       map[string][]rule // by pattern
}

// rule is a rule of a domain. One of response, forwardURL and headers is set.
type rule struct {
	match      func(*http.Request) bool // nil matches every request
	headers    map[string]string
	forwardURL string
	response   *wire.Response
}

// ParsePolicy parses a policy of an API request, which was already checked. Empty data
// means that everything is allowed.
func ParsePolicy(data []byte) (*Policy, error) {
	if len(data) == 0 {
		return &Policy{Mode: AllowAll}, nil
	}
	var p PolicyRequest
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	e := &Policy{Mode: Custom, rules: make(map[string][]rule)}
	switch p.Mode {
	case AllowAll, "default-allow":
		e.Mode = AllowAll
		return e, nil
	case DenyAll, "default-deny":
		e.Mode = DenyAll
		return e, nil
	}
	allowed, denied := p.AllowedCIDRs, p.DeniedCIDRs
	if p.Subnets != nil {
		allowed, denied = p.Subnets.Allow, p.Subnets.Deny
	}
	e.allow, e.deny = prefixes(allowed), prefixes(denied)
	for _, d := range p.AllowedDomains {
		e.domains = append(e.domains, plainName(d))
	}
	for _, r := range p.InjectionRules {
		rule := rule{headers: r.Headers}
		if err := rule.setMatch(r.Match); err != nil {
			return nil, err
		}
		e.rules[plainName(r.Domain)] = append(e.rules[plainName(r.Domain)], rule)
	}
	return e, e.addAllowed(p.Allow)
}

// addAllowed adds the domains of the field allow: a list, or an object with their rules.
func (e *Policy) addAllowed(data json.RawMessage) error {
	if !strings.HasPrefix(strings.TrimSpace(string(data)), "{") {
		if data == nil {
			return nil
		}
		var list []string
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		for _, d := range list {
			e.domains = append(e.domains, plainName(d))
		}
		return nil
	}
	var domains map[string][]PolicyRule
	if err := json.Unmarshal(data, &domains); err != nil {
		return err
	}
	for d, rules := range domains {
		d = plainName(d)
		e.domains = append(e.domains, d)
		for _, r := range rules {
			rule := rule{response: (*wire.Response)(r.Response)}
			if r.ForwardURL != nil {
				rule.forwardURL = *r.ForwardURL
			}
			for _, t := range r.Transform {
				if rule.headers == nil {
					rule.headers = make(map[string]string)
				}
				maps.Copy(rule.headers, t.Headers)
			}
			if err := rule.setMatch(r.Match); err != nil {
				return err
			}
			e.rules[d] = append(e.rules[d], rule)
		}
	}
	return nil
}

// prefixes parses address ranges. A single address is a range of one.
func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		} else if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out
}

func contains(list []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap()
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// plainName normalizes a domain name for comparisons.
func plainName(name string) string { return strings.TrimSuffix(lowerName(name), ".") }

// matchesDomain reports whether a name matches a pattern. A star stands for whole labels:
// one, or at the start one or more.
func matchesDomain(pattern, name string) bool {
	if name == "" {
		return false
	}
	if pattern == "*" {
		return true
	}
	want, have := strings.Split(pattern, "."), strings.Split(name, ".")
	if want[0] == "*" && len(have) > len(want) {
		have = have[len(have)-len(want):]
	}
	return len(want) == len(have) && !slices.Contains(have, "") &&
		slices.EqualFunc(want, have, func(w, h string) bool { return w == "*" || w == h })
}

// allowsName reports whether a name may be looked up, and whether TLS connections to it are
// allowed.
func (e *Policy) allowsName(name string) bool {
	switch e.Mode {
	case AllowAll:
		return true
	case DenyAll:
		return false
	}
	name = plainName(name)
	return slices.ContainsFunc(e.domains, func(pattern string) bool { return matchesDomain(pattern, name) })
}

// rulesOf returns the rules of the domain that matches a name best: the one with the most
// labels other than stars.
func (e *Policy) rulesOf(name string) []rule {
	best, most := "", -1
	for _, pattern := range e.domains {
		if !matchesDomain(pattern, name) {
			continue
		}
		labels := 2 * len(strings.Split(strings.ReplaceAll(pattern, "*.", ""), "."))
		switch {
		case pattern == "*":
			labels = 0
		case !strings.Contains(pattern, "*"):
			labels++
		}
		if labels > most {
			best, most = pattern, labels
		}
	}
	return e.rules[best]
}

// rule returns the first rule that matches a request. If there is none, it returns nil. The
// request is then sent unchanged.
func (e *Policy) rule(name string, r *http.Request) *rule {
	rules := e.rulesOf(name)
	for i := range rules {
		if rules[i].match == nil || rules[i].match(r) {
			return &rules[i]
		}
	}
	return nil
}

// AllowsURL reports whether a source may be downloaded from a URL.
func (e *Policy) AllowsURL(u *url.URL) bool {
	if e.Mode != Custom {
		return e.Mode == AllowAll
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return contains(e.allow, addr) && !contains(e.deny, addr)
	}
	return u.Scheme == "https" && e.allowsName(u.Hostname())
}

// setMatch restricts a rule to the requests that match.
func (r *rule) setMatch(data json.RawMessage) error {
	if len(data) == 0 || string(data) == "null" {
		return nil
	}
	var m RuleMatch
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	path, err := m.Path.compile()
	if err != nil {
		return err
	}
	query, err := compilePairs(m.QueryString)
	if err != nil {
		return err
	}
	for i := range m.Headers {
		m.Headers[i].Key = m.Headers[i].Key.lowered()
	}
	headers, err := compilePairs(m.Headers)
	if err != nil {
		return err
	}
	r.match = func(req *http.Request) bool {
		return path(req.URL.EscapedPath()) &&
			(len(m.Method) == 0 || slices.ContainsFunc(m.Method, func(method string) bool { return strings.EqualFold(method, req.Method) })) &&
			query(req.URL.Query()) && headers(headerPairs(req))
	}
	return nil
}

// headerPairs returns the headers of a request with names in lower case, including Host,
// which Go stores separately.
func headerPairs(r *http.Request) map[string][]string {
	pairs := map[string][]string{"host": {r.Host}}
	for name, values := range r.Header {
		pairs[strings.ToLower(name)] = values
	}
	return pairs
}

// compile converts a matcher to a function. A nil matcher matches everything.
func (m *Matcher) compile() (func(string) bool, error) {
	switch {
	case m == nil:
		return func(string) bool { return true }, nil
	case m.Exact != nil:
		return func(s string) bool { return s == *m.Exact }, nil
	case m.StartsWith != nil:
		return func(s string) bool { return strings.HasPrefix(s, *m.StartsWith) }, nil
	case m.Regex != nil:
		re, err := regexp.Compile(*m.Regex)
		if err != nil {
			return nil, err
		}
		return re.MatchString, nil
	}
	return func(string) bool { return true }, nil
}

// lowered returns a matcher for names that are in lower case already.
func (m *Matcher) lowered() *Matcher {
	if m == nil {
		return nil
	}
	low := *m
	for _, text := range []**string{&low.Exact, &low.StartsWith} {
		if *text != nil {
			*text = new(strings.ToLower(**text))
		}
	}
	if low.Regex != nil {
		low.Regex = new("(?i)" + *low.Regex)
	}
	return &low
}

// compilePairs converts matchers of keys and values to a function, which returns true if
// each matcher matches some pair.
func compilePairs(list []keyValueMatcher) (func(pairs map[string][]string) bool, error) {
	type pair struct{ key, value func(string) bool }
	all := make([]pair, len(list))
	for i, kv := range list {
		var err error
		if all[i].key, err = kv.Key.compile(); err != nil {
			return nil, err
		}
		if all[i].value, err = kv.Value.compile(); err != nil {
			return nil, err
		}
	}
	return func(pairs map[string][]string) bool {
		for _, p := range all {
			found := false
			for key, values := range pairs {
				if found = p.key(key) && slices.ContainsFunc(values, p.value); found {
					break
				}
			}
			if !found {
				return false
			}
		}
		return true
	}, nil
}
