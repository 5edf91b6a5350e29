package auth_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

// TestTokensAndAddresses combines every source of a token with every source of the API's address. A
// token is sent only to an address that it was given for.
func TestTokensAndAddresses(t *testing.T) {
	const (
		vercel  = "vercel.com"
		issuer  = "api.vercel.com" // it exchanges the login for a project's token
		another = "api.example"
	)
	addresses := []struct {
		name, option, variable string
		host                   string // of the API
		onlyEnv                bool   // whether only the environment names the address, and it is not Vercel's
	}{
		{name: "default", host: vercel},
		{name: "option", option: "https://" + another, host: another},
		{name: "variable", variable: "https://" + another, host: another, onlyEnv: true},
		{name: "variable that looks like Vercel", variable: "https://vercel.com.example/api", host: "vercel.com.example", onlyEnv: true},
		{name: "variable at Vercel", variable: "https://eu.vercel.com/api", host: "eu.vercel.com"},
		{name: "option over variable", option: "https://" + another, variable: "https://other.example", host: another},
		{name: "option of Vercel over variable", option: "https://vercel.com/api", variable: "https://other.example", host: vercel},
	}
	scope := map[string]string{"VERCEL_TEAM_ID": "team_a", "VERCEL_PROJECT_ID": "prj_a"}
	with := func(vars map[string]string, key, value string) map[string]string {
		all := maps.Clone(vars)
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		return all
	}
	// All tokens except access tokens contain their project.
	given, minted := oidctest.Token("team_a", "prj_a", 0), oidctest.Token("team_a", "prj_a", 0)
	const access, cliLogin = "access-token", "login-token"
	sources := []struct {
		name   string
		creds  func(*auth.Options) auth.Provider // nil for those of the environment
		env    map[string]string
		file   string // the content of VERCEL_OIDC_TOKEN_FILE
		link   bool
		login  bool   // the CLI's login is on this machine
		stored bool   // and a project's token that was obtained with it
		token  string // the token that goes to the API
		from   bool   // whether that is the CLI's login, or was obtained with it
	}{
		{name: "Static", creds: func(*auth.Options) auth.Provider {
			return auth.Static(auth.Credentials{Token: access, TeamID: "team_a", ProjectID: "prj_a"})
		}, login: true, token: access},
		{name: "Token", creds: func(o *auth.Options) auth.Provider { return auth.Token(given, o) }, login: true, token: given},
		{name: "Token whose project is searched", creds: func(o *auth.Options) auth.Provider { return auth.Token(access, o) }, login: true, token: access},
		{name: "VERCEL_AUTH_TOKEN", env: with(scope, "VERCEL_AUTH_TOKEN", access), login: true, token: access},
		{name: "VERCEL_AUTH_TOKEN whose project is searched", env: with(nil, "VERCEL_AUTH_TOKEN", access), login: true, token: access},
		{name: "VERCEL_AUTH_TOKEN and VERCEL_TOKEN", env: with(with(scope, "VERCEL_AUTH_TOKEN", access), "VERCEL_TOKEN", given), token: access},
		{name: "VERCEL_TOKEN", env: with(scope, "VERCEL_TOKEN", access), login: true, token: access},
		{name: "VERCEL_TOKEN in a linked folder", env: with(nil, "VERCEL_TOKEN", access), link: true, login: true, token: access},
		{name: "VERCEL_OIDC_TOKEN", env: with(nil, "VERCEL_OIDC_TOKEN", given), link: true, login: true, token: given},
		{name: "VERCEL_OIDC_TOKEN_FILE", file: given, link: true, login: true, token: given},
		{name: "linked folder and login", link: true, login: true, token: minted, from: true},
		{name: "linked folder and stored token", link: true, stored: true, token: minted, from: true},
		{name: "expired VERCEL_OIDC_TOKEN and login", env: with(nil, "VERCEL_OIDC_TOKEN", oidctest.Token("team_a", "prj_a", -time.Hour)), login: true, token: minted, from: true},
		{name: "CLI", creds: func(o *auth.Options) auth.Provider { return auth.CLI(o) }, login: true, token: cliLogin, from: true},
		{name: "CLI in a Chain in a Cache", creds: func(o *auth.Options) auth.Provider { return auth.Cache(auth.Chain(auth.CLI(o)), 0) }, login: true, token: cliLogin, from: true},
		{name: "Default at a terminal", creds: func(o *auth.Options) auth.Provider {
			o.Interactive = new(true)
			return auth.Default(o)
		}, login: true, token: cliLogin, from: true},
	}
	for _, address := range addresses {
		for _, source := range sources {
			t.Run(source.name+" to "+address.name, func(t *testing.T) {
				m := onMachine(t)
				t.Setenv("VERCEL_SANDBOX_BASE_URL", address.variable)
				for key, value := range source.env {
					t.Setenv(key, value)
				}
				if source.file != "" {
					m.Write(m.Home+"/oidc", source.file)
					t.Setenv("VERCEL_OIDC_TOKEN_FILE", m.Home+"/oidc")
				}
				if source.link {
					m.Link("team_a", "prj_a")
				}
				if source.login {
					m.Write(m.LoginFile(), map[string]any{"token": cliLogin})
				}
				if source.stored {
					m.Write(m.TokenFile("prj_a"), map[string]string{"token": minted})
				}
				net := &tokenRecorder{minted: minted}
				o := &sandbox.ClientOptions{BaseURL: address.option, HTTPClient: &http.Client{Transport: net}, MaxRetries: -1}
				if source.creds != nil {
					o.Credentials = source.creds(&auth.Options{HTTPClient: o.HTTPClient, BaseURL: address.option})
				}
				c, err := sandbox.NewClient(o)
				require.NoError(t, err)
				err = list(t, c)

				allowed := []string{address.host}
				if refused := source.from && address.onlyEnv; refused {
					allowed = nil
					assert.ErrorContains(t, err, "the login of the Vercel CLI is not sent to "+address.host+", which VERCEL_SANDBOX_BASE_URL names")
				} else {
					require.NoError(t, err)
					assert.Contains(t, net.of(source.token), address.host)
				}
				if source.token == cliLogin {
					allowed = append(allowed, vercel) // its project is searched there
				} else {
					assert.Subset(t, []string{issuer}, net.of(cliLogin))
				}
				assert.Subset(t, allowed, net.of(source.token))
				assert.Subset(t, []string{source.token, cliLogin}, net.tokens())
			})
		}
	}
	// A token that the API refuses because it has expired is replaced with the login.
	for _, address := range addresses {
		t.Run("refresh to "+address.name, func(t *testing.T) {
			m := onMachine(t)
			t.Setenv("VERCEL_SANDBOX_BASE_URL", address.variable)
			m.Write(m.LoginFile(), map[string]any{"token": cliLogin})
			synctest.Test(t, func(t *testing.T) {
				old := oidctest.Token("team_a", "prj_a", 10*time.Minute)
				t.Setenv("VERCEL_OIDC_TOKEN", old)
				net := &tokenRecorder{minted: oidctest.Token("team_a", "prj_a", 2*time.Hour), expires: old}
				c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: address.option, HTTPClient: &http.Client{Transport: net}, MaxRetries: -1})
				require.NoError(t, err)
				err = list(t, c)
				assert.Equal(t, []string{address.host}, net.of(old))
				assert.Equal(t, []string{issuer}, net.of(cliLogin))
				if address.onlyEnv {
					require.ErrorIs(t, err, sandbox.ErrUnauthorized)
					assert.Empty(t, net.of(net.minted))
					return
				}
				require.NoError(t, err)
				assert.Equal(t, []string{address.host}, net.of(net.minted))
			})
		})
	}
}

// onMachine makes this process look like one on a machine without credentials.
func onMachine(t *testing.T) *oidctest.Machine {
	t.Helper()
	m := oidctest.NewMachine(t)
	t.Chdir(m.Dir)
	for _, key := range []string{
		"VERCEL_AUTH_TOKEN", "VERCEL_TOKEN", "VERCEL_TEAM_ID", "VERCEL_PROJECT_ID", "VERCEL_OIDC_TOKEN", "VERCEL_OIDC_TOKEN_FILE", "VERCEL_SANDBOX_BASE_URL",
		"HOME", "XDG_DATA_HOME",
	} {
		t.Setenv(key, m.Getenv(key))
	}
	return m
}

// tokenRecorder is a server for all hosts that records which token each host received.
type tokenRecorder struct {
	minted  string // the token that the server returns for the login
	expires string // a token that the API refuses 15 minutes after receiving it

	mu   sync.Mutex
	sent map[string][]string // hosts by token
}

func (p *tokenRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
	p.mu.Lock()
	if p.sent == nil {
		p.sent = map[string][]string{}
	}
	if !slices.Contains(p.sent[token], req.URL.Host) {
		p.sent[token] = append(p.sent[token], req.URL.Host)
	}
	p.mu.Unlock()
	status, body := http.StatusOK, "{}"
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, "/v2/user"):
		body = `{"user":{"defaultTeamId":"team_a","username":"u"}}`
	case strings.HasSuffix(path, "/token"):
		body = `{"token":"` + p.minted + `"}`
	case token != "" && token == p.expires:
		time.Sleep(15 * time.Minute)
		status, body = http.StatusUnauthorized, forbiddenError
	case strings.HasSuffix(path, "/sandboxes"):
		body = emptyListing
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: req, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// of returns the hosts that received a token.
func (p *tokenRecorder) of(token string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[token]
}

// tokens returns the tokens that any host received.
func (p *tokenRecorder) tokens() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.sent))
}
