package auth_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

const exchangeLinked = "POST api.vercel.com/v1/projects/prj_linked/token"

// setup returns a machine whose Vercel servers are v.
func setup(t *testing.T) (*oidctest.Machine, *oidctest.Vercel, *auth.Options) {
	m, v := oidctest.NewMachine(t), &oidctest.Vercel{}
	return m, v, &auth.Options{
		HTTPClient: v.Client(), LookupEnv: m.LookupEnv, Dir: m.Dir, Interactive: new(false),
	}
}

// withoutSource returns credentials without their source.
func withoutSource(c auth.Credentials) auth.Credentials {
	return auth.Credentials{Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID}
}

func login(fields ...any) map[string]any {
	content := map[string]any{"token": "cli_tok"}
	for i := 0; i < len(fields); i += 2 {
		content[fields[i].(string)] = fields[i+1]
	}
	return content
}

func TestOIDCTokenOfTheEnvironment(t *testing.T) {
	m, v, opts := setup(t)
	token := oidctest.Token("team_oidc", "prj_oidc", time.Hour)
	m.Set("VERCEL_OIDC_TOKEN", token)
	p := auth.OIDC(opts)

	got, err := p.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, auth.Credentials{Token: token, TeamID: "team_oidc", ProjectID: "prj_oidc"}, withoutSource(got))

	forever := oidctest.Token("team_2", "prj_2", 0)
	m.Set("VERCEL_OIDC_TOKEN", forever)
	got, err = p.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, auth.Credentials{Token: forever, TeamID: "team_2", ProjectID: "prj_2"}, withoutSource(got), "a changed variable is followed")
	assert.Empty(t, v.Asked())
}

func TestOIDCMalformedTokens(t *testing.T) {
	for _, token := range []string{
		"garbage", "a.b", "a.b.c", "a.e30.c",
		oidctest.Sign(map[string]any{"owner_id": "o"}),
		oidctest.Sign(map[string]any{"project_id": "p"}),
		oidctest.Sign(map[string]any{"owner_id": 1, "project_id": "p"}),
		oidctest.Sign(map[string]any{"owner_id": "o", "project_id": "p", "exp": "soon"}),
	} {
		m, v, opts := setup(t)
		m.Set("VERCEL_OIDC_TOKEN", token)
		// A broken token is an error even if there are other credentials.
		m.Link("team_linked", "prj_linked")
		m.Write(m.LoginFile(), login())
		_, err := auth.OIDC(opts).Credentials(t.Context())
		require.Error(t, err, token)
		assert.ErrorContains(t, err, "VERCEL_OIDC_TOKEN: invalid Vercel OIDC token")
		assert.NotErrorIs(t, err, auth.ErrNoCredentials)
		assert.NotContains(t, err.Error(), token)
		assert.Empty(t, v.Asked())
	}
}

func TestOIDCNothingFound(t *testing.T) {
	m, v, opts := setup(t)
	p := auth.Default(opts)
	_, err := p.Credentials(t.Context())
	require.ErrorIs(t, err, auth.ErrNoCredentials)
	var credErr *auth.OIDCError
	require.ErrorAs(t, err, &credErr)
	assert.False(t, credErr.OnVercel)
	for _, remedy := range []string{"Set VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID", "`vercel link`", "sandbox-emulator"} {
		assert.ErrorContains(t, err, remedy)
	}
	assert.Contains(t, credErr.Advice(), "npx vercel link")
	assert.ErrorContains(t, err, "VERCEL_OIDC_TOKEN is not set, and no project is linked")

	m.Set("VERCEL_URL", "x.vercel.app")
	_, err = p.Credentials(t.Context())
	require.ErrorAs(t, err, &credErr)
	assert.True(t, credErr.OnVercel)
	assert.ErrorContains(t, err, "https://vercel.com/docs/oidc")
	assert.Empty(t, v.Asked())
}

func TestOIDCLinkedInAParent(t *testing.T) {
	m, v, opts := setup(t)
	m.Link("team_linked", "prj_linked")
	m.Write(m.LoginFile(), login("expiresAt", time.Now().Add(time.Hour).Unix()))
	fresh := oidctest.Token("team_linked", "prj_linked", time.Hour)
	v.Say(exchangeLinked, map[string]string{"token": fresh})
	opts.Dir = filepath.Join(m.Dir, "a", "b")
	require.NoError(t, os.MkdirAll(filepath.Join(opts.Dir, ".vercel"), 0o755), "a folder without a link does not end the search")

	p := auth.OIDC(opts)
	for range 3 {
		got, err := p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, auth.Credentials{Token: fresh, TeamID: "team_linked", ProjectID: "prj_linked"}, withoutSource(got))
	}
	require.Len(t, v.Requests(), 1)
	r := v.Requests()[0]
	assert.Equal(t, exchangeLinked, r.String())
	assert.Equal(t, "Bearer cli_tok", r.Authorization)
	assert.Equal(t, []string{"vercel-oidc-refresh"}, r.Query["source"])
	assert.Equal(t, []string{"team_linked"}, r.Query["teamId"])
	assert.Equal(t, map[string]any{"token": fresh}, m.Read(m.TokenFile("prj_linked")))
	_, set := os.LookupEnv("VERCEL_OIDC_TOKEN")
	assert.False(t, set, "nothing is kept in the environment")
	_, set = m.LookupEnv("VERCEL_OIDC_TOKEN")
	assert.False(t, set)

	other, err := auth.OIDC(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fresh, other.Token, "the next program finds the stored token")
	assert.Len(t, v.Requests(), 1)
}

func TestOIDCExpiredAtTheStart(t *testing.T) {
	t.Run("the linked project's", func(t *testing.T) {
		m, v, opts := setup(t)
		m.Set("VERCEL_OIDC_TOKEN", oidctest.Token("team_oidc", "prj_oidc", -time.Minute))
		m.Link("team_linked", "prj_linked")
		m.Write(m.LoginFile(), login())
		m.Write(m.TokenFile("prj_linked"), map[string]any{
			"token": oidctest.Token("team_linked", "prj_linked", -5*time.Second), "kept": []int{1},
		})
		fresh := oidctest.Token("team_linked", "prj_linked", time.Hour)
		v.Say(exchangeLinked, map[string]string{"token": fresh})
		got, err := auth.OIDC(opts).Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, fresh, got.Token)
		assert.Equal(t, map[string]any{"token": fresh, "kept": []any{1.0}}, m.Read(m.TokenFile("prj_linked")))
		info, err := os.Stat(m.TokenFile("prj_linked"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	})
	t.Run("its own, when none is linked", func(t *testing.T) {
		m, v, opts := setup(t)
		m.Set("VERCEL_OIDC_TOKEN", oidctest.Token("team_oidc", "prj_oidc", -time.Minute))
		m.Write(m.LoginFile(), login())
		fresh := oidctest.Token("team_oidc", "prj_oidc", time.Hour)
		v.Say("POST api.vercel.com/v1/projects/prj_oidc/token", map[string]string{"token": fresh})
		got, err := auth.OIDC(opts).Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, fresh, got.Token)
	})
}

func TestOIDCNearlyExpired(t *testing.T) {
	const exchange = "POST api.vercel.com/v1/projects/prj_oidc/token"
	m, v, opts := setup(t)
	near := oidctest.Token("team_oidc", "prj_oidc", 4*time.Minute)
	m.Set("VERCEL_OIDC_TOKEN", near)
	m.Link("team_linked", "prj_linked") // not used, because a provider keeps its project
	p := auth.OIDC(opts)

	got, err := p.Credentials(t.Context())
	require.NoError(t, err, "the token is used until it expires")
	assert.Equal(t, near, got.Token)
	assert.Empty(t, v.Asked(), "nobody is logged in")

	m.Write(m.LoginFile(), login())
	v.Say(exchange, oidctest.Response{Status: http.StatusInternalServerError, Body: "no"})
	for range 5 {
		got, err = p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, near, got.Token)
	}
	assert.Equal(t, []string{exchange}, v.Asked(), "after a failure the server is left alone")

	fresh := oidctest.Token("team_oidc", "prj_oidc", time.Hour)
	v.Say(exchange, map[string]string{"token": fresh})
	got, err = auth.OIDC(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fresh, got.Token)
}

func TestOIDCRefreshFails(t *testing.T) {
	for _, test := range []struct {
		name string
		resp any
		text string
	}{
		{"refused", oidctest.Response{Status: 403, Body: json.RawMessage(`{"error":{"code":"forbidden","message":"not yours"}}`)}, "HTTP 403: FORBIDDEN: not yours"},
		{"wrong type", map[string]any{"token": 5}, "the response has no token"},
		{"null", nil, "the response has no token"},
		{"not a token", map[string]any{"token": "secret_text"}, "it is not a JWT"},
		{"expired", map[string]any{"token": oidctest.Token("t", "p", -time.Second)}, "is this machine's clock right?"},
		{"server error", oidctest.Response{Status: 500, Body: json.RawMessage(`{}`)}, "HTTP 500"},
		{"redirect", oidctest.Response{Status: 307, Body: "", Header: http.Header{"Location": {"https://evil.example/"}}}, "HTTP 307"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, v, opts := setup(t)
			m.Set("VERCEL_OIDC_TOKEN", oidctest.Token("team_oidc", "prj_oidc", -time.Minute))
			m.Link("team_linked", "prj_linked")
			m.Write(m.LoginFile(), login())
			v.Say(exchangeLinked, test.resp)
			_, err := auth.OIDC(opts).Credentials(t.Context())
			require.ErrorContains(t, err, test.text)
			assert.NotErrorIs(t, err, auth.ErrNoCredentials)
			var credErr *auth.OIDCError
			assert.ErrorAs(t, err, &credErr)
			assert.NotContains(t, err.Error(), "secret_text")
			assert.NotContains(t, err.Error(), "cli_tok")
			assert.Equal(t, []string{exchangeLinked}, v.Asked())
			assert.Equal(t, login(), m.Read(m.LoginFile()))
		})
	}
}

func TestOIDCBrokenFilesAreNamed(t *testing.T) {
	link, stored := (*oidctest.Machine).LinkFile, (*oidctest.Machine).LoginFile
	token := func(m *oidctest.Machine) string { return m.TokenFile("prj_linked") }
	for _, test := range []struct {
		name    string
		file    func(*oidctest.Machine) string
		content string
	}{
		{"link: not JSON", link, "not json"},
		{"link: empty object", link, "{}"},
		{"link: numbers", link, `{"projectId":5,"orgId":6}`},
		{"link: another folder", link, `{"projectId":"../../x","orgId":"team_linked"}`},
		{"link: dots", link, `{"projectId":"..","orgId":"team_linked"}`},
		{"link: a team that is a path", link, `{"projectId":"p","orgId":"a/b"}`},
		{"token: not JSON", token, "secret_text"},
		{"token: not a text", token, `{"token":1}`},
		{"token: not a token", token, `{"token":"secret_text"}`},
		{"token: a list", token, `["secret_text"]`},
		{"login: not JSON", stored, `{"token":"secret_text"`},
		{"login: null", stored, `null`},
		{"login: wrong types", stored, `{"token":"secret_text","expiresAt":"soon"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, v, opts := setup(t)
			m.Link("team_linked", "prj_linked")
			m.Write(m.LoginFile(), login())
			m.Write(test.file(m), test.content)
			_, err := auth.OIDC(opts).Credentials(t.Context())
			require.ErrorContains(t, err, test.file(m))
			assert.NotErrorIs(t, err, auth.ErrNoCredentials)
			assert.NotContains(t, err.Error(), "secret_text")
			assert.Empty(t, v.Asked())
			left, err := os.ReadFile(test.file(m))
			require.NoError(t, err)
			assert.Equal(t, test.content, string(left))
		})
	}
}

func TestOIDCUnreadableFilesAreNamed(t *testing.T) {
	for _, file := range []func(*oidctest.Machine) string{
		(*oidctest.Machine).LinkFile, (*oidctest.Machine).LoginFile,
		func(m *oidctest.Machine) string { return m.TokenFile("prj_linked") },
	} {
		m, _, opts := setup(t)
		if file(m) != m.LinkFile() {
			m.Link("team_linked", "prj_linked")
		}
		// A directory can't be read as a file, even by root.
		require.NoError(t, os.MkdirAll(file(m), 0o755))
		_, err := auth.OIDC(opts).Credentials(t.Context())
		require.ErrorContains(t, err, file(m))
		assert.NotErrorIs(t, err, auth.ErrNoCredentials)
	}
}

func TestOIDCWithoutAPlaceToStore(t *testing.T) {
	m, v, opts := setup(t)
	m.Link("team_linked", "prj_linked")
	m.Write(m.LoginFile(), login())
	m.Write(filepath.Dir(m.TokenFile("x"))+"/prj_linked.json.lock/in the way", "")
	fresh := oidctest.Token("team_linked", "prj_linked", time.Hour)
	v.Say(exchangeLinked, map[string]string{"token": fresh})
	got, err := auth.OIDC(opts).Credentials(t.Context())
	require.NoError(t, err, "storing the token is not necessary")
	assert.Equal(t, fresh, got.Token)
}

func TestOIDCLinkWithoutTeam(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LinkFile(), map[string]string{"projectId": "a b"})
	m.Write(m.LoginFile(), login())
	v.Say("POST api.vercel.com/v1/projects/a%20b/token", map[string]string{"token": oidctest.Token("team_linked", "prj_linked", time.Hour)})
	got, err := auth.OIDC(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "prj_linked", got.ProjectID)
	require.Len(t, v.Requests(), 1)
	assert.NotContains(t, v.Requests()[0].Query, "teamId")
	assert.FileExists(t, m.TokenFile("a b"))
}

func TestOIDCForAProjectGiven(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	m.Link("team_linked", "prj_linked")
	fresh := oidctest.Token("team_given", "prj_given", time.Hour)
	v.Say("POST api.vercel.com/v1/projects/prj_given/token", map[string]string{"token": fresh})
	for _, team := range []string{"team_given", ""} {
		opts.TeamID, opts.ProjectID = team, "prj_given"
		require.NoError(t, os.RemoveAll(filepath.Dir(m.TokenFile("x"))))
		got, err := auth.OIDC(opts).Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, fresh, got.Token)
	}
	require.Len(t, v.Requests(), 2)
	assert.Equal(t, []string{"team_given"}, v.Requests()[0].Query["teamId"])
	assert.Equal(t, []string{"team_linked"}, v.Requests()[1].Query["teamId"], "the linked project completes the options")
}

func TestOIDCRefusedTokenOfARequest(t *testing.T) {
	m, v, opts := setup(t)
	request := oidctest.Token("team_req", "prj_req", time.Minute)
	p := auth.OIDC(opts)
	ctx := auth.ContextWithToken(t.Context(), request)
	got, err := p.Credentials(ctx)
	require.NoError(t, err)
	_, err = p.Refresh(ctx, got)
	require.ErrorIs(t, err, auth.ErrNoCredentials)
	env := oidctest.Token("team_env", "prj_env", time.Hour)
	m.Set("VERCEL_OIDC_TOKEN", env)
	got, err = p.Refresh(ctx, got)
	require.NoError(t, err)
	assert.Equal(t, env, got.Token)
	assert.Empty(t, v.Asked(), "the project of a request's token gets no token of this machine's login")
}

func TestOIDCRefreshesTheLogin(t *testing.T) {
	m, v, opts := setup(t)
	m.Set("VERCEL_OIDC_TOKEN", oidctest.Token("team_oidc", "prj_oidc", -time.Minute))
	m.Link("team_linked", "prj_linked")
	m.Write(m.LoginFile(), login("token", "cli_old", "refreshToken", "ref_1", "expiresAt", 1000000000, "// Note", "keep <me>"))
	v.Discover()
	v.Say("POST api.vercel.com/login/oauth/token", map[string]any{
		"access_token": "cli_new", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "ref_2",
	})
	fresh := oidctest.Token("team_linked", "prj_linked", time.Hour)
	v.Say(exchangeLinked, map[string]string{"token": fresh})

	got, err := auth.OIDC(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fresh, got.Token)
	assert.Equal(t, []string{
		"GET vercel.com/.well-known/openid-configuration", "POST api.vercel.com/login/oauth/token", exchangeLinked,
	}, v.Asked())
	assert.Equal(t, map[string][]string{
		"client_id": {"cl_HYyOPBNtFMfHhaUn9L4QPfTZz6TP47bp"}, "grant_type": {"refresh_token"}, "refresh_token": {"ref_1"},
	}, map[string][]string(v.Requests()[1].Form))
	assert.Empty(t, v.Requests()[1].Authorization)
	assert.Equal(t, "Bearer cli_new", v.Requests()[2].Authorization)
	content := m.Read(m.LoginFile())
	assert.InDelta(t, time.Now().Add(time.Hour).Unix(), content["expiresAt"], 60)
	delete(content, "expiresAt")
	assert.Equal(t, map[string]any{"token": "cli_new", "refreshToken": "ref_2", "// Note": "keep <me>"}, content)
	info, err := os.Stat(m.LoginFile())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestOIDCFailuresKeepTheLogin(t *testing.T) {
	expired := login("token", "cli_old", "refreshToken", "ref_1", "expiresAt", 1000000000.0)
	for _, test := range []struct {
		name string
		play func(v *oidctest.Vercel)
		text string
	}{
		{"offline", func(v *oidctest.Vercel) {
			v.Say("GET vercel.com/.well-known/openid-configuration", oidctest.Response{Err: http.ErrServerClosed})
		}, "discovering the OAuth endpoints"},
		{"discovery names another host", func(v *oidctest.Vercel) {
			v.Say("GET vercel.com/.well-known/openid-configuration", map[string]string{"token_endpoint": "https://evil.example/token"})
		}, "no usable token_endpoint"},
		{"refused", func(v *oidctest.Vercel) {
			v.Discover()
			v.Say("POST api.vercel.com/login/oauth/token", oidctest.Response{Status: 400, Body: map[string]string{"error": "invalid_grant"}})
		}, "invalid_grant"},
		{"lost", func(v *oidctest.Vercel) {
			v.Discover()
			v.Say("POST api.vercel.com/login/oauth/token", oidctest.Response{Err: http.ErrServerClosed})
		}, "refreshing the CLI's login"},
		{"a page of HTML that quotes the token", func(v *oidctest.Vercel) {
			v.Discover()
			v.Say("POST api.vercel.com/login/oauth/token", oidctest.Response{Status: 502, Body: "<html>ref_1</html>"})
		}, "HTTP 502"},
		{"not a bearer", func(v *oidctest.Vercel) {
			v.Discover()
			v.Say("POST api.vercel.com/login/oauth/token", map[string]string{"access_token": "x", "token_type": "mac"})
		}, "unknown type"},
		{"no token", func(v *oidctest.Vercel) {
			v.Discover()
			v.Say("POST api.vercel.com/login/oauth/token", map[string]string{"refresh_token": "ref_1"})
		}, "does not conform to the standard"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, v, opts := setup(t)
			m.Link("team_linked", "prj_linked")
			m.Write(m.LoginFile(), expired)
			test.play(v)
			_, err := auth.OIDC(opts).Credentials(t.Context())
			require.ErrorContains(t, err, test.text)
			require.ErrorContains(t, err, m.LoginFile())
			assert.NotContains(t, err.Error(), "ref_1")
			assert.NotContains(t, err.Error(), "cli_old")
			assert.Equal(t, expired, m.Read(m.LoginFile()))
			left, err := filepath.Glob(filepath.Join(filepath.Dir(m.LoginFile()), ".auth*"))
			require.NoError(t, err)
			assert.Empty(t, left, "no temporary file stays")
		})
	}
	t.Run("a folder that can not be written to", func(t *testing.T) {
		m, v, opts := setup(t)
		m.Link("team_linked", "prj_linked")
		m.Write(m.LoginFile(), expired)
		m.Write(m.LoginFile()+".lock/in the way", "")
		_, err := auth.OIDC(opts).Credentials(t.Context())
		require.ErrorContains(t, err, "locking "+m.LoginFile())
		assert.Empty(t, v.Asked(), "the refresh token is not used if its successor can't be stored")
		assert.Equal(t, expired, m.Read(m.LoginFile()))
	})
	t.Run("no refresh token", func(t *testing.T) {
		m, v, opts := setup(t)
		m.Link("team_linked", "prj_linked")
		m.Write(m.LoginFile(), login("expiresAt", 1000000000.0))
		_, err := auth.OIDC(opts).Credentials(t.Context())
		require.ErrorContains(t, err, "it has no refresh token")
		assert.Equal(t, login("expiresAt", 1000000000.0), m.Read(m.LoginFile()))
		assert.Empty(t, v.Asked())
	})
}
