package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
)

func TestEndToEnd(t *testing.T) {
	authority, err := proxytest.NewAuthority()
	require.NoError(t, err)
	handler := func() http.Handler {
		return proxy.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			meta, _ := proxy.FromContext(r.Context())
			io.WriteString(w, strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("X-Test"), string(body),
				meta.TeamID, meta.ProjectID, meta.SandboxID, meta.SandboxName}, " "))
		}), &proxy.Options{HTTPClient: authority.Client()})
	}
	current := handler()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { current.ServeHTTP(w, r) }))
	defer service.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	send := func(f proxytest.Firewall) (int, string) {
		f.Authority, f.Transport = authority, transport
		if f.ForwardURL == "" {
			f.ForwardURL = service.URL + "/hook/"
		}
		r, err := http.NewRequestWithContext(t.Context(), "PUT", "http://[2001:db8::1]:8080/a%2Fb?x=1", strings.NewReader("body"))
		require.NoError(t, err)
		r.Header.Set("X-Test", "kept")
		resp, err := (&http.Client{Transport: &f}).Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, "[2001:db8::1]:8080", r.URL.Host, "the sandbox's request is left alone")
		assert.Len(t, r.Header, 1)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}

	_, body := send(proxytest.Firewall{})
	assert.Equal(t, "PUT http://[2001:db8::1]:8080/a%2Fb?x=1 kept body team_test prj_test sbx_test sandbox-test", body)
	_, body = send(proxytest.Firewall{Claims: proxytest.Claims{
		Issuer: "https://oidc.vercel.com/other", TeamID: "t", ProjectID: "p", SandboxID: "s", SandboxName: "n",
	}})
	assert.Contains(t, body, " t p s n")

	status, _ := send(proxytest.Firewall{Audience: "https://elsewhere.example"})
	assert.Equal(t, 403, status)
	status, _ = send(proxytest.Firewall{Claims: proxytest.Claims{Expiry: time.Now().Add(-time.Hour)}})
	assert.Equal(t, 403, status)
	status, _ = send(proxytest.Firewall{Claims: proxytest.Claims{Issuer: "https://evil.example"}})
	assert.Equal(t, 403, status)

	require.NoError(t, authority.Rotate())
	status, _ = send(proxytest.Firewall{})
	assert.Equal(t, 403, status, "the keys have been fetched a moment ago")
	current = handler()
	status, _ = send(proxytest.Firewall{})
	assert.Equal(t, 200, status)
}

func TestAuthorityServesNothingElse(t *testing.T) {
	for _, url := range []string{"http://oidc.vercel.com/.well-known/jwks", "https://oidc.vercel.com/", "https://example.com/.well-known/jwks"} {
		_, err := authority().Client().Get(url)
		assert.ErrorContains(t, err, "unexpected request", url)
	}
}

func TestFirewallNeedsItsFields(t *testing.T) {
	authority := authority()
	r := httptest.NewRequest("GET", "https://api.example.com/", nil)
	for _, f := range []*proxytest.Firewall{{ForwardURL: "http://127.0.0.1"}, {Authority: authority}, {Authority: authority, ForwardURL: "/hook"}} {
		_, err := f.RoundTrip(r)
		assert.ErrorContains(t, err, "the firewall")
	}
	_, err := (&proxytest.Firewall{Authority: authority, ForwardURL: "http://127.0.0.1"}).Forward(httptest.NewRequest("GET", "/", nil))
	assert.ErrorContains(t, err, "no host")
}
