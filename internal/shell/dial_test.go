package shell

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAddress: if the API uses TLS, the client does not send the token without TLS,
// whatever the API says.
func TestAddress(t *testing.T) {
	for text, want := range map[string]struct{ secure, plain string }{
		"wss://a.example/t?x=1": {"wss://a.example/t?token=s3cret&x=1", "wss://a.example/t?token=s3cret&x=1"},
		"https://a.example":     {"https://a.example?token=s3cret", "https://a.example?token=s3cret"},
		"WSS://a.example/t":     {"wss://a.example/t?token=s3cret", "wss://a.example/t?token=s3cret"},
		"ws://a.example/t":      {"", "ws://a.example/t?token=s3cret"},
		"http://a.example/t":    {"", "http://a.example/t?token=s3cret"},
		"ftp://a.example/t":     {},
		"file:///etc/passwd":    {},
		"a.example":             {},
		"":                      {},
		"wss://s3cret:x y":      {},
	} {
		for secure, want := range map[bool]string{true: want.secure, false: want.plain} {
			got, err := fullAddress(text, "s3cret", secure)
			if want != "" {
				require.NoError(t, err, text)
				assert.Equal(t, want, got)
				continue
			}
			require.Error(t, err, text)
			assert.NotContains(t, err.Error(), "s3cret", text)
			assert.Empty(t, got, text)
		}
	}
}
