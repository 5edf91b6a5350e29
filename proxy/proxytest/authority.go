// Package proxytest helps to test handlers for a forward URL without network
// and without an account.
//
// An [Authority] stands in for the platform's token service: it signs tokens,
// and its Client provides [proxy.Handler] with the keys to verify them. A
// [Firewall] stands in for the sandbox's firewall: it is a
// [net/http.RoundTripper] that sends a sandbox's requests to a forward URL like
// the platform does.
//
//	authority, err := proxytest.NewAuthority()
//	...
//	handler := proxy.Handler(next, &proxy.Options{HTTPClient: authority.Client()})
//	server := httptest.NewServer(handler)
//	sandbox := &http.Client{Transport: &proxytest.Firewall{
//		Authority:  authority,
//		ForwardURL: server.URL + "/hook",
//	}}
//	resp, err := sandbox.Get("https://api.example.com/v1/things")
package proxytest

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Default issuer and sandbox of tokens.
const (
	DefaultIssuer      = "https://oidc.vercel.com/team-test"
	DefaultTeamID      = "team_test"
	DefaultProjectID   = "prj_test"
	DefaultSandboxID   = "sbx_test"
	DefaultSandboxName = "sandbox-test"
)

// Claims are the claims of a token. If Issuer, TeamID, ProjectID, SandboxID or
// SandboxName is empty, the default of this package is used; to omit a claim,
// use [Authority.Sign].
type Claims struct {
	Issuer string
	// Audience is the forward URL as written in the policy, including a
	// trailing slash if it has one.
	Audience    string
	TeamID      string
	ProjectID   string
	SandboxID   string
	SandboxName string
	// Expiry is when the token expires. The zero value means in five minutes.
	Expiry time.Time
}

// Authority signs tokens, and serves the keys to verify them. It is safe for
// concurrent use.
type Authority struct {
	mu     sync.Mutex
	key    *rsa.PrivateKey
	serial int
}

// NewAuthority returns an authority with a new 2048-bit key. Generating it
// takes about a tenth of a second: tests should share one.
func NewAuthority() (*Authority, error) {
	a := &Authority{}
	if err := a.Rotate(); err != nil {
		return nil, err
	}
	return a, nil
}

// Rotate replaces the key with a new one that has another ID. Tokens signed
// before are no longer valid for a handler that has not fetched the old key
// yet.
func (a *Authority) Rotate() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("proxytest: making a key: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.key = key
	a.serial++
	return nil
}

// Key returns the current key and its ID, for tests that sign tokens
// themselves.
func (a *Authority) Key() (id string, key *rsa.PrivateKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return "key-" + strconv.Itoa(a.serial), a.key
}

// Token signs a token.
func (a *Authority) Token(c Claims) (string, error) {
	if c.Expiry.IsZero() {
		c.Expiry = time.Now().Add(5 * time.Minute)
	}
	or := func(v, otherwise string) string {
		if v == "" {
			return otherwise
		}
		return v
	}
	return a.Sign(map[string]any{
		"iss":          or(c.Issuer, DefaultIssuer),
		"aud":          c.Audience,
		"iat":          time.Now().Unix(),
		"exp":          c.Expiry.Unix(),
		"team_id":      or(c.TeamID, DefaultTeamID),
		"project_id":   or(c.ProjectID, DefaultProjectID),
		"sandbox_id":   or(c.SandboxID, DefaultSandboxID),
		"sandbox_name": or(c.SandboxName, DefaultSandboxName),
	})
}

// Sign signs arbitrary claims, so that a test may omit some or make them
// invalid.
func (a *Authority) Sign(claims map[string]any) (string, error) {
	id, key := a.Key()
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("proxytest: claims: %w", err)
	}
	header, err := json.Marshal(map[string]string{"alg": "RS256", "kid": id, "typ": "JWT"})
	if err != nil {
		return "", fmt.Errorf("proxytest: header: %w", err)
	}
	signed := encode(header) + "." + encode(payload)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("proxytest: signing: %w", err)
	}
	return signed + "." + encode(signature), nil
}

// encode returns b in base64url, as used in tokens and keys. This package does not
// use the library that verifies them: it is large for programs that only sign, and
// this way the two implementations check each other.
func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Client returns a client for [proxy.Options.HTTPClient]. It responds to
// requests for the keys of any issuer at oidc.vercel.com with the current key,
// from memory, and fails for everything else.
func (a *Authority) Client() *http.Client {
	return &http.Client{Transport: roundTripper(a.serveKeys)}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (a *Authority) serveKeys(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet || r.URL.Scheme != "https" || r.URL.Host != "oidc.vercel.com" ||
		!strings.HasSuffix(r.URL.Path, "/.well-known/jwks") {
		return nil, fmt.Errorf("proxytest: unexpected request %s %s", r.Method, r.URL.Redacted())
	}
	id, key := a.Key()
	body, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": id,
		"n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
	}}})
	if err != nil {
		return nil, fmt.Errorf("proxytest: keys: %w", err)
	}
	return &http.Response{
		Status:        "200 OK",
		StatusCode:    http.StatusOK,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       r,
	}, nil
}
