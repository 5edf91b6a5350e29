package sandboxtest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// parsePolicy checks a policy and returns it in the form of responses. It drops the
// values of headers, which no response contains.
func parsePolicy(data []byte) (*wire.NetworkPolicy, error) {
	var p firewall.PolicyRequest
	if err := decodeStrict(data, &p); err != nil {
		return nil, err
	}
	v2 := p.Allow != nil || p.Subnets != nil
	legacy := p.AllowedDomains != nil || p.AllowedCIDRs != nil || p.DeniedCIDRs != nil || p.InjectionRules != nil
	switch p.Mode {
	case "default-allow":
		p.Mode = firewall.AllowAll
	case "default-deny":
		p.Mode = firewall.DenyAll
	}
	switch {
	case p.Mode == firewall.AllowAll || p.Mode == firewall.DenyAll:
		if v2 || legacy {
			return nil, reply.Invalid("`networkPolicy` should NOT have rules in mode %s.", p.Mode)
		}
		return &wire.NetworkPolicy{Mode: p.Mode}, nil
	case p.Mode == firewall.Custom && !v2:
		return legacyPolicy(&p)
	case p.Mode != "":
		return nil, reply.Invalid("`networkPolicy.mode` should be equal to one of the allowed values \"allow-all, deny-all, custom\".")
	case legacy:
		return nil, reply.Invalid("`networkPolicy` should NOT have additional properties of another form.")
	}
	return customPolicy(&p)
}

func decodeStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return decodeError(err)
	}
	return nil
}

func legacyPolicy(p *firewall.PolicyRequest) (*wire.NetworkPolicy, error) {
	out := &wire.NetworkPolicy{
		Mode: firewall.Custom, AllowedDomains: p.AllowedDomains, AllowedCIDRs: p.AllowedCIDRs, DeniedCIDRs: p.DeniedCIDRs,
	}
	for _, r := range p.InjectionRules {
		if err := checkMatch(r.Match); err != nil {
			return nil, err
		}
		out.InjectionRules = append(out.InjectionRules, wire.InjectionRule{Domain: r.Domain, HeaderNames: headerNames(r.Headers), Match: r.Match})
	}
	return out, checkPolicy(out)
}

func customPolicy(p *firewall.PolicyRequest) (*wire.NetworkPolicy, error) {
	out := &wire.NetworkPolicy{Mode: firewall.Custom}
	if p.Subnets != nil {
		out.AllowedCIDRs, out.DeniedCIDRs = p.Subnets.Allow, p.Subnets.Deny
	}
	switch first := strings.TrimSpace(string(p.Allow)); {
	case p.Allow == nil:
	case strings.HasPrefix(first, "["):
		out.AllowedDomains = []string{}
		if err := decodeStrict(p.Allow, &out.AllowedDomains); err != nil {
			return nil, err
		}
	case strings.HasPrefix(first, "{"):
		if err := addRules(out, p); err != nil {
			return nil, err
		}
	default:
		return nil, reply.Invalid("`networkPolicy.allow` should be array or object.")
	}
	return out, checkPolicy(out)
}

// addRules adds the rules of an allow field that is an object of domains.
func addRules(out *wire.NetworkPolicy, p *firewall.PolicyRequest) error {
	domains, err := objectKeys(p.Allow)
	if err != nil {
		return err
	}
	var rules map[string][]firewall.PolicyRule
	if err := decodeStrict(p.Allow, &rules); err != nil {
		return err
	}
	out.AllowedDomains = domains
	for _, domain := range domains {
		for _, r := range rules[domain] {
			kinds := 0
			for _, given := range []bool{r.Transform != nil, r.ForwardURL != nil, r.Response != nil} {
				if given {
					kinds++
				}
			}
			switch {
			case kinds > 1:
				return reply.Invalid("only one of `transform`, `forwardURL` or `response` can be used in a rule")
			case r.Response != nil:
				if err := checkResponse((*wire.Response)(r.Response), r.Match); err != nil {
					return err
				}
				out.ResponseRules = append(out.ResponseRules, wire.ResponseRule{Domain: domain, Match: r.Match, Response: wire.Response(*r.Response)})
			case r.ForwardURL != nil:
				if err := checkForward(*r.ForwardURL, r.Match); err != nil {
					return err
				}
				out.ForwardRules = append(out.ForwardRules, wire.ForwardRule{Domain: domain, ForwardURL: *r.ForwardURL, Match: r.Match})
			case r.Transform != nil:
				if err := checkMatch(r.Match); err != nil {
					return err
				}
				headers := make(map[string]string)
				for _, t := range r.Transform {
					maps.Copy(headers, t.Headers)
				}
				out.InjectionRules = append(out.InjectionRules, wire.InjectionRule{Domain: domain, HeaderNames: headerNames(headers), Match: r.Match})
			default:
				return reply.Invalid("`transform`, `forwardURL` or `response` must be provided")
			}
		}
	}
	return nil
}

// objectKeys returns the keys of a JSON object, in their order in the text.
func objectKeys(data []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	keys := []string{}
	if _, err := dec.Token(); err != nil {
		return nil, decodeError(err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, decodeError(err)
		}
		if text := key.(string); !slices.Contains(keys, text) {
			keys = append(keys, text)
		}
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return nil, decodeError(err)
		}
	}
	return keys, nil
}

func headerNames(headers map[string]string) []string {
	return append([]string{}, slices.Sorted(maps.Keys(headers))...)
}

// validDomain matches host names with wildcards. It is compiled when it is first used,
// because that takes a while.
var validDomain = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[^\s/:.\x00]{1,63}(\.[^\s/:.\x00]{1,63})*\.?$`)
})

func checkPolicy(p *wire.NetworkPolicy) error {
	for _, d := range p.AllowedDomains {
		if _, err := netip.ParseAddr(d); err == nil || len(d) > 253 || !validDomain().MatchString(d) {
			return reply.Invalid("`networkPolicy.allow` should have domains, not %.80q.", d)
		}
	}
	for _, text := range slices.Concat(p.AllowedCIDRs, p.DeniedCIDRs) {
		if subnet, err := netip.ParsePrefix(text); err != nil || !subnet.Addr().Is4() {
			return reply.BadRequest("Invalid CIDR \"%.80s\"", text)
		}
	}
	return nil
}

// checkResponse checks the response of a response rule.
func checkResponse(r *wire.Response, match json.RawMessage) error {
	if r.StatusCode < 200 || r.StatusCode > 599 {
		return reply.Invalid("`response.statusCode` should be between 200 and 599.")
	}
	if r.Body != nil {
		switch {
		case r.StatusCode == 204 || r.StatusCode == 205 || r.StatusCode == 304:
			return reply.Invalid("`response.body` should NOT be used with status %d.", r.StatusCode)
		case r.ContentType == nil:
			return reply.Invalid("`response` should have property `contentType` when property `body` is present.")
		}
	}
	seen := make(map[string]bool)
	for name := range r.Headers {
		lower := strings.ToLower(name)
		switch {
		case lower == "connection" || lower == "content-length" || lower == "transfer-encoding":
			return reply.Invalid("`response.headers` should NOT have the header `%s`.", lower)
		case seen[lower]:
			return reply.Invalid("`response.headers` should NOT have the header `%s` twice.", lower)
		}
		seen[lower] = true
	}
	return checkMatch(match)
}

func checkForward(text string, match json.RawMessage) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return reply.Invalid("`forwardURL` should be an https URL without user, query and fragment.")
	}
	return checkMatch(match)
}

func checkMatch(data json.RawMessage) error {
	if data == nil {
		return nil
	}
	var m firewall.RuleMatch
	if err := decodeStrict(data, &m); err != nil {
		return err
	}
	all := []*firewall.Matcher{m.Path}
	for _, kv := range append(slices.Clone(m.QueryString), m.Headers...) {
		all = append(all, kv.Key, kv.Value)
	}
	for _, one := range all {
		if one != nil && one.Regex != nil {
			if _, err := regexp.Compile(*one.Regex); err != nil {
				return reply.Invalid("`regex` is not a regular expression")
			}
		}
	}
	return nil
}
