package sandbox

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

func (p *NetworkPolicy) check() error {
	const at = "NetworkPolicy"
	switch p.Mode {
	case "":
	case PolicyAllowAll, PolicyDenyAll:
		if p.Allow != nil || p.Rules != nil || p.subnets() != nil {
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
	if err := checkSubnets(at+".AllowSubnets", p.AllowSubnets); err != nil {
		return err
	}
	return checkSubnets(at+".DenySubnets", p.DenySubnets)
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
		case value == redactedHeader:
			return redactedError(fmt.Sprintf("%s.Headers[%q]", at, name))
		case strings.ContainsAny(value, "\r\n\x00"):
			return invalid(at+".Headers", "the value of %s contains a line break or NUL", name)
		}
	}
	return nil
}

func redactedError(at string) error {
	return invalid(at, "holds the placeholder %s that stands for a value read from the API: put the value in before the policy is written", redactedHeader)
}

func isToken(s string) bool {
	ok := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c < 0x80 && strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}
	return s != "" && strings.IndexFunc(s, func(c rune) bool { return !ok(c) }) < 0
}

func (m *PolicyMatch) check(at string) error {
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

func (r *PolicyResponse) check(at string) error {
	if r.StatusCode < 200 || r.StatusCode > 599 {
		return invalid(at+".StatusCode", "%d is outside 200 to 599", r.StatusCode)
	}
	if r.Body != nil {
		switch r.StatusCode {
		case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
			return invalid(at+".Body", "a response of status %d has none", r.StatusCode)
		}
		if r.ContentType == "" {
			return invalid(at+".ContentType", "is empty; a Body needs one")
		}
		if err := checkText(at+".Body", *r.Body); err != nil {
			return err
		}
	}
	if strings.ContainsAny(r.ContentType, "\r\n\x00") {
		return invalid(at+".ContentType", "contains a line break or NUL")
	}
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		lower := strings.ToLower(name)
		switch lower {
		case "connection", "content-length", "transfer-encoding":
			return invalid(at+".Headers", "%s can't be set: it is the firewall's own", name)
		}
		if first, twice := seen[lower]; twice {
			return invalid(at+".Headers", "%s and %s are the same header", first, name)
		}
		seen[lower] = name
		switch {
		case !isToken(name):
			return invalid(at+".Headers", "%q can't be the name of a header", name)
		case strings.ContainsAny(r.Headers[name], "\r\n\x00"):
			return invalid(at+".Headers", "the value of %s contains a line break or NUL", name)
		}
	}
	return nil
}
