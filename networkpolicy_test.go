package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func wireText(t *testing.T, p *NetworkPolicy) string {
	t.Helper()
	text, err := p.toWire()
	require.NoError(t, err)
	return string(text)
}

func TestNetworkPolicyRequests(t *testing.T) {
	for name, c := range map[string]struct {
		policy *NetworkPolicy
		want   string
	}{
		"allow all":   {AllowAll(), `{"mode":"allow-all"}`},
		"deny all":    {DenyAll(), `{"mode":"deny-all"}`},
		"nothing set": {&NetworkPolicy{}, `{}`},
		"domains":     {&NetworkPolicy{Allow: []string{"*.npmjs.org", "github.com"}}, `{"allow":["*.npmjs.org","github.com"]}`},
		"no domains":  {&NetworkPolicy{Allow: []string{}}, `{"allow":[]}`},
		"subnets": {
			&NetworkPolicy{AllowSubnets: []string{"10.0.0.0/8", "192.0.2.1"}, DenySubnets: []string{"2001:db8::/32"}},
			`{"subnets":{"allow":["10.0.0.0/8","192.0.2.1"],"deny":["2001:db8::/32"]}}`,
		},
		"empty lists": {
			&NetworkPolicy{Allow: []string{}, AllowSubnets: []string{}},
			`{"allow":[],"subnets":{"allow":[]}}`,
		},
		"rules": {
			&NetworkPolicy{Rules: map[string][]PolicyRule{
				"*": nil,
				"api.example.com": {{
					Match: &PolicyMatch{
						Method: []string{"POST"}, Path: &PolicyMatcher{StartsWith: new("/v1/")},
						Headers:     []PolicyKeyValueMatcher{{Key: &PolicyMatcher{Exact: new("x-api-key")}, Value: &PolicyMatcher{Exact: new("")}}},
						QueryString: []PolicyKeyValueMatcher{{Value: &PolicyMatcher{Regex: new("^a+$")}}},
					},
					Transform: []PolicyTransform{{Headers: map[string]string{"authorization": "Bearer s3cret"}}, {}},
				}},
				"proxied.example.com": {{ForwardURL: "https://proxy.example.com/x"}},
			}},
			`{"allow":{"*":[],"api.example.com":[{"match":{"headers":[{"key":{"exact":"x-api-key"},"value":{"exact":""}}],"method":["POST"],` +
				`"path":{"startsWith":"/v1/"},"queryString":[{"value":{"regex":"^a+$"}}]},` +
				`"transform":[{"headers":{"authorization":"Bearer s3cret"}},{}]}],` +
				`"proxied.example.com":[{"forwardURL":"https://proxy.example.com/x"}]}}`,
		},
		"domains beside rules": {
			&NetworkPolicy{Allow: []string{"a.com", "b.com"}, Rules: map[string][]PolicyRule{"b.com": {{Transform: []PolicyTransform{}}}}},
			`{"allow":{"a.com":[],"b.com":[{"transform":[]}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.JSONEq(t, c.want, wireText(t, c.policy))
		})
	}
}

func TestNetworkPolicyRefusals(t *testing.T) {
	rule := func(r PolicyRule) *NetworkPolicy {
		return &NetworkPolicy{Rules: map[string][]PolicyRule{"a.com": {{Transform: []PolicyTransform{}}, r}}}
	}
	header := func(name, value string) *NetworkPolicy {
		return rule(PolicyRule{Transform: []PolicyTransform{{Headers: PolicyHeaders{name: value}}}})
	}
	forward := func(url string) *NetworkPolicy { return rule(PolicyRule{ForwardURL: url}) }
	const second = `NetworkPolicy.Rules["a.com"][1]`
	for name, c := range map[string]struct {
		policy *NetworkPolicy
		want   string
	}{
		"unknown mode":      {&NetworkPolicy{Mode: "some"}, `NetworkPolicy.Mode: "some" is not "allow-all" or "deny-all"`},
		"mode and lists":    {&NetworkPolicy{Mode: PolicyDenyAll, Allow: []string{}}, "NetworkPolicy.Mode: \"deny-all\" can't be used together with lists"},
		"empty domain":      {&NetworkPolicy{Allow: []string{"a.com", ""}}, "NetworkPolicy.Allow[1]: the domain is empty"},
		"url for a domain":  {&NetworkPolicy{Allow: []string{"https://a.com"}}, `NetworkPolicy.Allow[0]: "https://a.com" is not a domain`},
		"rule of no domain": {&NetworkPolicy{Rules: map[string][]PolicyRule{"": nil}}, "NetworkPolicy.Rules: the domain is empty"},
		"bad subnet":        {&NetworkPolicy{DenySubnets: []string{"10.0.0.0/8", "10.0.0.0/40"}}, `NetworkPolicy.DenySubnets[1]: "10.0.0.0/40"`},
		"both":              {rule(PolicyRule{Transform: []PolicyTransform{}, ForwardURL: "https://p.com"}), second + ": Transform, ForwardURL and Response can't be used together"},
		"neither":           {rule(PolicyRule{}), second + ": Transform, ForwardURL or Response is needed"},
		"http":              {forward("http://p.com"), second + `.ForwardURL: the scheme is "http"`},
		"relative":          {forward("/p"), second + ".ForwardURL: is not a URL with a host"},
		"query":             {forward("https://p.com/?a=b"), second + ".ForwardURL: has a query"},
		"fragment":          {forward("https://p.com/#a"), second + ".ForwardURL: has a fragment"},
		"password":          {forward("https://u:hunter2@p.com/"), second + ".ForwardURL: holds a user name"},
		"redacted":          {header("authorization", redactedHeader), second + `.Transform[0].Headers["authorization"]: holds the placeholder <redacted>`},
		"header name":       {header("a b", "x"), second + `.Transform[0].Headers: "a b" can't be the name`},
		"line break":        {header("a", "hunter2\r\nb: c"), second + ".Transform[0].Headers: the value of a contains a line break"},
		"regex": {
			rule(PolicyRule{ForwardURL: "https://p.com", Match: &PolicyMatch{Headers: []PolicyKeyValueMatcher{{Value: &PolicyMatcher{Regex: new("(")}}}}}),
			second + ".Match.Headers[0].Value.Regex: error parsing regexp",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.policy.toWire()
			require.ErrorIs(t, err, ErrInvalid)
			assert.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "hunter2")
			text, err := json.Marshal(c.policy)
			assert.NotContains(t, fmt.Sprintf("%v %+v %s %v", c.policy, c.policy.Rules, text, err), "hunter2")
		})
	}
}

func TestNetworkPolicyReadAndWriteBack(t *testing.T) {
	for name, c := range map[string]struct {
		response, public, request string
	}{
		"mode":          {`{"mode":"deny-all","allowedDomains":["x"]}`, `"deny-all"`, `{"mode":"deny-all"}`},
		"domains":       {`{"mode":"custom","allowedDomains":["a.com","*.b.com"]}`, `{"allow":["a.com","*.b.com"]}`, `{"allow":["a.com","*.b.com"]}`},
		"nothing":       {`{"mode":"custom"}`, `{}`, `{}`},
		"empty lists":   {`{"mode":"custom","allowedDomains":[],"allowedCIDRs":[],"deniedCIDRs":[],"injectionRules":[],"forwardRules":[]}`, `{"allow":[],"subnets":{"allow":[],"deny":[]}}`, `{"allow":[],"subnets":{"allow":[],"deny":[]}}`},
		"one subnet":    {`{"mode":"custom","deniedCIDRs":["10.0.0.0/8"]}`, `{"subnets":{"deny":["10.0.0.0/8"]}}`, `{"subnets":{"deny":["10.0.0.0/8"]}}`},
		"unknown match": {`{"mode":"custom","forwardRules":[{"domain":"a.com","forwardURL":"https://p.com","match":{"path":{"glob":"/*"},"port":[1,2]}}]}`, `{"allow":{"a.com":[{"forwardURL":"https://p.com","match":{}}]},"incomplete":true}`, "does not know"},
		"a response of another form": {
			`{"mode":"custom","allowedDomains":["b.com"],"responseRules":[{"domain":"a.com","statusCode":403},{"domain":"b.com","response":{"statusCode":404}}]}`,
			`{"allow":{"b.com":[{"response":{"statusCode":404}}]},"incomplete":true}`, "does not know",
		},
		"no response": {
			`{"mode":"custom","responseRules":[{"domain":"a.com"},{"domain":"b.com","response":"403"}]}`,
			`{"allow":{},"incomplete":true}`, "does not know",
		},
		"more in a response": {
			`{"mode":"custom","responseRules":[{"domain":"a.com","response":{"statusCode":403,"delay":5}}]}`,
			`{"allow":{"a.com":[{"response":{"statusCode":403}}]},"incomplete":true}`, "does not know",
		},
		"lists of another form": {
			`{"mode":"custom","allowedDomains":["a.com",{"name":"b.com"}],"deniedCIDRs":"10.0.0.0/8","forwardRules":{}}`,
			`{"allow":["a.com",""],"incomplete":true}`, "does not know",
		},
		"not an object": {`["deny-all"]`, `{"incomplete":true}`, "does not know"},
		"no URL to forward to": {
			`{"mode":"custom","forwardRules":[{"domain":"a.com"}]}`, `{"allow":{},"incomplete":true}`, "does not know",
		},
		"injections first": {
			`{"mode":"custom","allowedDomains":["*"],"forwardRules":[{"domain":"constructor","forwardURL":"https://p.com","match":null}],"injectionRules":[{"domain":"constructor","headerNames":["a"],"match":{"method":["POST"]}},{"domain":"z.com"}]}`,
			`{"allow":{"*":[],"constructor":[{"match":{"method":["POST"]},"transform":[{"headers":{"a":"<redacted>"}}]},{"forwardURL":"https://p.com"}],"z.com":[{"transform":[{"headers":{}}]}]}}`,
			`NetworkPolicy.Rules["constructor"][0].Transform[0].Headers["a"]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var resp wire.NetworkPolicy
			require.NoError(t, json.Unmarshal([]byte(c.response), &resp))
			p := networkPolicyFromWire(&resp)
			text, err := json.Marshal(p)
			require.NoError(t, err)
			assert.JSONEq(t, c.public, string(text))

			var read NetworkPolicy
			require.NoError(t, json.Unmarshal(text, &read))
			assert.True(t, same(&read, p))
			if c.request[0] != '{' {
				_, err := read.toWire()
				assert.ErrorIs(t, err, ErrInvalid)
				assert.ErrorContains(t, err, c.request)
				return
			}
			assert.JSONEq(t, c.request, wireText(t, &read))
		})
	}
	assert.Nil(t, networkPolicyFromWire(nil))
}

func TestNetworkPolicyMatchOfAnotherForm(t *testing.T) {
	for _, match := range []string{`["odd"]`, `{"path":{"exact":1}}`, `{"path":{"exact":"/"},"PATH":{"exact":"/x"}}`} {
		p := networkPolicyFromWire(&wire.NetworkPolicy{Mode: "custom", ForwardRules: []wire.ForwardRule{
			{Domain: "a.com", ForwardURL: "https://p.com", Match: json.RawMessage(match)},
		}})
		text, err := json.Marshal(p)
		require.NoError(t, err)
		assert.JSONEq(t, `{"allow":{"a.com":[{"forwardURL":"https://p.com","match":{}}]},"incomplete":true}`, string(text))
		var read NetworkPolicy
		require.NoError(t, json.Unmarshal(text, &read))
		for _, p := range []*NetworkPolicy{p, &read} {
			_, err = p.toWire()
			require.ErrorIs(t, err, ErrInvalid)
			assert.ErrorContains(t, err, "parts that this version does not know")
		}
	}
}

func TestNetworkPolicyJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"allow":["a.com"],"future":{"x":1}}`:                                                                      `unknown field "future"`,
		`{"allow":{"a.com":[{"transform":[{"headers":{"h":"v"},"body":"b"}],"note":[1]}]}}`:                         `unknown field "body"`,
		`{"allow":["a.com"],"subnets":{"allow":["1.0.0.0/8"],"new":true}}`:                                          `unknown field "new"`,
		`{"mode":"custom","allowedDomains":["a.com"]}`:                                                              `unknown field "allowedDomains"`,
		`{"allow":{"a.com":[{"match":{"path":{"exact":"/"},"PATH":{"exact":"/x"}},"forwardURL":"https://p.com"}]}}`: `"PATH" comes twice`,
	} {
		assert.ErrorContains(t, json.Unmarshal([]byte(text), new(NetworkPolicy)), want)
	}

	var p NetworkPolicy
	require.NoError(t, json.Unmarshal([]byte(`{"mode":"deny-all"}`), &p))
	assert.True(t, same(&p, DenyAll()))

	for text, want := range map[string]string{
		`1`:                      "network policy: an object is needed, not number",
		`null`:                   "",
		`""`:                     "network policy: the mode is empty",
		`{"allow":1}`:            "network policy: allow: an object is needed, not number",
		`{"allow":{"a":[1]}}`:    "network policy: allow: an object is needed, not number",
		`{"subnets":{"deny":1}}`: "network policy: subnets.deny: a list is needed, not number",
	} {
		var p *NetworkPolicy
		if err := json.Unmarshal([]byte(text), &p); want == "" {
			assert.NoError(t, err)
			assert.Nil(t, p)
		} else {
			assert.ErrorContains(t, err, want)
		}
	}
}

// TestParseNetworkPolicy: a policy that the official SDK's type allows is decoded as by
// json.Unmarshal. Anything else is refused, and the error names it.
func TestParseNetworkPolicy(t *testing.T) {
	for _, text := range []string{
		`"allow-all"`, ` "deny-all"` + "\n", `{}`, `{"allow":[]}`, `{"allow":{}}`, `{"allow":["*.example.com"],"subnets":{"allow":["10.0.0.0/8"],"deny":[]}}`,
		`{"allow":{"*":[],"a.example":[
			{"match":{"method":["GET","HEAD"],"path":{"startsWith":"/"},"headers":[{"key":{"exact":"k"},"value":{"regex":"^v"}}],"queryString":[{}]},
			 "transform":[{"headers":{"X-Key":"secret"}}]},
			{"forwardURL":"https://proxy.example"},
			{"response":{"statusCode":403,"headers":{"X-A":"b"},"body":"no","contentType":"text/plain"}}]}}`,
		`{"\u0061llow":["a.example"]}`, "\ufeff" + `{"allow":["a.example"]}`,
	} {
		got, err := ParseNetworkPolicy([]byte(text))
		require.NoError(t, err, text)
		var want NetworkPolicy
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(text, "\ufeff")), &want))
		assert.True(t, same(got, &want), text)
	}
	for text, want := range map[string]string{
		``:                                  `unexpected end of JSON input`,
		"{\n  \"allow\": [,]}":              `invalid character ','`,
		`{} {}`:                             `invalid character '{' after top-level value`,
		"{\"allow\":[\"ü\",\"\xff\"]}":      `is not UTF-8`,
		`null`:                              `is null`,
		"\ufeffnull":                        `is null`,
		`[]`:                                `an object is needed, not array`,
		`"alow-all"`:                        `"alow-all" is not "allow-all" or "deny-all"`,
		`{"mode":"deny-all","allow":["*"]}`: `Mode`,
		`{"allow":{"a.example":[{"match":{"path":{"exact":"/"},"PATH":{"exact":"/x"}}}]}}`: `"PATH" comes twice`,
		`{"mode":"open"}`:                       `"open" is not`,
		`{"alow":[]}`:                           `unknown field "alow"`,
		`{"incomplete":true}`:                   `does not know`,
		`{"allow":[],"\u0061llow":["*"]}`:       `"allow" comes twice`,
		`{"allow":true}`:                        `allow: an object is needed, not bool`,
		`{"allow":["a b"]}`:                     `Allow[0]: "a b" is not a domain`,
		`{"allow":{"a.example":[],"b/c":[]}}`:   `"b/c" is not a domain`,
		`{"allow":{"A.Example":[{"mach":{}}]}}`: `unknown field "mach"`,
		`{"allow":{"A.Example":[{"match":{"mach":1},"transform":[]}]}}`:                         `unknown field "mach"`,
		`{"allow":{"a.example":[],"a.example":[{"forwardURL":"https://x"}]}}`:                   `"a.example" comes twice`,
		`{"allow":{"A.Example":[{}]}}`:                                                          `Rules["A.Example"][0]: Transform, ForwardURL or Response is needed`,
		`{"allow":{"A.Example":[{"transform":[],` + "\n" + `"match":{"path":{"regex":"("}}}]}}`: `Rules["A.Example"][0].Match.Path.Regex: error parsing regexp`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":"planted\n"}}]}]}}`:             `the value of X-A contains a line break`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":12345}}]}]}}`:                   `headers: a string is needed, not number`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":"<redacted>"}}]}]}}`:            `holds the placeholder`,
		`{"allow":{"a.example":[{"forwardURL":"http://user:planted@x"}]}}`:                      `the scheme is "http"`,
		`{"allow":{"a.example":[{"response":{"statusCode":4.5}}]}}`:                             `response.statusCode: a whole number is needed, not number 4.5`,
		`{"allow":{"a.example":[{"response":{"statusCode":200,"body":"x"}}]}}`:                  `ContentType: is empty`,
		`{"subnets":{"deny":["10.0.0.0/33"]}}`:                                                  `"10.0.0.0/33" is not a range`,
		`{"subnets":[]}`:                                                                        `an object is needed, not array`,
	} {
		p, err := ParseNetworkPolicy([]byte(text))
		require.ErrorIs(t, err, ErrInvalid, text)
		assert.Nil(t, p)
		assert.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), "planted")
	}
}

func FuzzParseNetworkPolicy(f *testing.F) {
	f.Add([]byte(`{"allow":{"a.example":[{"match":{"method":["GET"]},"response":{"statusCode":403}}]},"subnets":{"deny":["10.0.0.0/8"]}}`))
	f.Add([]byte(`"deny-all"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseNetworkPolicy(data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		var want NetworkPolicy
		require.NoError(t, json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &want))
		assert.True(t, same(got, &want))
		assert.False(t, got.incomplete, "all of it is understood")
	})
}

func secretPolicy(t *testing.T, secret string) *NetworkPolicy {
	var p NetworkPolicy
	text := fmt.Sprintf(`{"allow":{"a.com":[{"transform":[{"headers":{"authorization":%q}}]}]}}`, secret)
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	return &p
}

func TestNetworkPolicyShowsNoSecret(t *testing.T) {
	p := secretPolicy(t, "hunter2")
	assert.Contains(t, wireText(t, p), "hunter2")
	rule := p.Rules["a.com"][0]
	for name, v := range map[string]any{
		"policy": p, "policy value": *p, "rule": rule, "transform": rule.Transform[0], "headers": rule.Transform[0].Headers,
		"options": struct{ NetworkPolicy *NetworkPolicy }{p}, "rules": p.Rules,
	} {
		var shown bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&shown, verb+"\n", v)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&shown, nil), slog.NewJSONHandler(&shown, nil)} {
			slog.New(h).Info("policy", "v", v)
		}
		assert.NotContains(t, shown.String(), "hunter2", name)
		assert.NotContains(t, shown.String(), fmt.Sprintf("%x", "hunter2"), name)
		assert.NotContains(t, shown.String(), "104 117 110", name)
		if name != "options" {
			assert.Contains(t, shown.String(), "authorization", name)
		}
		text, err := json.Marshal(v)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "hunter2", name)
	}
}

// The request does not change when the policy is changed during a retry.
func TestNetworkPolicyIsCopied(t *testing.T) {
	match := &PolicyMatch{Method: []string{"GET"}, Path: &PolicyMatcher{Exact: new("/")}, QueryString: []PolicyKeyValueMatcher{{Key: &PolicyMatcher{StartsWith: new("a")}}}}
	p := &NetworkPolicy{Allow: []string{"b.com"}, Rules: map[string][]PolicyRule{"a.com": {{
		Match: match, Transform: []PolicyTransform{{Headers: PolicyHeaders{"authorization": "one"}}},
	}}}}
	body, err := p.toWire()
	require.NoError(t, err)
	before := string(body)
	*match.Path.Exact, match.Method[0] = "x", "x"
	p.Rules["a.com"][0].Transform[0].Headers["authorization"] = "two"
	assert.Equal(t, before, string(body))
	assert.NotEqual(t, before, wireText(t, p))
}

// Any response of the API becomes a policy that can be encoded and decoded without a
// change. Writing it back is either refused or sends valid JSON.
func FuzzNetworkPolicyFromWire(f *testing.F) {
	f.Add([]byte(`{"mode":"custom","allowedDomains":["*"],"injectionRules":[{"domain":"a","headerNames":["h"],"match":{"path":{"exact":"/"}}}],"forwardRules":[{"domain":"b","forwardURL":"https://p.com","match":[1]}],"deniedCIDRs":["10.0.0.0/8"]}`))
	f.Add([]byte(`{"mode":"allow-all"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var resp wire.NetworkPolicy
		if json.Unmarshal(data, &resp) != nil {
			return
		}
		p := networkPolicyFromWire(&resp)
		text, err := json.Marshal(p)
		require.NoError(t, err)
		for _, rules := range p.Rules {
			for _, r := range rules {
				for _, tr := range r.Transform {
					for _, v := range tr.Headers {
						require.Equal(t, redactedHeader, v)
					}
				}
			}
		}
		if request, err := p.toWire(); err == nil {
			require.True(t, json.Valid(request))
		}
		var back NetworkPolicy
		require.NoError(t, json.Unmarshal(text, &back))
		for _, rules := range p.Rules {
			for i := range rules {
				rules[i].ForwardURL = redactedURL(rules[i].ForwardURL) // no URL that may hold a secret survives
			}
		}
		require.True(t, same(&back, p), "%s", text)
	})
}

// A policy that is decoded from JSON, and accepted for a request, has the same meaning in
// the request.
func FuzzNetworkPolicyJSON(f *testing.F) {
	f.Add([]byte(`"deny-all"`))
	f.Add([]byte(`{"allow":{"a.com":[{"match":{"path":{"startsWith":"/"}},"transform":[{"headers":{"h":"v"}}]}]},"subnets":{"deny":["10.0.0.0/8"]},"x":null}`))
	f.Add([]byte(`{"&":{"allow":[]},"x":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p NetworkPolicy
		if json.Unmarshal(data, &p) != nil {
			return
		}
		shown, err := json.Marshal(p)
		require.NoError(t, err)
		require.True(t, json.Valid(shown))
		v, err := p.toWire()
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		// Compare the text itself: an encoder may write unknown parts differently.
		var back NetworkPolicy
		require.NoError(t, json.Unmarshal(v, &back))
		require.True(t, same(&back, &p), "%s", v)
	})
}

// same reports whether p and q are the same policy in the same form, including
// header values.
func same(p, q *NetworkPolicy) bool {
	a, errA := p.encode(true)
	b, errB := q.encode(true)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
