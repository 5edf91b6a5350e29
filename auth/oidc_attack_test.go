package auth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

// singleUse is a server whose refresh tokens work only once.
type singleUse struct {
	mu             sync.Mutex
	refreshes, bad int
}

func (s *singleUse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/openid-configuration"):
		fmt.Fprint(w, `{"token_endpoint":"https://api.vercel.com/login/oauth/token"}`)
	case r.FormValue("refresh_token") != fmt.Sprint("refresh_", s.refreshes):
		s.bad++
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
	default:
		s.refreshes++
		fmt.Fprintf(w, `{"access_token":"login_%d","token_type":"Bearer","expires_in":3600,"refresh_token":"refresh_%d"}`, s.refreshes, s.refreshes)
	}
}

// hostOn returns a host whose requests all go to one server.
func hostOn(t *testing.T, server http.Handler, getenv func(string) string) *oidc.Host {
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close)
	address, err := url.Parse(srv.URL)
	require.NoError(t, err)
	return oidc.NewHost(&http.Client{Transport: toServer{address}}, getenv, t.TempDir())
}

// TestOneLoginUnderTwoNames: a login folder and a symbolic link to it share one
// lock, so no refresh token is used twice.
func TestOneLoginUnderTwoNames(t *testing.T) {
	m := oidctest.NewMachine(t)
	dotfiles := filepath.Join(m.Home, "dotfiles")
	m.Write(filepath.Join(dotfiles, "auth.json"), map[string]any{"token": "login_0", "refreshToken": "refresh_0", "expiresAt": 1})
	require.NoError(t, os.MkdirAll(filepath.Dir(m.LoginFile()), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(dotfiles, "auth.json"), m.LoginFile()))
	server := &singleUse{}
	linked := hostOn(t, server, m.Getenv)
	direct := hostOn(t, server, func(key string) string {
		if key == "VERCEL_AUTH_CONFIG_DIR" {
			return dotfiles
		}
		return m.Getenv(key)
	})
	var all sync.WaitGroup
	for i := range 8 {
		h := linked
		if i%2 == 0 {
			h = direct
		}
		all.Go(func() {
			login, err := h.Login(t.Context(), 0, "login_0")
			assert.NoError(t, err)
			assert.Equal(t, "login_1", login.Token)
		})
	}
	all.Wait()
	assert.Equal(t, 1, server.refreshes)
	assert.Zero(t, server.bad)
}

// TestAddressesOfTheIssuer: the login is sent only to the issuer's hosts, over TLS and to the default
// port, whatever the issuer's metadata contains.
func TestAddressesOfTheIssuer(t *testing.T) {
	for _, address := range []string{
		"", "http://vercel.com/token", "http://api.vercel.com/token", "//vercel.com/token", "ftp://vercel.com/token", "https://vercel.com:8443/token",
		"https://evil.example/token", "https://evilvercel.com/token", "https://vercel.com.evil.example/token", "https://vercel.com@evil.example/token",
		"https://evil.example/https://vercel.com/token", "https://evil.example#.vercel.com", "https://evil.example\\.vercel.com/",
	} {
		m := oidctest.NewMachine(t)
		m.Write(m.LoginFile(), map[string]any{"token": "old", "refreshToken": "refresh_0", "expiresAt": 1})
		sent := 0
		h := hostOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/openid-configuration") {
				sent++
			}
			w.Header().Set("Content-Type", "application/json")
			assert.NoError(t, json.NewEncoder(w).Encode(map[string]string{"token_endpoint": address}))
		}), m.Getenv)
		_, err := h.Login(t.Context(), 0, "")
		assert.ErrorContains(t, err, "no usable token_endpoint", address)
		assert.Zero(t, sent, address)
	}
}

// TestRefusedTokenIsSentOnce: processes that wait for the lock do not resend a refused token.
func TestRefusedTokenIsSentOnce(t *testing.T) {
	m := oidctest.NewMachine(t)
	m.Write(m.LoginFile(), map[string]any{"token": "old", "refreshToken": "spent", "expiresAt": 1})
	server := &singleUse{}
	for range 5 {
		_, err := hostOn(t, server, m.Getenv).Login(t.Context(), 0, "")
		assert.ErrorIs(t, err, oidc.ErrRunOut)
	}
	assert.Equal(t, 1, server.bad)
	// A new login has a new token.
	m.Write(m.LoginFile(), map[string]any{"token": "old", "refreshToken": "refresh_0", "expiresAt": 1})
	_, err := hostOn(t, server, m.Getenv).Login(t.Context(), 0, "")
	assert.NoError(t, err)
	lock, err := os.ReadFile(m.LoginFile() + ".lock")
	require.NoError(t, err)
	assert.NotContains(t, string(lock), "spent")
}

// TestLeftoversAreSwept: temporary files of killed processes, which contain secrets, are removed.
func TestLeftoversAreSwept(t *testing.T) {
	m := oidctest.NewMachine(t)
	m.Write(m.LoginFile(), map[string]any{"token": "old", "refreshToken": "refresh_0", "expiresAt": 1})
	old, fresh := filepath.Join(filepath.Dir(m.LoginFile()), ".auth.json.123"), filepath.Join(filepath.Dir(m.LoginFile()), ".auth.json.456")
	for _, name := range []string{old, fresh} {
		require.NoError(t, os.WriteFile(name, []byte(`{"token":"left"}`), 0o600))
	}
	require.NoError(t, os.Chtimes(old, time.Now(), time.Now().Add(-2*time.Hour)))
	_, err := hostOn(t, &singleUse{}, m.Getenv).Login(t.Context(), 0, "")
	require.NoError(t, err)
	assert.NoFileExists(t, old)
	assert.FileExists(t, fresh, "another process may be writing it")
}

// TestEchoesOfTheAuthorizationServer: no error contains a secret that was sent.
func TestEchoesOfTheAuthorizationServer(t *testing.T) {
	const secret = "SECRET-REFRESH"
	for name, resp := range map[string]oidctest.Response{
		"a redirect":              {Status: 307, Header: http.Header{"Location": {"https://evil.example/" + secret}}, Body: "x"},
		"the body":                {Status: 400, Body: "you sent refresh_token=" + secret},
		"the description":         {Status: 400, Body: map[string]string{"error": "invalid_request", "error_description": "bad token " + secret}},
		"the code":                {Status: 400, Body: map[string]string{"error": secret}},
		"a success":               {Status: 200, Body: secret},
		"no token":                {Status: 200, Body: map[string]string{"refresh_token": "SECRET-NEW"}},
		"a token of another type": {Status: 200, Body: map[string]any{"access_token": "SECRET-NEW", "token_type": "mac"}},
		"controls":                {Status: 400, Body: map[string]string{"error": "x", "error_description": "\x1b]52;c;Y\a\u009b31m\nINFO fine"}},
	} {
		m := oidctest.NewMachine(t)
		m.Write(m.LoginFile(), map[string]any{"token": "old", "refreshToken": secret, "expiresAt": 1})
		var v oidctest.Vercel
		v.Discover()
		v.Say("POST api.vercel.com/login/oauth/token", resp)
		_, err := oidc.NewHost(v.Client(), m.Getenv, m.Dir).Login(t.Context(), 0, "")
		require.Error(t, err, name)
		for e := err; e != nil; e = errors.Unwrap(e) {
			text := fmt.Sprintf("%v %+v %#v", e, e, e)
			assert.NotContains(t, text, "SECRET", name)
			assert.NotContains(t, text, "\x1b", name)
			assert.NotContains(t, text, "\u009b", name)
		}
	}
	m := oidctest.NewMachine(t)
	m.Write(m.LoginFile(), map[string]any{"token": "SECRET-LOGIN", "expiresAt": time.Now().Add(time.Hour).Unix()})
	var v oidctest.Vercel
	v.Say("POST api.vercel.com/v1/projects/p/token", oidctest.Response{Status: 403, Body: map[string]any{
		"error": map[string]string{"code": "forbidden", "message": "SECRET-LOGIN is not valid"}}})
	_, err := oidc.NewHost(v.Client(), m.Getenv, m.Dir).ProjectToken(t.Context(), oidc.Scope{ProjectID: "p"}, 0, "")
	assert.ErrorContains(t, err, "is not valid")
	assert.NotContains(t, err.Error(), "SECRET")
}

// TestRefreshedLogin: the result of a refresh is stored as far as it can be decoded, because the used
// refresh token no longer works.
func TestRefreshedLogin(t *testing.T) {
	for name, c := range map[string]struct {
		body  any
		again string // the refresh token that is stored
		lasts time.Duration
	}{
		"all":             {map[string]any{"access_token": "new", "token_type": "bearer", "refresh_token": "next", "expires_in": 3600}, "next", time.Hour},
		"a text":          {map[string]any{"access_token": "new", "expires_in": "3600"}, "sent", time.Hour},
		"no end":          {map[string]any{"access_token": "new", "token_type": "Bearer"}, "sent", 0},
		"strange numbers": {map[string]any{"access_token": "new", "refresh_token": "next", "expires_in": []int{1}}, "next", 0},
	} {
		m := oidctest.NewMachine(t)
		m.Write(m.LoginFile(), map[string]any{"token": "old", "refreshToken": "sent", "expiresAt": 1})
		var v oidctest.Vercel
		v.Discover()
		v.Say("POST api.vercel.com/login/oauth/token", oidctest.Response{Status: 200, Body: c.body})
		before := time.Now()
		login, err := oidc.NewHost(v.Client(), m.Getenv, m.Dir).Login(t.Context(), 0, "")
		require.NoError(t, err, name)
		assert.Equal(t, "new", login.Token, name)
		assert.Equal(t, c.again, login.RefreshToken, name)
		if c.lasts == 0 {
			assert.Zero(t, login.Expiry, name)
		} else {
			assert.WithinRange(t, login.Expiry, before.Add(c.lasts).Truncate(time.Second), time.Now().Add(c.lasts), name)
		}
		assert.Equal(t, c.again, m.Read(m.LoginFile())["refreshToken"], name)
	}
}
