package sandbox

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParseNetworkPolicy: what the official SDK's type allows is read as
// json.Unmarshal does; anything else is refused by name.
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
		`[]`:                                `cannot unmarshal array`,
		`"alow-all"`:                        `"alow-all" is not "allow-all" or "deny-all"`,
		`{"mode":"deny-all","allow":["*"]}`: `Mode`,
		`{"allow":{"a.example":[{"match":{"path":{"exact":"/"},"PATH":{"exact":"/x"}}}]}}`: `"PATH" comes twice`,
		`{"mode":"open"}`:                       `"open" is not`,
		`{"alow":[]}`:                           `unknown field "alow"`,
		`{"unread":[]}`:                         `does not know`,
		`{"unread":["x"]}`:                      `does not know`,
		`{"allow":[],"\u0061llow":["*"]}`:       `"allow" comes twice`,
		`{"allow":true}`:                        `allow: json: cannot unmarshal bool`,
		`{"allow":["a b"]}`:                     `Allow[0]: "a b" is not a domain`,
		`{"allow":{"a.example":[],"b/c":[]}}`:   `"b/c" is not a domain`,
		`{"allow":{"A.Example":[{"mach":{}}]}}`: `unknown field "mach"`,
		`{"allow":{"A.Example":[{"match":{"mach":1},"transform":[]}]}}`:                         `unknown field "mach"`,
		`{"allow":{"a.example":[],"a.example":[{"forwardURL":"https://x"}]}}`:                   `"a.example" comes twice`,
		`{"allow":{"A.Example":[{}]}}`:                                                          `Rules["A.Example"][0]: Transform, ForwardURL or Response is needed`,
		`{"allow":{"A.Example":[{"transform":[],` + "\n" + `"match":{"path":{"regex":"("}}}]}}`: `Rules["A.Example"][0].Match.Path.Regex: error parsing regexp`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":"planted\n"}}]}]}}`:             `the value of X-A contains a line break`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":12345}}]}]}}`:                   `cannot unmarshal number into`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"X-A":"<redacted>"}}]}]}}`:            `holds the placeholder`,
		`{"allow":{"a.example":[{"forwardURL":"http://user:planted@x"}]}}`:                      `the scheme is "http"`,
		`{"allow":{"a.example":[{"response":{"statusCode":4.5}}]}}`:                             `cannot unmarshal number 4.5`,
		`{"allow":{"a.example":[{"response":{"statusCode":200,"body":"x"}}]}}`:                  `ContentType: is empty`,
		`{"subnets":{"deny":["10.0.0.0/33"]}}`:                                                  `"10.0.0.0/33" is not a range`,
		`{"subnets":[]}`:                                                                        `cannot unmarshal array`,
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
		assert.Empty(t, got.unread, "all of it is understood")
	})
}
