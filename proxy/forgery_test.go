package proxy_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
)

// goodClaims returns claims that are accepted for forwardURL.
func goodClaims() map[string]any {
	return map[string]any{
		"iss": proxytest.DefaultIssuer, "aud": forwardURL, "exp": time.Now().Add(time.Minute).Unix(),
		"team_id": "team_test", "project_id": "prj_test", "sandbox_id": "sbx_test", "sandbox_name": "sandbox-test",
	}
}

// with and without return functions that change claims.
func with(name string, value any) func(map[string]any) {
	return func(c map[string]any) { c[name] = value }
}

func without(name string) func(map[string]any) {
	return func(c map[string]any) { delete(c, name) }
}

func segment(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// sign signs a header and claims with a key, as RS256 whatever the header says.
func sign(key *rsa.PrivateKey, header map[string]any, claims any) string {
	input := segment(header) + "." + segment(claims)
	sum := sha256.Sum256([]byte(input))
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// header returns a valid header with changes.
func header(changes ...map[string]any) map[string]any {
	id, _ := authority().Key()
	h := map[string]any{"alg": "RS256", "kid": id, "typ": "JWT"}
	for _, c := range changes {
		maps.Copy(h, c)
	}
	return h
}

// strangersKey is a key that no issuer publishes.
var strangersKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// forgeSignature returns tokens without a valid signature of the issuer.
func forgeSignature(t *testing.T) map[string]string {
	_, key := authority().Key()
	claims := goodClaims()
	good := sign(key, header(), claims)
	parts := strings.Split(good, ".")
	signHS256 := func(secret []byte) string {
		input := segment(header(map[string]any{"alg": "HS256"})) + "." + segment(claims)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(input))
		return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	signRSA := func(hash crypto.Hash, alg string) string {
		input := segment(header(map[string]any{"alg": alg})) + "." + segment(claims)
		h := hash.New()
		h.Write([]byte(input))
		sig, err := rsa.SignPKCS1v15(nil, key, hash, h.Sum(nil))
		require.NoError(t, err)
		return input + "." + base64.RawURLEncoding.EncodeToString(sig)
	}
	pss := segment(header()) + "." + segment(claims)
	sum := sha256.Sum256([]byte(pss))
	pssSig, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], nil)
	require.NoError(t, err)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	// The last character has unused bits. Changing one gives the same bytes.
	otherEnd := good[:len(good)-1] + string(alphabet[strings.IndexByte(alphabet, good[len(good)-1])^1])
	ownKey := map[string]any{
		"kty": "RSA", "e": "AQAB", "n": base64.RawURLEncoding.EncodeToString(strangersKey().N.Bytes()),
	}
	other := segment(map[string]any{"iss": proxytest.DefaultIssuer, "aud": forwardURL, "exp": int64(4102444800),
		"team_id": "team_victim", "project_id": "p", "sandbox_id": "s"})

	return map[string]string{
		"alg none":                     segment(map[string]any{"alg": "none"}) + "." + parts[1] + ".",
		"alg in lower case":            sign(key, header(map[string]any{"alg": "rs256"}), claims),
		"HS256 with the public key":    signHS256(key.N.Bytes()),
		"RS384 with the right key":     signRSA(crypto.SHA384, "RS384"),
		"RS512 said to be RS256":       signRSA(crypto.SHA512, "RS256"),
		"PS256 said to be RS256":       pss + "." + base64.RawURLEncoding.EncodeToString(pssSig),
		"alg is a list":                sign(key, header(map[string]any{"alg": []string{"RS256"}}), claims),
		"key ID with a NUL":            sign(key, header(map[string]any{"kid": "key-1\x00"}), claims),
		"key ID null, other key":       sign(strangersKey(), header(map[string]any{"kid": nil}), claims),
		"critical list is empty":       sign(key, header(map[string]any{"crit": []string{}}), claims),
		"line break in the signature":  good[:len(good)-10] + "\n" + good[len(good)-10:],
		"space in front":               " " + good,
		"other base64":                 parts[0] + "." + parts[1] + "." + strings.NewReplacer("-", "+", "_", "/").Replace(parts[2]) + "+",
		"other bits at the end":        otherEnd,
		"zeros behind the signature":   good + "AA",
		"unknown key":                  sign(strangersKey(), header(map[string]any{"kid": "other"}), claims),
		"another key under a known ID": sign(strangersKey(), header(), claims),
		"key in the header":            sign(strangersKey(), header(map[string]any{"jwk": ownKey}), claims),
		"key ID is a path":             sign(strangersKey(), header(map[string]any{"kid": "../../dev/null"}), claims),
		"key ID is no text":            sign(key, header(map[string]any{"kid": 1}), claims),
		"no key ID, other key":         sign(strangersKey(), map[string]any{"alg": "RS256"}, claims),
		"critical header":              sign(key, header(map[string]any{"crit": []string{"x"}, "x": 1}), claims),
		"changed claims":               parts[0] + "." + other + "." + parts[2],
		"two parts":                    parts[0] + "." + parts[1],
		"four parts":                   good + ".x",
		"twice":                        good + "," + good,
		"JSON form":                    fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]),
		"garbage":                      "garbage",
		"dots":                         "..",
		"claims are null":              sign(key, header(), nil),
	}
}

func TestForgedSignatures(t *testing.T) {
	for name, token := range forgeSignature(t) {
		t.Run(name, func(t *testing.T) {
			r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
			r.Header.Set("vercel-sandbox-oidc-token", token)
			o := serve(t, r, proxy.Options{})
			assertRefused(t, o)
			if signature := token[strings.LastIndexByte(token, '.')+1:]; len(signature) > 8 {
				assert.NotContains(t, o.log, signature, "the log has no token")
			}
		})
	}
}

// assertRefused checks that a request reached only the invalid handler.
func assertRefused(t *testing.T, o outcome) {
	t.Helper()
	assert.False(t, o.reached)
	assert.Equal(t, 499, o.status)
	assert.Error(t, o.err)
	assert.Equal(t, 1, strings.Count(o.log, "\n"), "one line")
}

func TestForgedClaims(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		change func(map[string]any)
		err    error
	}{
		"wrong audience":             {with("aud", "https://proxy.example.com/other"), proxy.ErrInvalidToken},
		"audience above":             {with("aud", "https://proxy.example.com"), proxy.ErrInvalidToken},
		"audience below":             {with("aud", forwardURL+"/some"), proxy.ErrInvalidToken},
		"audience with two slashes":  {with("aud", forwardURL+"//"), proxy.ErrInvalidToken},
		"audience in upper case":     {with("aud", "https://PROXY.example.com/hook"), proxy.ErrInvalidToken},
		"audience with its port":     {with("aud", "https://proxy.example.com:443/hook"), proxy.ErrInvalidToken},
		"audience over http":         {with("aud", "http://proxy.example.com/hook"), proxy.ErrInvalidToken},
		"audience elsewhere":         {with("aud", "https://proxy.example.com.evil.com/hook"), proxy.ErrInvalidToken},
		"other audiences":            {with("aud", []string{"https://a.example", "https://b.example"}), proxy.ErrInvalidToken},
		"no audiences":               {with("aud", []string{}), proxy.ErrInvalidToken},
		"audience is an object":      {with("aud", map[string]any{forwardURL: true}), proxy.ErrInvalidToken},
		"audience in a nested list":  {with("aud", []any{[]any{forwardURL}}), proxy.ErrInvalidToken},
		"audience is a number":       {with("aud", 1), proxy.ErrInvalidToken},
		"audience with a user":       {with("aud", "https://x@proxy.example.com/hook"), proxy.ErrInvalidToken},
		"audience with a query":      {with("aud", forwardURL+"?x"), proxy.ErrInvalidToken},
		"audience with a space":      {with("aud", forwardURL+" "), proxy.ErrInvalidToken},
		"audiences in one text":      {with("aud", forwardURL+",https://evil.example"), proxy.ErrInvalidToken},
		"audience empty":             {with("aud", ""), proxy.ErrInvalidToken},
		"no audience":                {without("aud"), proxy.ErrInvalidToken},
		"expired":                    {with("exp", now.Add(-time.Hour).Unix()), proxy.ErrInvalidToken},
		"expired a little over 60 s": {with("exp", now.Add(-61*time.Second).Unix()), proxy.ErrInvalidToken},
		"no exp":                     {without("exp"), proxy.ErrInvalidToken},
		"exp null":                   {with("exp", nil), proxy.ErrInvalidToken},
		"exp a text":                 {with("exp", "4102444800"), proxy.ErrInvalidToken},
		"exp beyond time":            {with("exp", 1e300), proxy.ErrInvalidToken},
		"exp negative":               {with("exp", int64(-4102444800)), proxy.ErrInvalidToken},
		"exp in milliseconds":        {with("exp", now.Add(time.Hour).UnixMilli()*1000), proxy.ErrInvalidToken},
		"exp true":                   {with("exp", true), proxy.ErrInvalidToken},
		"exp a list":                 {with("exp", []int64{4102444800}), proxy.ErrInvalidToken},
		"exp zero":                   {with("exp", 0), proxy.ErrInvalidToken},
		"nbf negative":               {with("nbf", -5), proxy.ErrInvalidToken},
		"iat negative":               {with("iat", -5), proxy.ErrInvalidToken},
		"not yet valid":              {with("nbf", now.Add(time.Hour).Unix()), proxy.ErrInvalidToken},
		"nbf a text":                 {with("nbf", "0"), proxy.ErrInvalidToken},
		"nbf beyond time":            {with("nbf", 1e300), proxy.ErrInvalidToken},
		"iat a text":                 {with("iat", "0"), proxy.ErrInvalidToken},
		"no team":                    {without("team_id"), proxy.ErrMissingClaims},
		"empty team":                 {with("team_id", ""), proxy.ErrMissingClaims},
		"team is no text":            {with("team_id", []string{"team_test"}), proxy.ErrMissingClaims},
		"team in another case":       {func(c map[string]any) { delete(c, "team_id"); c["Team_ID"] = "team_test" }, proxy.ErrMissingClaims},
		"no project":                 {without("project_id"), proxy.ErrMissingClaims},
		"empty project":              {with("project_id", ""), proxy.ErrMissingClaims},
		"no sandbox":                 {without("sandbox_id"), proxy.ErrMissingClaims},
		"sandbox is no text":         {with("sandbox_id", 1), proxy.ErrMissingClaims},
		"no issuer":                  {without("iss"), proxy.ErrMissingIssuer},
		"issuer empty":               {with("iss", ""), proxy.ErrMissingIssuer},
		"issuer is no text":          {with("iss", []string{proxytest.DefaultIssuer}), proxy.ErrMissingIssuer},
	} {
		t.Run(name, func(t *testing.T) {
			claims := goodClaims()
			c.change(claims)
			token, err := authority().Sign(claims)
			require.NoError(t, err)
			r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
			r.Header.Set("vercel-sandbox-oidc-token", token)
			o := serve(t, r, proxy.Options{})
			assertRefused(t, o)
			assert.ErrorIs(t, o.err, c.err)
		})
	}
	t.Run("a claim twice", func(t *testing.T) {
		_, key := authority().Key()
		b, err := json.Marshal(goodClaims())
		require.NoError(t, err)
		twice := json.RawMessage(strings.Replace(string(b), "{", `{"team_id":"team_other",`, 1))
		input := segment(header()) + "." + base64.RawURLEncoding.EncodeToString(twice)
		sum := sha256.Sum256([]byte(input))
		sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		require.NoError(t, err)
		r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
		r.Header.Set("vercel-sandbox-oidc-token", input+"."+base64.RawURLEncoding.EncodeToString(sig))
		assertRefused(t, serve(t, r, proxy.Options{}))
	})
}

// TestValidClaims: unusual but valid tokens are accepted.
func TestValidClaims(t *testing.T) {
	now := time.Now()
	for name, change := range map[string]func(map[string]any){
		"plain":                    func(map[string]any) {},
		"one audience of several":  with("aud", []string{"https://a.example", forwardURL}),
		"expired less than 60 s":   with("exp", now.Add(-50*time.Second).Unix()),
		"valid in less than 60 s":  with("nbf", now.Add(50*time.Second).Unix()),
		"fractions of seconds":     with("exp", float64(now.Unix())+60.5),
		"issuer for all teams":     with("iss", "https://oidc.vercel.com"),
		"issuer ends in a slash":   with("iss", "https://oidc.vercel.com/team-test/"),
		"no name":                  without("sandbox_name"),
		"name is null":             with("sandbox_name", nil),
		"claims it does not know ": with("x", map[string]any{"y": []int{1}}),
	} {
		t.Run(name, func(t *testing.T) {
			claims := goodClaims()
			change(claims)
			token, err := authority().Sign(claims)
			require.NoError(t, err)
			r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
			r.Header.Set("vercel-sandbox-oidc-token", token)
			o := serve(t, r, proxy.Options{})
			require.True(t, o.reached, o.log)
			if claims["sandbox_name"] == nil {
				assert.Equal(t, "sbx_test", o.meta.SandboxName)
			}
		})
	}
	t.Run("no key ID, one key", func(t *testing.T) {
		_, key := authority().Key()
		r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
		r.Header.Set("vercel-sandbox-oidc-token", sign(key, map[string]any{"alg": "RS256"}, goodClaims()))
		assert.True(t, serve(t, r, proxy.Options{}).reached)
	})
}

func TestForgedIssuers(t *testing.T) {
	for _, issuer := range []string{
		"https://evil.example.com/team", "https://oidc.vercel.com.evil.com", "https://oidc.vercel.com.evil.com/team",
		"https://evil.com/oidc.vercel.com", "https://oidc.vercel.com@evil.com", "https://oidc.vercel.com@evil.com/team",
		"https://user@oidc.vercel.com/team", "https://user:pass@oidc.vercel.com/team", "https://@oidc.vercel.com/team",
		"https://oidc.vercel.com:443/team", "https://oidc.vercel.com:8443/team", "https://oidc.vercel.com:/team",
		"http://oidc.vercel.com/team", "HTTPS://oidc.vercel.com/team", "https://OIDC.VERCEL.COM/team",
		"https://Oidc.vercel.com/team", "https://oidc.vercel.com./team", "https://oidc.vercel.com..evil.com/team",
		"https:/oidc.vercel.com/team", "https:oidc.vercel.com/team", "//oidc.vercel.com/team", "oidc.vercel.com/team",
		"https:///oidc.vercel.com/team", `https:\\oidc.vercel.com/team`, `https://oidc.vercel.com\@evil.com`,
		`https://evil.com\@oidc.vercel.com`, "https://oidc.vercel.com%2eevil.com/team", "https://oidc%2evercel.com/team",
		"https://evil.com#https://oidc.vercel.com", "https://evil.com?https://oidc.vercel.com", "https://oidc.vercel.com?x",
		"https://oidc.vercel.com#x", "https://oidc.vercel.com/team?x=", "https://oidc.vercel.com/team#", "https://oidc.vercel.com/team?",
		"https://oidc.vercel.com/../team", "https://oidc.vercel.com/a/../team", "https://oidc.vercel.com/./team",
		"https://oidc.vercel.com//team", "https://oidc.vercel.com/team//", "https://oidc.vercel.com//", "https://oidc.vercel.com/%2e%2e/team",
		"https://oidc.vercel.com/te am", "https://oidc.vercel.com/team\n", " https://oidc.vercel.com/team", "https://oidc.vercel.com/team ",
		"https://oidc.vercel.com\t/team", "https://oidc.vercel.com\x00/team", "https://оidc.vercel.com/team", "https://oidc。vercel.com/team",
		"https://oidc.vercel.com#@evil.com", "https://oidc.vercel.com;.evil.com/", "https://oidc.vercel.com/é", "https://evil.com/https://oidc.vercel.com",
		"https://oidc.vercel.comm/team", "https://xoidc.vercel.com/team", "https://vercel.com/team", "https://oidc.vercel.co/team",
		"https://oidc.vercel.com/" + strings.Repeat("x", 300), "not a url", "file:///etc/passwd",
	} {
		t.Run(issuer, func(t *testing.T) {
			claims := goodClaims()
			claims["iss"] = issuer
			token, err := authority().Sign(claims)
			require.NoError(t, err)
			r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
			r.Header.Set("vercel-sandbox-oidc-token", token)
			o := serve(t, r, proxy.Options{HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				t.Errorf("keys were fetched from %s", r.URL)
				return nil, http.ErrNotSupported
			})}})
			assertRefused(t, o)
			assert.ErrorIs(t, o.err, proxy.ErrInvalidIssuer)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestForgedPaths varies the path at which a request arrives and the forwarded
// path, which together determine the audience.
func TestForgedPaths(t *testing.T) {
	for name, c := range map[string]struct{ received, forwarded string }{
		"another forward URL":            {"/other/some/path", "/some/path"},
		"below the forward URL":          {"/hook/admin", "/some/path"},
		"the host's root":                {"/", "/some/path"},
		"just the forwarded path":        {"/some/path", "/some/path"},
		"forwarded path twice":           {"/hook/some/path/some/path", "/some/path"},
		"forward URL's path twice":       {"/hook/hook/some/path", "/some/path"},
		"part of a name":                 {"/hooksome/path", "/some/path"},
		"another case":                   {"/HOOK/some/path", "/some/path"},
		"escaped slash":                  {"/hook%2Fsome/path", "/some/path"},
		"escaped slashes":                {"/hook%2fsome%2fpath", "/some/path"},
		"escape in the forward URL":      {"/h%6Fok/some/path", "/some/path"},
		"escape in one path only":        {"/hook/som%65/path", "/some/path"},
		"escape in the other only":       {"/hook/some/path", "/som%65/path"},
		"slash before":                   {"//hook/some/path", "/some/path"},
		"two slashes in between":         {"/hook///some/path", "/some/path"},
		"slash inside":                   {"/hook/some//path", "/some/path"},
		"climbing to it":                 {"/other/../hook/some/path", "/some/path"},
		"climbing away":                  {"/hook/../other/some/path", "/some/path"},
		"climbing with escapes":          {"/hook/%2e%2e/other/some/path", "/some/path"},
		"dot":                            {"/./hook/some/path", "/some/path"},
		"backslash":                      {`/hook\some/path`, "/some/path"},
		"another host in the path":       {"https://evil.example/hook/some/path", "/some/path"},
		"no path":                        {"*", "/some/path"},
		"authority form":                 {"proxy.example.com:443", "/some/path"},
		"forwarded path climbs":          {"/hook/../some/path", "/../some/path"},
		"forwarded path climbs, escaped": {"/hook/%2e%2e/x", "/%2e%2e/x"},
		"forwarded path climbs in parts": {"/hook/a/.%2E/x", "/a/.%2E/x"},
		"forwarded path climbs behind":   {"/hook/a%2f..%2fx", "/a%2f..%2fx"},
		"forwarded path with backslash":  {`/hook/a\..\x`, `/a\..\x`},
		"forwarded path climbs for some": {"/hook/a/..;x=1/b", "/a/..;x=1/b"},
		"forwarded path is a dot":        {"/hook/.", "/."},
		"forwarded path is a host":       {"/hook//evil.example/x", "//evil.example/x"},
		"forwarded path is a host too":   {"/hook/%2Fevil.example/x", "/%2Fevil.example/x"},
		"forwarded path hides a host":    {`/hook/\evil.example`, `/\evil.example`},
		"forwarded path is a URL":        {"/hook", "https://evil.example/"},
		"forwarded path is relative":     {"/hook", "some/path"},
		"forwarded path is a query":      {"/hook", "?x"},
		"forwarded path is userinfo":     {"/hook", "@evil.example/"},
		"forwarded path is a port":       {"/hook", ":80/"},
		"forwarded path has a fragment":  {"/hook", "/a#b"},
		"forwarded path has a space":     {"/hook", "/a b"},
		"forwarded path has a newline":   {"/hook", "/a\r\nX-Evil: 1"},
		"forwarded path has a tab":       {"/hook", "/a\tb"},
		"forwarded path has a NUL":       {"/hook", "/a\x00b"},
		"forwarded path half escaped":    {"/hook", "/a%2"},
	} {
		t.Run(name, func(t *testing.T) {
			r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
			r.RequestURI = c.received
			r.Header["Vercel-Forwarded-Path"] = []string{c.forwarded}
			assertRefused(t, serve(t, r, proxy.Options{}))
		})
	}
}

func TestForgedAddresses(t *testing.T) {
	for name, hosts := range map[string][]string{
		"host": {
			"api.example.com:443", "api.example.com:", ":443", "user@api.example.com", "user:pass@api.example.com", "@api.example.com",
			"api.example.com/path", "api.example.com/", "/", "api.example.com?x", "api.example.com#x", `api.example.com\x`,
			"https://api.example.com", "//api.example.com", "bad host", "api.example.com evil.example", "api.example.com,evil.example",
			"api.example.com%2fx", "api%2eexample.com", "api..example.com", ".example.com", ".", "..", "[::1", "::1", "[::1]:80", "[::1]x",
			"[fe80::1%25eth0]", "[fe80::1%eth0]", "[127.0.0.1]", "[]", "api.example.com\x00", "api.example.com\t", "аpi.example.com",
			"api.example.com\r\nX-Evil: 1", "*", "*.example.com", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 200) + "com",
		},
		"port": {
			"0", "65536", "-1", "+443", "443 ", " 443", "443a", "0x1bb", "4_4_3", "443,80", "not-a-port", "0443", "443/", "443@evil.example", "٤٤٣",
			"99999999999999999999", "443\t",
		},
		"scheme": {
			"1http", "ftp", "file", "javascript", "ws", "https:", "https://", "https://evil.example/?", "http,https", " https", "https ", "httpſ",
		},
	} {
		for _, value := range hosts {
			t.Run(name+" "+value, func(t *testing.T) {
				r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
				r.Header["Vercel-Forwarded-"+strings.ToUpper(name[:1])+name[1:]] = []string{value}
				o := serve(t, r, proxy.Options{})
				assertRefused(t, o)
				assert.ErrorIs(t, o.err, proxy.ErrInvalidURL)
				assert.Empty(t, o.request.Header, "the forwarding headers are gone")
			})
		}
	}
}

func TestForgedReceivingHost(t *testing.T) {
	for _, host := range []string{
		"", "evil.example", "proxy.example.com.evil.example", "proxy.example.com@evil.example", "user@proxy.example.com",
		"proxy.example.com:80", "proxy.example.com:0", "proxy.example.com:x", "proxy.example.com, evil.example",
		"proxy.example.com/hook", "proxy.example.com.", "proxy.example.com:443:443",
	} {
		t.Run(host, func(t *testing.T) {
			r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
			r.Host = host
			assertRefused(t, serve(t, r, proxy.Options{}))
		})
	}
	t.Run("not over TLS", func(t *testing.T) {
		r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
		r.TLS = nil
		assertRefused(t, serve(t, r, proxy.Options{}))
	})
}

// TestSmuggledHeaders: forwarding headers that other software could interpret differently are
// refused.
func TestSmuggledHeaders(t *testing.T) {
	for _, name := range []string{"Vercel-Forwarded-Host", "Vercel-Forwarded-Scheme", "Vercel-Forwarded-Port",
		"Vercel-Forwarded-Path", "Vercel-Sandbox-Oidc-Token"} {
		for kind, smuggle := range map[string]func(h http.Header, value string){
			"the same twice":   func(h http.Header, v string) { h[name] = []string{v, v} },
			"another first":    func(h http.Header, v string) { h[name] = []string{"evil", v} },
			"another last":     func(h http.Header, v string) { h[name] = []string{v, "evil"} },
			"an empty one":     func(h http.Header, v string) { h[name] = []string{"", v} },
			"joined":           func(h http.Header, v string) { h[name] = []string{v + ", " + v} },
			"lower case":       func(h http.Header, v string) { h[strings.ToLower(name)] = []string{v} },
			"only lower case":  func(h http.Header, v string) { delete(h, name); h[strings.ToLower(name)] = []string{v} },
			"upper case":       func(h http.Header, v string) { h[strings.ToUpper(name)] = []string{"evil"} },
			"underscores":      func(h http.Header, v string) { h[strings.ReplaceAll(name, "-", "_")] = []string{"evil"} },
			"space behind":     func(h http.Header, v string) { h[name+" "] = []string{"evil"} },
			"space before":     func(h http.Header, v string) { h[" "+name] = []string{"evil"} },
			"space in value":   func(h http.Header, v string) { h[name] = []string{" " + v} },
			"tab behind value": func(h http.Header, v string) { h[name] = []string{v + "\t"} },
			"newline in value": func(h http.Header, v string) { h[name] = []string{v + "\r\nX-Evil: 1"} },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
				smuggle(r.Header, r.Header.Get(name))
				o := serve(t, r, proxy.Options{})
				assertRefused(t, o)
			})
		}
	}
	t.Run("not ours", func(t *testing.T) {
		r := forwardedTo(t, forwardURL, "GET", "https://api.example.com/some/path", "")
		r.Header.Set("Vercel-Forwarded", "kept")
		r.Header.Set("X-Vercel-Forwarded-Host", "kept")
		o := serve(t, r, proxy.Options{})
		require.True(t, o.reached, o.log)
		assert.Len(t, o.request.Header, 2)
	})
}
