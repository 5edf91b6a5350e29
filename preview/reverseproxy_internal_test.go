package preview

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRelative: the relative form of the server's own address can't denote another host.
// Browsers treat a backslash like a slash.
func TestRelative(t *testing.T) {
	t.Parallel()
	own, err := url.Parse("https://web.example")
	require.NoError(t, err)
	for value, want := range map[string]string{
		"https://web.example/a":               "/a",
		"https://web.example":                 "/",
		"https://web.example//evil.test":      "/.//evil.test",
		`https://web.example/\evil.test`:      `/./\evil.test`,
		`https://web.example\evil.test`:       `/\evil.test`,
		"https://web.example?q=//evil.test":   "/?q=//evil.test",
		"https://elsewhere.test/a":            "https://elsewhere.test/a",
		"https://web.example.evil.test/a":     "https://web.example.evil.test/a",
		"https://web.example@evil.test/a":     "https://web.example@evil.test/a",
		`https://web.example/\/\evil.test/..`: `/./\/\evil.test/..`,
	} {
		assert.Equal(t, want, translatingTransport{&portTransport{port: 3000}}.relative(value, own), value)
	}
}
