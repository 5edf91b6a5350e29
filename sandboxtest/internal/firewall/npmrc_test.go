package firewall

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzNPMRC: whatever a file holds, its secrets are neither in an error nor in what
// sandboxes see, and go to no other host.
func FuzzNPMRC(f *testing.F) {
	const secret = "s3cret-of-the-registry"
	f.Add("//npm.example.com/:_authToken=", "\nregistry=https://npm.example.com/\n", "npm.example.com")
	f.Add("@x:registry=https://u:", "@npm.example.com/", "other.example.com")
	f.Add("registry=https://npm.example.com/?t=", "", "npm.example.com")
	f.Add("//a/b:_auth=", "\n//a:_password=x\n//a:username=", "a")
	f.Add("//[::1]:443/%2e%2e/:_authToken='", "'", "::1")
	f.Add(";", "\n= \n${", "")
	f.Fuzz(func(t *testing.T, before, after, host string) {
		rc, err := newNPMRC(before + secret + after)
		if err != nil {
			assert.NotContains(t, err.Error(), secret)
			return
		}
		if rc == nil {
			return
		}
		for line := range strings.Lines(rc.open) {
			_, address, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			u, err := url.Parse(address)
			assert.True(t, err == nil && u.User == nil, "%q", line)
		}
		r := httptest.NewRequest("GET", "https://x/", nil)
		if h := rc.header(host, 443, r); h != "" {
			assert.True(t, rc.has(host))
		}
		r.URL.Path = "/a/../b"
		assert.Empty(t, rc.header(host, 443, r))
	})
}
