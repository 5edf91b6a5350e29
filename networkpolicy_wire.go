package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

// toWire checks the policy and returns what a request carries. It shares
// nothing with p. The error names the rule.
func (p *NetworkPolicy) toWire() (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return p.clone().encode(true), nil
}

func (p *NetworkPolicy) check() error {
	const at = "NetworkPolicy"
	switch p.Mode {
	case "":
	case NetworkAllowAll, NetworkDenyAll:
		if p.Allow != nil || p.Rules != nil || p.Subnets != nil {
			return invalid(at+".Mode", "%q can't be used together with lists", p.Mode)
		}
		return nil
	default:
		return invalid(at+".Mode", "%q is not %q or %q", p.Mode, NetworkAllowAll, NetworkDenyAll)
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

func (r *NetworkPolicyRule) check(at string) error {
	switch {
	case r.Transform != nil && r.ForwardURL != "":
		return invalid(at, "Transform and ForwardURL can't be used together")
	case r.Transform == nil && r.ForwardURL == "":
		return invalid(at, "Transform or ForwardURL is needed; for a domain without rules leave the list empty")
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

// checkForwardURL keeps the URL out of the message: it may hold a password.
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

func (t *NetworkTransformer) check(at string) error {
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

func (m *NetworkPolicyMatch) check(at string) error {
	if m.raw != nil {
		return invalid(at, "%v", new(NetworkPolicyMatch).decode(m.raw))
	}
	if err := m.Path.check(at + ".Path"); err != nil {
		return err
	}
	if err := checkKeyValues(at+".QueryString", m.QueryString); err != nil {
		return err
	}
	return checkKeyValues(at+".Headers", m.Headers)
}

func checkKeyValues(at string, list []NetworkPolicyKeyValueMatcher) error {
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

func (m *NetworkPolicyMatcher) check(at string) error {
	if m == nil || m.Regex == nil {
		return nil
	}
	if _, err := regexp.Compile(*m.Regex); err != nil {
		return invalid(at+".Regex", "%v", err)
	}
	return nil
}

// networkPolicyFromWire turns the API's description of a policy into the public
// one. The names of headers are known, their values are not. With rules, the
// form is that of Rules, injections first.
func networkPolicyFromWire(w *wire.NetworkPolicy) *NetworkPolicy {
	switch {
	case w == nil:
		return nil
	case w.Mode != "" && w.Mode != "custom":
		return &NetworkPolicy{Mode: NetworkPolicyMode(w.Mode)}
	}
	p := &NetworkPolicy{}
	if w.AllowedCIDRs != nil || w.DeniedCIDRs != nil {
		p.Subnets = &NetworkPolicySubnets{Allow: slices.Clone(w.AllowedCIDRs), Deny: slices.Clone(w.DeniedCIDRs)}
	}
	if len(w.InjectionRules) == 0 && len(w.ForwardRules) == 0 {
		p.Allow = slices.Clone(w.AllowedDomains)
		return p
	}
	p.Rules = make(map[string][]NetworkPolicyRule)
	for _, domain := range w.AllowedDomains {
		p.Rules[domain] = []NetworkPolicyRule{}
	}
	for _, r := range w.InjectionRules {
		headers := make(NetworkHeaders, len(r.HeaderNames))
		for _, name := range r.HeaderNames {
			headers[name] = RedactedHeader
		}
		p.Rules[r.Domain] = append(p.Rules[r.Domain], NetworkPolicyRule{
			Match: matchFromWire(r.Match), Transform: []NetworkTransformer{{Headers: headers}},
		})
	}
	for _, r := range w.ForwardRules {
		p.Rules[r.Domain] = append(p.Rules[r.Domain], NetworkPolicyRule{Match: matchFromWire(r.Match), ForwardURL: r.ForwardURL})
	}
	return p
}

func matchFromWire(data json.RawMessage) *NetworkPolicyMatch {
	var m *NetworkPolicyMatch
	if len(data) > 0 && json.Unmarshal(data, &m) != nil {
		return nil
	}
	return m
}
