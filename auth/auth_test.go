package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

func TestStatic(t *testing.T) {
	// What is given explicitly overrides the token's claims, including its expiry.
	token := oidctest.Token("team_claim", "prj_claim", -time.Hour)
	given := auth.Credentials{Token: token, TeamID: "team_param", ProjectID: "prj_param"}
	t.Setenv("VERCEL_OIDC_TOKEN", oidctest.Token("team_env", "prj_env", time.Hour))
	t.Setenv("VERCEL_TOKEN", "other")
	got, err := auth.Static(given).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, given, got)

	for missing, c := range map[string]auth.Credentials{
		"Token, TeamID, ProjectID": {},
		"TeamID, ProjectID":        {Token: "t"},
		"Token, ProjectID":         {TeamID: "t"},
		"Token":                    {TeamID: "t", ProjectID: "p"},
	} {
		_, err := auth.Static(c).Credentials(t.Context())
		var missingErr *auth.MissingError
		require.ErrorAs(t, err, &missingErr)
		assert.EqualError(t, err, "sandbox: incomplete credentials: missing "+missing)
		assert.NotErrorIs(t, err, auth.ErrNoCredentials)
	}
	for field, c := range map[string]auth.Credentials{
		"Token":     {Token: "secret\ntext", TeamID: "t", ProjectID: "p"},
		"TeamID":    {Token: "t", TeamID: "a b", ProjectID: "p"},
		"ProjectID": {Token: "t", TeamID: "t", ProjectID: "é"},
	} {
		_, err := auth.Static(c).Credentials(t.Context())
		require.ErrorContains(t, err, field+" may only contain printable ASCII")
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestEnv(t *testing.T) {
	for _, test := range []struct{ token, team, project, missing string }{
		{"t", "x", "p", ""},
		{"t", "", "", "VERCEL_TEAM_ID, VERCEL_PROJECT_ID"},
		{"t", "x", "", "VERCEL_PROJECT_ID"},
		{"t", "", "p", "VERCEL_TEAM_ID"},
		{"", "x", "p", "VERCEL_TOKEN"},
	} {
		t.Setenv("VERCEL_TOKEN", test.token)
		t.Setenv("VERCEL_TEAM_ID", test.team)
		t.Setenv("VERCEL_PROJECT_ID", test.project)
		got, err := auth.Env().Credentials(t.Context())
		if test.missing == "" {
			require.NoError(t, err)
			assert.Equal(t, auth.Credentials{Token: "t", TeamID: "x", ProjectID: "p"}, got)
			continue
		}
		assert.EqualError(t, err, "sandbox: incomplete credentials: missing "+test.missing)
	}
	t.Setenv("VERCEL_TEAM_ID", "x")
	t.Setenv("VERCEL_PROJECT_ID", "p")
	t.Setenv("VERCEL_TOKEN", "another tool's")
	t.Setenv("VERCEL_AUTH_TOKEN", "a")
	got, err := auth.Env().Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, auth.Credentials{Token: "a", TeamID: "x", ProjectID: "p"}, got)
	t.Setenv("VERCEL_TEAM_ID", "")
	_, err = auth.Env().Credentials(t.Context())
	assert.EqualError(t, err, "sandbox: incomplete credentials: missing VERCEL_TEAM_ID, VERCEL_PROJECT_ID")
	t.Setenv("VERCEL_AUTH_TOKEN", "")
	t.Setenv("VERCEL_TOKEN", "")
	_, err = auth.Env().Credentials(t.Context())
	assert.ErrorIs(t, err, auth.ErrNoCredentials, "VERCEL_PROJECT_ID alone does not count, because the platform always sets it")
}

func TestDefaultOrder(t *testing.T) {
	m, v, opts := setup(t)
	linked := oidctest.Token("team_linked", "prj_linked", time.Hour)
	env := oidctest.Token("team_env", "prj_env", time.Hour)
	request := oidctest.Token("team_req", "prj_req", time.Hour)
	v.Say(exchangeLinked, map[string]string{"token": linked})
	m.Link("team_linked", "prj_linked")
	m.Write(m.LoginFile(), login())
	p := auth.Default(opts)
	team := func(ctx context.Context) string {
		t.Helper()
		got, err := p.Credentials(ctx)
		require.NoError(t, err)
		return got.TeamID
	}
	requestContext := auth.ContextWithToken(t.Context(), request)

	assert.Equal(t, "team_linked", team(t.Context()))
	m.Set("VERCEL_OIDC_TOKEN", env)
	assert.Equal(t, "team_env", team(t.Context()))
	assert.Equal(t, "team_req", team(requestContext))
	assert.Equal(t, "team_env", team(auth.ContextWithToken(requestContext, "")))
	assert.Equal(t, "team_env", team(auth.ContextWithToken(t.Context(), oidctest.Token("team_old", "prj_old", -time.Second))),
		"an expired token of a request counts as none")
	m.Set("VERCEL_TOKEN", "t")
	m.Set("VERCEL_TEAM_ID", "team_x")
	m.Set("VERCEL_PROJECT_ID", "prj_x")
	assert.Equal(t, "team_x", team(requestContext))
	m.Set("VERCEL_TEAM_ID", "")
	assert.Equal(t, "team_env", team(t.Context()), "VERCEL_TOKEN and VERCEL_PROJECT_ID are set for the CLI")
	m.Set("VERCEL_TEAM_ID", "team_x")
	m.Set("VERCEL_PROJECT_ID", "")
	_, err := p.Credentials(requestContext)
	assert.EqualError(t, err, "sandbox: incomplete credentials: missing VERCEL_PROJECT_ID; the project linked to this folder or a parent is one of team team_linked",
		"what the user has set is not silently left aside")
	m.Set("VERCEL_TEAM_ID", "team_linked")
	assert.Equal(t, "team_linked", team(requestContext))
	m.Set("VERCEL_TEAM_ID", "")
	assert.Equal(t, "team_req", team(requestContext))
	m.Set("VERCEL_OIDC_TOKEN", "")
	assert.Equal(t, "team_linked", team(t.Context()))
	asked := len(v.Asked())
	m.Set("VERCEL_AUTH_TOKEN", "a")
	for _, ctx := range []context.Context{t.Context(), requestContext} {
		got, err := p.Credentials(ctx)
		require.NoError(t, err)
		assert.Equal(t, auth.Credentials{Token: "a", TeamID: "team_linked", ProjectID: "prj_linked"}, got)
	}
	assert.Len(t, v.Asked(), asked, "the linked project is sufficient, so nothing is requested")
}

func TestRefreshOfARefusedToken(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	first := oidctest.Token("team_env", "prj_env", time.Hour)
	second := oidctest.Token("team_env", "prj_env", time.Hour)
	m.Set("VERCEL_OIDC_TOKEN", first)
	v.Say("POST api.vercel.com/v1/projects/prj_env/token", map[string]string{"token": second})
	p := auth.Chain(auth.ProviderFunc(func(context.Context) (auth.Credentials, error) {
		return auth.Credentials{}, auth.ErrNoCredentials
	}), auth.Default(opts))

	stale, err := p.Credentials(t.Context())
	require.NoError(t, err)
	for range 3 {
		got, err := p.Refresh(t.Context(), stale)
		require.NoError(t, err)
		assert.Equal(t, second, got.Token)
	}
	assert.Len(t, v.Asked(), 1, "later callers get the token that the first one fetched")

	stale, err = p.Refresh(t.Context(), auth.Credentials{Token: second})
	require.ErrorContains(t, err, "refused", "the server returned the refused token again")
	assert.Zero(t, stale)

	m.Set("VERCEL_TOKEN", "fixed")
	m.Set("VERCEL_TEAM_ID", "x")
	m.Set("VERCEL_PROJECT_ID", "y")
	_, err = p.Refresh(t.Context(), auth.Credentials{Token: "fixed"})
	assert.ErrorContains(t, err, "can't be refreshed")
}

func TestChain(t *testing.T) {
	fails := func(err error) auth.Provider {
		return auth.ProviderFunc(func(context.Context) (auth.Credentials, error) { return auth.Credentials{}, err })
	}
	none := fails(fmt.Errorf("here: %w", auth.ErrNoCredentials))
	given := auth.Static(auth.Credentials{Token: "t", TeamID: "x", ProjectID: "p"})
	got, err := auth.Chain(none, given, fails(errors.New("not asked"))).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "x", got.TeamID)
	got, err = auth.Chain(none, given).Refresh(t.Context(), got)
	require.NoError(t, err)
	assert.Equal(t, "x", got.TeamID)
	_, err = auth.Chain(none, fails(errors.New("broken")), given).Credentials(t.Context())
	require.EqualError(t, err, "broken")
	_, err = auth.Chain(none, none).Credentials(t.Context())
	require.ErrorIs(t, err, auth.ErrNoCredentials)
	_, err = auth.Chain().Credentials(t.Context())
	require.ErrorIs(t, err, auth.ErrNoCredentials)
}

func TestTokenHandler(t *testing.T) {
	_, _, opts := setup(t)
	p := auth.Default(opts)
	handler := auth.TokenHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := p.Credentials(r.Context())
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, c.TeamID)
	}))
	for _, test := range []struct {
		token string
		code  int
		text  string
	}{
		{"", 500, ""},
		{"garbage", 500, ""},
		{oidctest.Token("team_a", "p", time.Hour), 200, "team_a"},
		{oidctest.Token("team_b", "p", time.Hour), 200, "team_b"},
		{"", 500, ""}, // the last request has no token
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if test.token != "" {
			r.Header.Set("x-vercel-oidc-token", test.token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		assert.Equal(t, test.code, w.Code)
		assert.Equal(t, test.text, w.Body.String())
	}
}

func TestCredentialsAreRedacted(t *testing.T) {
	const secret = "planted_secret"
	m, v, opts := setup(t)
	token := oidctest.Token("team_a", "prj_a", time.Hour)
	m.Set("VERCEL_OIDC_TOKEN", token)
	m.Write(m.LoginFile(), login("token", secret))
	static := auth.Static(auth.Credentials{Token: secret, TeamID: "team_a", ProjectID: "prj_a"})
	c, err := static.Credentials(t.Context())
	require.NoError(t, err)
	cached := auth.Cache(static, 0)
	cli := auth.CLI(&auth.Options{
		TeamID: "team_a", ProjectID: "prj_a", HTTPClient: v.Client(), LookupEnv: m.LookupEnv, Dir: m.Dir,
	})
	def, oidc := auth.Default(opts), auth.OIDC(opts)
	for _, p := range []auth.Provider{cached, cli, def, oidc} {
		_, err := p.Credentials(t.Context())
		require.NoError(t, err)
	}
	for _, value := range []any{
		c, &c, []auth.Credentials{c}, map[string]*auth.Credentials{"k": &c}, struct{ C auth.Credentials }{c},
		static, cached, cli, def, oidc, auth.Chain(static, cached, cli, def, oidc),
		device.Login(nil, opts), auth.ContextWithToken(t.Context(), token),
		struct{ p auth.Provider }{oidc},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text := fmt.Sprintf(verb, value)
			assert.NotContains(t, text, secret, "%s of %T", verb, value)
			assert.NotContains(t, text, fmt.Sprintf("%x", secret), "%s of %T", verb, value)
			assert.NotContains(t, text, token, "%s of %T", verb, value)
		}
		if data, err := json.Marshal(value); err == nil {
			assert.NotContains(t, string(data), secret)
			assert.NotContains(t, string(data), token)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "k", value)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "k", value)
		assert.NotContains(t, log.String(), secret)
		assert.NotContains(t, log.String(), token)
	}
	assert.Equal(t, "{Token:REDACTED TeamID:team_a ProjectID:prj_a}", c.String())
	assert.Equal(t, `auth.Credentials{Token:"REDACTED", TeamID:"team_a", ProjectID:"prj_a"}`, fmt.Sprintf("%#v", c))
	data, err := json.Marshal(c)
	require.NoError(t, err)
	assert.JSONEq(t, `{"token":"REDACTED","teamId":"team_a","projectId":"prj_a"}`, string(data))
}
