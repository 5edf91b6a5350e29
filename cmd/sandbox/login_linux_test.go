package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

// loginWorkspace returns a workspace without a login. Its requests to vercel.com reach a
// fake server, through a proxy, over TLS with a certificate that the program trusts by
// SSL_CERT_FILE.
func loginWorkspace(t *testing.T) (*workspace, *oidctest.Vercel) {
	t.Helper()
	d := newWorkspace(t, nil)
	d.unset("VERCEL_AUTH_TOKEN")
	require.NoError(t, os.RemoveAll(filepath.Join(d.dir, ".vercel")))
	v := new(oidctest.Vercel)
	v.Say("GET vercel.com/.well-known/openid-configuration", map[string]string{
		"issuer":                        "https://vercel.com",
		"device_authorization_endpoint": "https://api.vercel.com/login/oauth/device-authorization",
		"token_endpoint":                "https://api.vercel.com/login/oauth/token",
		"revocation_endpoint":           "https://api.vercel.com/login/oauth/token/revoke",
	})
	v.Say("POST api.vercel.com/login/oauth/token/revoke", map[string]any{})
	v.Say("POST api.vercel.com/login/oauth/device-authorization", map[string]any{
		"device_code": "the-device", "user_code": "ABCD-EFGH", "expires_in": 600, "interval": 1,
		"verification_uri": "https://vercel.com/oauth/device", "verification_uri_complete": "https://vercel.com/oauth/device?user_code=ABCD-EFGH",
	})
	v.Say("GET vercel.com/api/v2/user", map[string]any{"user": map[string]string{"defaultTeamId": "team_emulator", "username": "me"}})
	v.Say("GET vercel.com/api/v2/teams/team_emulator", map[string]string{"slug": "my-team"})
	v.Say("GET vercel.com/api/v2/projects/vercel-sandbox-default-project", map[string]string{"name": "default"})

	certificate := vercelCertificate(t, filepath.Join(t.TempDir(), "ca.pem"), d)
	platform := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "https", Host: r.In.Host, Path: r.In.URL.Path, RawQuery: r.In.URL.RawQuery}
		},
		Transport: v,
	})
	platform.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	platform.StartTLS()
	t.Cleanup(platform.Close)
	proxy := httptest.NewServer(connectTo(platform.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	d.env = append(d.env, "HTTPS_PROXY="+proxy.URL)
	return d, v
}

// connectTo is a proxy that forwards every connection to one address.
func connectTo(address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		there, err := net.Dial("tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		w.WriteHeader(http.StatusOK)
		here, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		go func() {
			_, _ = io.Copy(there, buffered) // either end may close the connection
			there.Close()
		}()
		_, _ = io.Copy(here, there)
	})
}

// vercelCertificate creates a certificate for Vercel's names, which the programs of the
// workspace trust.
func vercelCertificate(t *testing.T, file string, d *workspace) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sandbox test"}, DNSNames: []string{"vercel.com", "api.vercel.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	d.env = append(d.env, "SSL_CERT_FILE="+file)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// pending is the response to a poll until the login is granted.
var pending = oidctest.Response{Status: 400, Body: map[string]string{"error": "authorization_pending"}}

// grant makes the login succeed at the second poll. The token is the emulator's, so that
// the login can be used there.
func grant(d *workspace, v *oidctest.Vercel) {
	v.Say("POST api.vercel.com/login/oauth/token", pending,
		map[string]any{"access_token": d.server.Credentials().Token, "token_type": "Bearer", "expires_in": 28800, "refresh_token": "the-refresh"})
}

func (d *workspace) loginFile() map[string]any {
	d.t.Helper()
	file := filepath.Join(d.home, ".local", "share", "com.vercel.cli", "auth.json")
	data, err := os.ReadFile(file)
	require.NoError(d.t, err)
	info, err := os.Stat(file)
	require.NoError(d.t, err)
	assert.Equal(d.t, os.FileMode(0o600), info.Mode().Perm(), "a login is for its owner only")
	var content map[string]any
	require.NoError(d.t, json.Unmarshal(data, &content))
	return content
}

// TestLogin logs in without a terminal, uses the login, and logs out.
func TestLogin(t *testing.T) {
	t.Parallel()
	d, v := loginWorkspace(t)
	grant(d, v)
	got := d.run("", "login")
	require.Zero(t, got.code, got.stderr)
	assert.Empty(t, got.stdout)
	for _, text := range []string{"https://vercel.com/oauth/device?user_code=ABCD-EFGH", "ABCD-EFGH", "You are logged in", "my-team", "vercel-sandbox-default-project"} {
		assert.Contains(t, got.stderr, text)
	}
	assert.NotContains(t, got.stderr, "ENTER", "nobody is at a terminal")
	assert.NotContains(t, got.stderr, d.server.Credentials().Token)
	assert.Equal(t, d.server.Credentials().Token, d.loginFile()["token"])
	assert.Equal(t, "the-refresh", d.loginFile()["refreshToken"])

	// A login is not sent to an address from the environment, only to one from the command
	// line.
	d.seen()
	for _, argv := range [][]string{{"ls"}, {"exec", "mine", "ls"}} {
		got = d.run("", append(argv, "--project", "prj_emulator")...)
		assert.Equal(t, 4, got.code, got.stderr)
		assert.Contains(t, got.stderr, "the login of the Vercel CLI is not sent to "+d.server.URL)
		assert.Contains(t, got.stderr, "--api-url")
	}
	assert.Empty(t, d.seen())
	d.ok("create", "--name", "mine", "--project", "prj_emulator", "--api-url", d.server.URL)
	assert.Contains(t, d.ok("whoami", "--api-url", d.server.URL), "the login of the Vercel CLI")

	got = d.run(d.server.Credentials().Token, "login", "--token", "-", "--json")
	var doc any
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &doc), got.stdout+got.stderr)
	assert.Equal(t, map[string]any{"team": "my-team", "project": "vercel-sandbox-default-project"}, doc)
	grant(d, v)
	require.Zero(t, d.run("", "login").code)

	assert.Equal(t, "Logged out!\n", d.ok("logout"))
	assert.NotContains(t, d.loginFile(), "token")
	asked := v.Requests()
	assert.Equal(t, "the-refresh", asked[len(asked)-1].Form.Get("token"))
	got = d.run("", "ls")
	assert.Equal(t, 4, got.code, got.stderr)
}

// TestTokenOfAnotherService: a token for an address other than Vercel's is not sent to
// Vercel, neither to get the name of the linked project nor to find a project. The requests
// go to the service at that address, and commands that only read create nothing there.
func TestTokenOfAnotherService(t *testing.T) {
	t.Parallel()
	d, v := loginWorkspace(t)
	d.env = append(d.env, "VERCEL_AUTH_TOKEN="+d.server.Credentials().Token)
	got := d.run("", "doctor")
	assert.Contains(t, got.stdout+got.stderr, "no vercel-sandbox-default-project")
	for _, r := range d.server.Requests() {
		assert.NotEqual(t, http.MethodPost, r.Method, r.Path)
	}
	d.ok("ls")
	assert.Contains(t, d.ok("whoami"), "vercel-sandbox-default-project")
	d.seen()
	d.write(".vercel/project.json", `{"orgId":"team_emulator","projectId":"prj_emulator"}`)
	d.ok("ls")
	d.ok("ls", "--project", "prj_emulator")
	d.ok("ls", "--scope", "team_emulator")
	assert.Len(t, d.seen(), 3, "one request each")
	assert.Empty(t, v.Requests())
}

// TestLoneToken: VERCEL_TOKEN, which other tools read, is used with the linked project,
// as in package auth, and is ignored otherwise.
func TestLoneToken(t *testing.T) {
	t.Parallel()
	d, v := loginWorkspace(t)
	d.env = append(d.env, "VERCEL_TOKEN="+d.server.Credentials().Token)
	got := d.run("", "ls")
	assert.Equal(t, 4, got.code, got.stderr)
	d.write(".vercel/project.json", `{"orgId":"team_emulator","projectId":"prj_emulator"}`)
	assert.Contains(t, d.ok("whoami"), "VERCEL_TOKEN")
	d.ok("ls")
	assert.Empty(t, v.Requests())
}

// TestLoginRefused: a refused login leaves nothing.
func TestLoginRefused(t *testing.T) {
	t.Parallel()
	d, v := loginWorkspace(t)
	v.Say("POST api.vercel.com/login/oauth/token", oidctest.Response{Status: 400, Body: map[string]string{"error": "access_denied", "error_description": "not today"}})
	got := d.run("", "login")
	assert.Equal(t, 4, got.code)
	assert.Contains(t, got.stderr, "not today")
	assert.NoFileExists(t, filepath.Join(d.home, ".local", "share", "com.vercel.cli", "auth.json"))
}

// TestLoginAtTerminal opens the page in the browser when ENTER is pressed. login --token
// - stores a token without a question.
func TestLoginAtTerminal(t *testing.T) {
	t.Parallel()
	d, v := loginWorkspace(t)
	v.Say("POST api.vercel.com/login/oauth/token", pending)
	opened := d.browser()
	s := d.inTerminal("login")
	s.until("Press ENTER")
	s.press("\r")
	assert.Equal(t, "https://vercel.com/oauth/device?user_code=ABCD-EFGH", opened())
	grant(d, v)
	s.until("You are logged in")
	assert.Equal(t, 0, s.ended())

	before := len(v.Requests())
	got := d.run("a-token\n", "login", "--token", "-", "--scope", "team_emulator")
	require.Zero(t, got.code, got.stderr)
	assert.Equal(t, "a-token", d.loginFile()["token"])
	for _, r := range v.Requests()[before:] {
		assert.False(t, strings.Contains(r.Path, "oauth"), r.Path)
	}
}
