package proxy

import (
	"crypto/rsa"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHostPatterns: only the hosts of a rule get its secret.
func TestHostPatterns(t *testing.T) {
	t.Parallel()
	for list, urls := range map[string]map[string]bool{
		"api.example": {
			"https://api.example/": true, "https://API.example./x": true, "https://api.example:443/": false, "https://api.example:8443/": false,
			"https://sub.api.example/": false, "https://notapi.example/": false, "https://api.example.evil/": false,
		},
		"*.example.com": {
			"https://a.example.com/": true, "https://a.b.example.com/": true, "https://A.Example.COM./": true,
			"https://example.com/": false, "https://badexample.com/": false, "https://a.example.com.evil/": false, "https://other.test/": false,
		},
		"api.example:443":  {"https://api.example/": true, "https://api.example:443/": true, "http://api.example/": false, "https://api.example:80/": false},
		"api.example:80":   {"http://api.example/": true, "https://api.example/": false},
		"api.example:8443": {"https://api.example:8443/": true, "https://api.example/": false},
	} {
		patterns, err := parseHostPatterns([]string{list})
		require.NoError(t, err)
		for text, want := range urls {
			u, err := url.Parse(text)
			require.NoError(t, err)
			assert.Equal(t, want, matchesURL(patterns, u), "%s for %s", list, text)
		}
	}
}

// TestKeyWithoutAnID: a token without a key ID is verified only if the issuer has just one key.
func TestKeyWithoutAnID(t *testing.T) {
	t.Parallel()
	a, b := new(rsa.PublicKey), new(rsa.PublicKey)
	assert.Same(t, a, keySet{"a": a}.find(""))
	assert.Nil(t, keySet{"a": a, "b": b}.find(""))
	assert.Nil(t, keySet{"a": a}.find("c"))
}
