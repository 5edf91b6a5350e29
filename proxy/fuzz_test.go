package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// FuzzHeaders: every accepted request is valid. GOOD in the input is replaced by a validly
// signed token, because each fuzzing process generates its own key.
func FuzzHeaders(f *testing.F) {
	token := testToken("k1", testIssuer)
	const uri = "/hook/some/path?x=1"
	f.Add("api.example.com", "https", "443", "/some/path?x=1", "GOOD", "X-Other", "1", uri, "proxy.example.com")
	f.Add("api.example.com", "http", "8443", "/", "GOOD", "Authorization", "Bearer x", "/hook/", "PROXY.example.com:80")
	f.Add("[::1]", "http", "80", "/", "GOOD", "vercel-forwarded-host", "evil", "/hook", "proxy.example.com:80")
	f.Add("a:80", "HTTPS", "0443", "//evil/%2e%2e", "a.b.c", "Vercel_Forwarded_Path", "/", "/hook//x", "")
	f.Add("user@a", "ftp", "65536", "/a/../b", "GOOD", "Connection", "vercel-forwarded-host", "http://evil/hook", "evil")
	f.Add("a\x00", "", "-1", "/%2f", "GOODx", " Vercel-Sandbox-Oidc-Token", "GOOD", "*", "a/b")
	keys := publishing("k1").keys()
	f.Fuzz(func(t *testing.T, host, scheme, port, path, sent, name, value, uri, received string) {
		sent = strings.ReplaceAll(sent, "GOOD", token)
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Host: received, RequestURI: uri, Body: http.NoBody,
			Header: http.Header{
				hostHeader: {host}, schemeHeader: {scheme}, portHeader: {port}, pathHeader: {path}, tokenHeader: {sent},
			}}
		r.Header[name] = append(r.Header[name], value)
		before := r.Header.Clone()
		refused, reached := false, false
		h := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reached = true
			checkOriginal(t, r)
			if sent != token {
				t.Error("a token other than the signed one was accepted")
			}
			if name, port, _ := strings.Cut(received, ":"); !strings.EqualFold(name, "proxy.example.com") || port != "" && port != "80" {
				t.Errorf("a request to the host %q was accepted", received)
			}
		}), &Options{Keys: keys, Invalid: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			refused = true
			err := ErrorFromContext(r.Context())
			if err == nil {
				t.Error("refused without a reason")
			} else if len(sent) > 100 && strings.Contains(err.Error(), sent[len(sent)-50:]) {
				t.Error("the reason contains the token")
			}
			serveForbidden(w, r)
		})})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if refused == reached {
			t.Errorf("refused %v, reached %v", refused, reached)
		}
		if len(before) != len(r.Header) {
			t.Error("the caller's headers were changed")
		}
	})
}

// checkOriginal checks a request that was accepted.
func checkOriginal(t *testing.T, r *http.Request) {
	if m, ok := FromContext(r.Context()); !ok || m.TeamID != "team_p" || m.Host != "proxy.example.com" {
		t.Errorf("meta %+v", m)
	}
	for name := range r.Header {
		if strings.Contains(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "vercel-forwarded-") && forwardingHeader(name) != "" {
			t.Errorf("header %q is still there", name)
		}
	}
	checkAddress(t, r)
}

// checkAddress checks that a request's address is unambiguous.
func checkAddress(t *testing.T, r *http.Request) {
	again, err := url.Parse(r.URL.String())
	if err != nil {
		t.Fatalf("URL %q: %v", r.URL, err)
	}
	switch {
	case again.Host != r.URL.Host || again.Path != r.URL.Path || again.Scheme != r.URL.Scheme || again.RawQuery != r.URL.RawQuery:
		t.Errorf("URL %q reads differently: %q", r.URL, again)
	case again.User != nil || again.Fragment != "" || again.Opaque != "":
		t.Errorf("URL %q has more than an address", r.URL)
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		t.Errorf("URL %q has the wrong scheme", r.URL)
	case r.URL.Path == "" || r.URL.Path[0] != '/' || strings.HasPrefix(r.URL.Path, "//"):
		t.Errorf("URL %q has an invalid path", r.URL)
	case !strings.HasPrefix(r.URL.Host, r.Host):
		t.Errorf("Host %q, URL %q", r.Host, r.URL)
	case r.RequestURI != r.URL.RequestURI():
		t.Errorf("RequestURI %q, URL %q", r.RequestURI, r.URL)
	}
	for segment := range strings.SplitSeq(strings.ReplaceAll(r.URL.Path, `\`, "/"), "/") {
		if segment == ".." || segment == "." {
			t.Errorf("URL %q has a dot segment", r.URL)
		}
	}
	if strings.ContainsAny(r.URL.String(), " \r\n\t\x00") {
		t.Errorf("URL %q has a space or a control character", r.URL)
	}
}

// FuzzToken: a token that parses has one spelling, and its claims are checked.
func FuzzToken(f *testing.F) {
	good := testToken("k1", testIssuer)
	f.Add(good)
	f.Add(good[:len(good)-1] + "\n")
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL29pZGMudmVyY2VsLmNvbS90In0.")
	f.Add(`..`)
	f.Add("a.b.c.d")
	f.Fuzz(func(t *testing.T, token string) {
		parsed, err := parseToken(token)
		if err != nil {
			if len(token) > 200 && strings.Contains(err.Error(), token[100:]) {
				t.Errorf("the error contains the token: %v", err)
			}
			return
		}
		if again := parsed.input + "." + base64url.EncodeToString(parsed.signature); again != token {
			t.Errorf("%q and %q parse as the same token", token, again)
		}
		if checkIssuer(parsed.issuer) == nil {
			u, err := url.Parse(parsed.issuer)
			if err != nil || u.Scheme != "https" || u.Host != "oidc.vercel.com" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
				strings.Contains(u.Path, "..") && !strings.Contains(parsed.issuer, "..") {
				t.Errorf("issuer %q is accepted", parsed.issuer)
			}
		}
		if _, err := parsed.meta(); err == nil && parsed.TeamID == nil {
			t.Error("a token without a team is accepted")
		}
		now := time.Now()
		if expiry, err := parsed.checkTime(now); err == nil && expiry.Sub(now) < -clockTolerance-time.Second {
			t.Errorf("a token that expired at %v is accepted", expiry)
		}
	})
}

// FuzzCacheControl: no response may be shared, whatever a server sends.
func FuzzCacheControl(f *testing.F) {
	f.Add("public, s-maxage=60", "private=\"a, public\", max-age=1")
	f.Add("S-MAXAGE = 5,, ,PUBLIC", "no-store")
	f.Fuzz(func(t *testing.T, first, second string) {
		got := strings.ToLower(privateCacheControl([]string{first, second}))
		directives := strings.Split(got, ", ")
		if directives[0] != "private" {
			t.Fatalf("%q", got)
		}
		for directive := range strings.SplitSeq(got, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.TrimSpace(name) {
			case "public", "s-maxage":
				t.Errorf("%q and %q give %q", first, second, got)
			}
		}
	})
}
