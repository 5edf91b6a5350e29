package proxy_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
)

const forwardURL = "https://proxy.example.com/hook"

// authority creates one key for all tests.
var authority = sync.OnceValue(func() *proxytest.Authority {
	a, err := proxytest.NewAuthority()
	if err != nil {
		panic(err)
	}
	return a
})

// outcome is the result of a request to a handler.
type outcome struct {
	status  int
	body    string
	reached bool  // whether the inner handler was called
	err     error // as passed to the invalid handler
	log     string

	// the request that the inner handler or the invalid handler received
	request *http.Request
	meta    proxy.Meta
	sent    string // the request's body
}

// serve passes a request through a handler.
func serve(t testing.TB, r *http.Request, opts proxy.Options) outcome {
	t.Helper()
	var o outcome
	var log bytes.Buffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if opts.HTTPClient == nil && opts.Keys == nil {
		opts.HTTPClient = authority().Client()
	}
	record := func(r *http.Request) {
		o.request = r
		if r.Body != nil {
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			o.sent = string(b)
		}
	}
	opts.Invalid = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record(r)
		o.err = proxy.ErrorFromContext(r.Context())
		_, ok := proxy.FromContext(r.Context())
		assert.False(t, ok, "an invalid request has no meta")
		w.WriteHeader(499)
		io.WriteString(w, "custom")
	})
	h := proxy.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.reached = true
		record(r)
		var ok bool
		o.meta, ok = proxy.FromContext(r.Context())
		assert.True(t, ok)
		assert.NoError(t, proxy.ErrorFromContext(r.Context()))
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "made")
	}), &opts)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	o.status, o.body, o.log = w.Code, w.Body.String(), log.String()
	return o
}

// forwardedTo returns the request that arrives at the forward URL for a
// sandbox's request.
func forwardedTo(t testing.TB, forward, method, url, body string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, url, reader)
	r, err := (&proxytest.Firewall{Authority: authority(), ForwardURL: forward}).Forward(r)
	require.NoError(t, err)
	r.RequestURI = r.URL.RequestURI()
	return r
}

func TestHandlerRestoresTheRequest(t *testing.T) {
	before := time.Now().Truncate(time.Second)
	r := forwardedTo(t, forwardURL, "POST", "https://api.example.com/some/path?x=1;y&z", "request body")
	after := time.Now()
	r.Header.Set("X-Kept", "1")
	r.Form = url.Values{"x": {"of the outer URL"}} // as a middleware might have left it
	o := serve(t, r, proxy.Options{})
	require.True(t, o.reached, o.log)
	assert.Equal(t, 201, o.status)
	assert.Equal(t, "https://api.example.com/some/path?x=1;y&z", o.request.URL.String())
	assert.Equal(t, "/some/path?x=1;y&z", o.request.RequestURI)
	assert.Equal(t, "api.example.com", o.request.Host)
	assert.Equal(t, "POST", o.request.Method)
	assert.Equal(t, "request body", o.sent)
	assert.Equal(t, http.Header{"X-Kept": {"1"}}, o.request.Header)
	assert.WithinRange(t, o.meta.Expiry, before.Add(5*time.Minute), after.Add(5*time.Minute))
	o.meta.Expiry = time.Time{}
	assert.Equal(t, proxy.Meta{
		Host: "proxy.example.com", TeamID: "team_test", ProjectID: "prj_test",
		SandboxID: "sbx_test", SandboxName: "sandbox-test",
	}, o.meta)
	assert.NotEmpty(t, r.Header.Get("vercel-sandbox-oidc-token"), "the original request is unchanged")
	assert.Empty(t, o.log)
	assert.Empty(t, o.request.Form)
}

func TestHandlerAddresses(t *testing.T) {
	for original, want := range map[string]string{
		"http://api.example.com:8443/some/path?x=1": "http://api.example.com:8443/some/path?x=1",
		"https://api.example.com":                   "https://api.example.com/",
		"https://api.example.com/?":                 "https://api.example.com/?",
		"https://API.Example.com/":                  "https://api.example.com/",
		"https://api.example.com:443/":              "https://api.example.com/",
		"http://api.example.com:443/":               "http://api.example.com:443/",
		"https://[2001:DB8::1]:8443/a":              "https://[2001:db8::1]:8443/a",
		"https://192.0.2.1/a":                       "https://192.0.2.1/a",
		"https://registry.npmjs.org/@scope%2fname":  "https://registry.npmjs.org/@scope%2fname",
		"https://api.example.com/a//b/":             "https://api.example.com/a//b/",
		"https://api.example.com/..a/b..":           "https://api.example.com/..a/b..",
	} {
		t.Run(original, func(t *testing.T) {
			o := serve(t, forwardedTo(t, forwardURL, "GET", original, ""), proxy.Options{})
			require.True(t, o.reached, o.log)
			assert.Equal(t, want, o.request.URL.String())
		})
	}
}

func TestHandlerForwardURLs(t *testing.T) {
	for _, forward := range []string{
		"https://proxy.example.com", "https://proxy.example.com/", "https://proxy.example.com/hook/",
		"https://proxy.example.com:8443/a/b/c", "http://127.0.0.1:3000/hook", "https://PROXY.example.com:443/hook",
	} {
		t.Run(forward, func(t *testing.T) {
			for _, original := range []string{"/", "/some/path?x=1", "/some/path/", "/a%2Fb"} {
				f := &proxytest.Firewall{Authority: authority(), ForwardURL: forward}
				// A token's audience is the forward URL as written in the policy.
				f.Audience = strings.NewReplacer("PROXY", "proxy", ":443", "").Replace(forward)
				r, err := f.Forward(httptest.NewRequest("GET", "https://api.example.com"+original, nil))
				require.NoError(t, err)
				r.RequestURI = r.URL.RequestURI()
				o := serve(t, r, proxy.Options{})
				assert.True(t, o.reached, o.log)
				for _, written := range []string{strings.TrimRight(f.Audience, "/"), strings.TrimRight(f.Audience, "/") + "/"} {
					o = serve(t, r, proxy.Options{Audience: []string{written}})
					assert.True(t, o.reached, "the option as %s: %s", written, o.log)
				}

				// The firewall may also use the bare forward URL, or keep its slash.
				base := strings.TrimSuffix(r.RequestURI, original)
				for _, received := range []string{base + "/", base + "/" + original} {
					r.RequestURI = received
					o = serve(t, r, proxy.Options{})
					assert.True(t, o.reached, "%s: %s", received, o.log)
				}
			}
		})
	}
}

func TestHandlerMissingHeaders(t *testing.T) {
	for _, name := range []string{"host", "scheme", "port", "path"} {
		for _, empty := range []bool{true, false} {
			r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
			if empty {
				r.Header.Set("vercel-forwarded-"+name, "")
			} else {
				r.Header.Del("vercel-forwarded-" + name)
			}
			o := serve(t, r, proxy.Options{})
			assert.ErrorIs(t, o.err, proxy.ErrMissingHeaders)
			assert.Equal(t, r.Header, o.request.Header, "the invalid handler gets the original request")
			assert.Equal(t, r.URL, o.request.URL)
		}
	}
}

func TestHandlerLists(t *testing.T) {
	for name, c := range map[string]struct {
		opts proxy.Options
		in   bool
	}{
		"team":                      {proxy.Options{Teams: []string{"team_other", "team_test"}}, true},
		"another team":              {proxy.Options{Teams: []string{"team_other"}}, false},
		"no team":                   {proxy.Options{Teams: []string{}}, false},
		"project":                   {proxy.Options{Projects: []string{"prj_test"}}, true},
		"another project":           {proxy.Options{Projects: []string{"prj_other"}}, false},
		"right team, wrong project": {proxy.Options{Teams: []string{"team_test"}, Projects: []string{"x"}}, false},
		"sandbox":                   {proxy.Options{Sandboxes: []string{"sbx_test"}}, true},
		"another sandbox":           {proxy.Options{Sandboxes: []string{"sbx_other"}}, false},
		"sandbox by name alone":     {proxy.Options{Sandboxes: []string{"sandbox-test"}}, false},
		"sandbox by name":           {proxy.Options{Sandboxes: []string{"sandbox-test"}, Projects: []string{"prj_test"}}, true},
		"issuer":                    {proxy.Options{Issuers: []string{proxytest.DefaultIssuer}}, true},
		"another issuer":            {proxy.Options{Issuers: []string{"https://oidc.vercel.com"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.in { // no keys are fetched for a refused sandbox
				c.opts.HTTPClient = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, http.ErrNotSupported })}
			}
			o := serve(t, forwardedTo(t, forwardURL, "GET", "https://api.example.com/", ""), c.opts)
			assert.Equal(t, c.in, o.reached, o.log)
			if !c.in {
				assert.True(t, errors.Is(o.err, proxy.ErrNotAllowed) || errors.Is(o.err, proxy.ErrInvalidIssuer))
			}
		})
	}
}

// TestRefusalsSayWhy: the error says what is wrong with the request, and which option would
// accept it.
func TestRefusalsSayWhy(t *testing.T) {
	_, key := authority().Key()
	changeClaims := func(change func(map[string]any)) func(*http.Request) {
		return func(r *http.Request) {
			claims := goodClaims()
			change(claims)
			r.Header.Set("vercel-sandbox-oidc-token", sign(key, header(), claims))
		}
	}
	setHeader := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	unixIn := func(year int) int64 { return time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC).Unix() }
	for message, c := range map[string]struct {
		change func(*http.Request)
		opts   proxy.Options
	}{
		`missing forwarding headers: Vercel-Forwarded-Port, which a network policy with a forward URL adds`: {change: setHeader("Vercel-Forwarded-Port", "")},
		`invalid forwarded URL: Vercel-Forwarded-Scheme is "ftp", not http or https`:                        {change: setHeader("Vercel-Forwarded-Scheme", "ftp")},
		`invalid forwarded URL: Vercel-Forwarded-Host is "a b": not a host name`:                            {change: setHeader("Vercel-Forwarded-Host", "a b")},
		`invalid forwarded URL: Vercel-Forwarded-Port is "0443", not a port from 1 to 65535`:                {change: setHeader("Vercel-Forwarded-Port", "0443")},
		`invalid forwarded URL: Vercel-Forwarded-Path has a dot segment (. or ..)`:                          {change: setHeader("Vercel-Forwarded-Path", "/a/%2e%2e/secret")},
		`invalid token: it does not have three parts`:                                                       {change: setHeader("Vercel-Sandbox-Oidc-Token", "x")},
		`invalid token: it is longer than 16384 bytes`:                                                      {change: setHeader("Vercel-Sandbox-Oidc-Token", strings.Repeat("x", 16<<10+1))},
		`invalid token: it is signed with the algorithm "none", not RS256`: {change: func(r *http.Request) {
			r.Header.Set("Vercel-Sandbox-Oidc-Token", sign(key, header(map[string]any{"alg": "none"}), goodClaims()))
		}},
		`invalid token: its signature does not match the issuer's key`: {change: func(r *http.Request) {
			r.Header.Set("Vercel-Sandbox-Oidc-Token", sign(strangersKey(), header(), goodClaims()))
		}},
		`invalid token: its issuer publishes no usable key "other"`: {change: func(r *http.Request) {
			r.Header.Set("Vercel-Sandbox-Oidc-Token", sign(key, header(map[string]any{"kid": "other"}), goodClaims()))
		}},
		`invalid token: it has no time of expiry (exp)`:                                                                                                               {change: changeClaims(without("exp"))},
		`invalid token: it expired at 2020-01-02 03:04:05 +0000 UTC, and this machine's clock shows`:                                                                  {change: changeClaims(with("exp", unixIn(2020)))},
		`invalid token: it is not valid before 2150-01-02 03:04:05 +0000 UTC, and this machine's clock shows`:                                                         {change: changeClaims(with("nbf", unixIn(2150)))},
		`invalid token: it is for the forward URL "https://a.example", not for ["https://proxy.example.com/hook"]: list the policy's forward URL in Options.Audience`: {change: changeClaims(with("aud", "https://a.example"))},
		`invalid token: its audience can't be checked: X-Forwarded-Proto is "gopher", not http or https`:                                                              {change: setHeader("X-Forwarded-Proto", "gopher"), opts: proxy.Options{TrustForwarded: true}},
		`invalid token: its audience can't be checked: X-Forwarded-Host has more than one value; the proxy in front must replace it`:                                  {change: setHeader("X-Forwarded-Host", "a, b"), opts: proxy.Options{TrustForwarded: true}},
		`invalid token: its audience can't be checked: the request's host "a b" is not a host name`:                                                                   {change: func(r *http.Request) { r.Host = "a b" }},
		`missing token issuer`: {change: changeClaims(without("iss"))},
		`invalid token issuer: "https://a.example" is not https://oidc.vercel.com or a path below it`:                                      {change: changeClaims(with("iss", "https://a.example"))},
		`invalid token issuer: "` + proxytest.DefaultIssuer + `" is not in Options.Issuers`:                                                {opts: proxy.Options{Issuers: []string{"https://oidc.vercel.com/x"}}},
		`missing claims in token: team_id, project_id and sandbox_id are needed`:                                                           {change: changeClaims(without("project_id"))},
		`sandbox not allowed: its team "team_test" is not in Options.Teams`:                                                                {opts: proxy.Options{Teams: []string{"x"}}},
		`sandbox not allowed: its project "prj_test" is not in Options.Projects`:                                                           {opts: proxy.Options{Projects: []string{"x"}}},
		`sandbox not allowed: its ID "sbx_test" is not in Options.Sandboxes`:                                                               {opts: proxy.Options{Sandboxes: []string{"x"}}},
		`sandbox not allowed: its ID "sbx_test" is not in Options.Sandboxes; its name is, but names count only if Options.Projects is set`: {opts: proxy.Options{Sandboxes: []string{"sandbox-test"}}},
	} {
		r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
		if c.change != nil {
			c.change(r)
		}
		o := serve(t, r, c.opts)
		assertRefused(t, o)
		assert.Regexp(t, "^proxy: "+regexp.QuoteMeta(message)+"( [0-9: +-]*UTC)?$", o.err)
	}
}

func TestHandlerAudience(t *testing.T) {
	r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
	r.Host, r.RequestURI, r.TLS = "10.0.0.7:3000", "/rewritten/some/path", nil
	assert.True(t, serve(t, r, proxy.Options{Audience: []string{"https://other", forwardURL + "/"}}).reached)
	assert.ErrorIs(t, serve(t, r, proxy.Options{Audience: []string{"https://proxy.example.com"}}).err, proxy.ErrInvalidToken)
	assert.ErrorIs(t, serve(t, r, proxy.Options{Audience: []string{}}).err, proxy.ErrInvalidToken)
	assert.ErrorIs(t, serve(t, r, proxy.Options{}).err, proxy.ErrInvalidToken)

	// The forward URL of this sandbox is the root of the host, and it requests the path of
	// another sandbox's forward URL. Only Audience shows that it is not that sandbox.
	r = forwardedTo(t, "https://proxy.example.com", "GET", "https://api.example.com/hook/x", "")
	assert.True(t, serve(t, r, proxy.Options{}).reached)
	assert.ErrorIs(t, serve(t, r, proxy.Options{Audience: []string{forwardURL}}).err, proxy.ErrInvalidToken)
}

func TestHandlerTrustForwarded(t *testing.T) {
	trusting := proxy.Options{TrustForwarded: true}
	behindProxy := func(proto, host string) *http.Request {
		r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
		r.Host, r.TLS = "10.0.0.7:3000", nil
		r.Header.Set("X-Forwarded-Proto", proto)
		r.Header.Set("X-Forwarded-Host", host)
		return r
	}
	o := serve(t, behindProxy("https", "proxy.example.com"), trusting)
	require.True(t, o.reached, o.log)
	assert.Equal(t, "proxy.example.com", o.meta.Host)
	assert.False(t, serve(t, behindProxy("https", "proxy.example.com"), proxy.Options{}).reached, "only with TrustForwarded")
	assert.False(t, serve(t, behindProxy("http", "proxy.example.com"), trusting).reached)
	assert.False(t, serve(t, behindProxy("https", "evil.example, proxy.example.com"), trusting).reached)
	assert.False(t, serve(t, behindProxy("http, https", "proxy.example.com"), trusting).reached)
	assert.False(t, serve(t, behindProxy("ftp", "proxy.example.com"), trusting).reached)
	r := behindProxy("https", "proxy.example.com/hook")
	r.RequestURI = "/some/path"
	assert.False(t, serve(t, r, trusting).reached, "the host contains a path")
	r = behindProxy("https", "proxy.example.com")
	r.Header.Add("X-Forwarded-Host", "evil.example")
	assert.False(t, serve(t, r, trusting).reached)
}
