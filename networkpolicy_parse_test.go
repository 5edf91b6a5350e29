package sandbox

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParseNetworkPolicy: what the official SDK's type allows is read as json
// does; anything else is refused with its place.
func TestParseNetworkPolicy(t *testing.T) {
	for _, text := range []string{
		`"allow-all"`, ` "deny-all"` + "\n", `{}`, `{"allow":[]}`, `{"allow":{}}`, `{"allow":["*.example.com"],"subnets":{"allow":["10.0.0.0/8"],"deny":[]}}`,
		`{"allow":{"*":[],"a.example":[
			{"match":{"method":["GET","HEAD"],"path":{"startsWith":"/"},"headers":[{"key":{"exact":"k"},"value":{"regex":"^v"}}],"queryString":[{}]},
			 "transform":[{"headers":{"X-Key":"secret"}}]},
			{"forwardURL":"https://proxy.example"},
			{"response":{"statusCode":403,"headers":{"X-A":"b"},"body":"no","contentType":"text/plain"}}]}}`,
		`{"\u0061llow":["a.example"]}`,
	} {
		got, err := ParseNetworkPolicy([]byte(text))
		require.NoError(t, err, text)
		var want NetworkPolicy
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		assert.True(t, same(got, &want), text)
	}
	for text, want := range map[string]string{
		``:                                      `line 1, column 1: unexpected end of JSON input`,
		"{\n  \"allow\": [,]}":                  `line 2, column 13: invalid character ','`,
		`{} {}`:                                 `line 1, column 4: invalid character '{' after top-level value`,
		"{\"allow\":[\"ü\",\"\xff\"]}":          `line 1, column 16: is not UTF-8`,
		`null`:                                  `line 1, column 1: expected "allow-all", "deny-all" or an object`,
		`[]`:                                    `expected "allow-all", "deny-all" or an object`,
		`"alow-all"`:                            `line 1, column 1: "alow-all" is not "allow-all" or "deny-all"`,
		`{"mode":"deny-all"}`:                   `line 1, column 2: "mode" is not known`,
		`{"Allow":[]}`:                          `"Allow" is not known`,
		`{"unread":[]}`:                         `"unread" is not known`,
		`{"allow":[],"\u0061llow":["*"]}`:       `line 1, column 13: "allow" comes twice`,
		`{"allow":null}`:                        `line 1, column 10: allow: expected a list`,
		`{"allow":true}`:                        `allow: expected a list`,
		`{"allow":["a.example",null]}`:          `line 1, column 23: allow[1]: expected a string`,
		`{"allow":["a b"]}`:                     `line 1, column 11: allow[0]: "a b" is not a domain`,
		`{"allow":{"a.example":[],"b/c":[]}}`:   `line 1, column 10: allow: "b/c" is not a domain`,
		`{"allow":{"A.Example":[{"mach":{}}]}}`: `line 1, column 25: allow["A.Example"][0]: "mach" is not known`,
		`{"allow":{"a.example":[],"a.example":[{"forwardURL":"https://x"}]}}`:                   `line 1, column 26: allow: "a.example" comes twice`,
		`{"allow":{"A.Example":[{}]}}`:                                                          `line 1, column 24: allow["A.Example"][0]: Transform, ForwardURL or Response is needed`,
		`{"allow":{"A.Example":[{"transform":[],` + "\n" + `"match":{"path":{"regex":"("}}}]}}`: `line 2, column 26: allow["A.Example"][0].match.path.regex: error parsing regexp`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":"planted\n"}}]}]}}`:             `allow["a.example"][0].transform[0].headers: the value of X-A contains a line break`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":null}}]}]}}`:                    `allow["a.example"][0].transform[0].headers["X-A"]: expected a string`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":"<redacted>"}}]}]}}`:            `line 1, column 56: allow["a.example"][0].transform[0].headers["X-A"]: holds the placeholder`,
		`{"allow":{"a.example":[{"forwardURL":"http://user:planted@x"}]}}`:                      `line 1, column 38: allow["a.example"][0].forwardURL: the scheme is "http"`,
		`{"allow":{"a.example":[{"response":{"statusCode":4.5}}]}}`:                             `response.statusCode: expected a whole number`,
		`{"allow":{"a.example":[{"response":{"statusCode":200,"body":"x"}}]}}`:                  `line 1, column 36: allow["a.example"][0].response.contentType: is empty`,
		`{"subnets":{"deny":["10.0.0.0/33"]}}`:                                                  `line 1, column 21: subnets.deny[0]: "10.0.0.0/33" is not a range`,
		`{"subnets":[]}`:                                                                        `line 1, column 12: subnets: expected an object`,
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
		require.NoError(t, json.Unmarshal(data, &want))
		assert.True(t, same(got, &want))
		assert.Empty(t, got.unread, "all of it is understood")
	})
}
