package auth_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

const (
	getUser       = "GET vercel.com/api/v2/user"
	getDefault    = "GET vercel.com/api/v2/projects/vercel-sandbox-default-project"
	createProject = "POST vercel.com/api/v11/projects"
	getTeams      = "GET vercel.com/api/v2/teams"
	getTeamD      = "GET vercel.com/api/v2/teams/team_d"
	discovery     = "GET vercel.com/.well-known/openid-configuration"
	oauthToken    = "POST api.vercel.com/login/oauth/token"
)

func userResponse(defaultTeam any) any {
	return map[string]any{"user": map[string]any{"defaultTeamId": defaultTeam, "username": "me"}}
}

func forbiddenResponse(status int) oidctest.Response {
	return oidctest.Response{Status: status, Body: json.RawMessage(`{"error":{"code":"forbidden","message":"no"}}`)}
}

func TestCLIDefaultTeam(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	v.Say(getUser, userResponse("team_d"))
	v.Say(getDefault, map[string]string{"id": "prj_1"})
	v.Say(getTeamD, map[string]string{"slug": "d"})
	var log bytes.Buffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))

	// The default chain uses the login only at a terminal.
	_, err := auth.Default(opts).Credentials(t.Context())
	require.ErrorIs(t, err, auth.ErrNoCredentials)
	require.Empty(t, v.Asked())
	opts.Interactive = new(true)
	p := auth.Default(opts)
	for range 2 {
		got, err := p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, auth.Credentials{Token: "cli_tok", TeamID: "team_d", ProjectID: "vercel-sandbox-default-project"}, withoutSource(got))
	}
	m.Link("team_later", "prj_later")
	got, err := p.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "team_d", got.TeamID, "a provider keeps its project")
	assert.Equal(t, []string{getUser, getDefault, getTeamD}, v.Asked())
	assert.Equal(t, []string{"team_d"}, v.Requests()[1].Query["teamId"])
	assert.Contains(t, log.String(), "teamSlug=d")
	assert.NotContains(t, log.String(), "cli_tok")
}

func TestInteractiveIsDetected(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	opts.Interactive = nil
	for _, env := range [][2]string{{"CI", "1"}, {"CI", "true"}, {"NODE_ENV", "production"}} {
		m.Set(env[0], env[1])
		_, err := auth.Default(opts).Credentials(t.Context())
		require.ErrorIs(t, err, auth.ErrNoCredentials)
		m.Set(env[0], "")
	}
	assert.Empty(t, v.Asked())
}

func TestCLIProjectIsCreated(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	v.Say(getDefault, forbiddenResponse(http.StatusNotFound))
	v.Say(createProject, map[string]string{"id": "prj_new"})
	opts.TeamID = "acme"
	var log bytes.Buffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	got, err := auth.CLI(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "acme", got.TeamID)
	assert.Equal(t, "vercel-sandbox-default-project", got.ProjectID)
	require.Equal(t, []string{getDefault, createProject}, v.Asked())
	assert.Equal(t, []string{"acme"}, v.Requests()[1].Query["slug"])
	assert.JSONEq(t, `{"name":"vercel-sandbox-default-project"}`, v.Requests()[1].Body)
	assert.Contains(t, log.String(), "created the default project")
}

func TestCLITeamSearch(t *testing.T) {
	teamOf := func(id, slug string, updatedAt int, role, plan string) map[string]any {
		return map[string]any{
			"id": id, "slug": slug, "updatedAt": updatedAt,
			"membership": map[string]string{"role": role}, "billing": map[string]string{"plan": plan},
		}
	}
	page := func(next any, teams ...any) any {
		return map[string]any{"teams": teams, "pagination": map[string]any{"count": len(teams), "next": next}}
	}
	allowTeams := func(v *oidctest.Vercel, teams ...string) {
		v.Handle(getDefault, func(r oidctest.Request) oidctest.Response {
			for _, team := range teams {
				if r.Query.Get("teamId") == team || r.Query.Get("slug") == team {
					return oidctest.Response{Body: struct{}{}}
				}
			}
			return forbiddenResponse(http.StatusForbidden)
		})
	}
	search := func(t *testing.T, defaultTeam any, teams []string, pages ...any) (auth.Credentials, *oidctest.Vercel, error) {
		m, v, opts := setup(t)
		m.Write(m.LoginFile(), login())
		v.Say(getUser, userResponse(defaultTeam))
		v.Say(getTeams, pages...)
		allowTeams(v, teams...)
		got, err := auth.CLI(opts).Credentials(t.Context())
		return got, v, err
	}
	broken := map[string]any{"id": 7}

	t.Run("the hobby team changed last, on a later page", func(t *testing.T) {
		got, v, err := search(t, "team_d", []string{"team_b"},
			page(77, teamOf("team_p", "p", 1, "OWNER", "pro"), broken),
			page(nil, teamOf("team_a", "a", 5, "OWNER", "hobby"), teamOf("team_b", "b", 9, "OWNER", "hobby"), teamOf("team_m", "x", 99, "MEMBER", "hobby")))
		require.NoError(t, err)
		assert.Equal(t, "team_b", got.TeamID)
		assert.Equal(t, []string{getUser, getDefault, getTeams, getTeams, getDefault}, v.Asked())
		assert.Equal(t, []string{"20"}, v.Requests()[2].Query["limit"])
		assert.Equal(t, []string{"77"}, v.Requests()[3].Query["until"])
	})
	t.Run("the personal one", func(t *testing.T) {
		got, _, err := search(t, nil, []string{"team_me"},
			page(nil, teamOf("team_b", "b", 9, "OWNER", "hobby"), teamOf("team_me", "me", 1, "OWNER", "hobby")))
		require.NoError(t, err)
		assert.Equal(t, "team_me", got.TeamID)
	})
	t.Run("the user's own name", func(t *testing.T) {
		got, _, err := search(t, "team_d", []string{"me"}, page(nil))
		require.NoError(t, err)
		assert.Equal(t, "me", got.TeamID)
	})
	t.Run("none", func(t *testing.T) {
		_, _, err := search(t, "team_d", nil, page(nil, teamOf("team_d", "d", 1, "OWNER", "hobby")))
		require.ErrorContains(t, err, `HTTP 403: Authenticated as "me" but none of the available teams`)
	})
	t.Run("pages without an end", func(t *testing.T) {
		_, v, err := search(t, nil, nil, page(5))
		require.Error(t, err)
		assert.Len(t, v.Asked(), 4)
	})
}

func TestCLIAPIError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		m.Write(m.LoginFile(), login())
		p := auth.CLI(opts)
		v.Say(getUser, forbiddenResponse(http.StatusUnauthorized), userResponse("team_d"))
		v.Say(getDefault, oidctest.Response{Status: 500, Body: "oops\x1b"})
		_, err := p.Credentials(t.Context())
		require.ErrorContains(t, err, "HTTP 401: FORBIDDEN: no")
		_, err = p.Credentials(t.Context())
		require.ErrorContains(t, err, "HTTP 401: FORBIDDEN: no")
		assert.Len(t, v.Asked(), 1, "the server is left alone after a failure")
		time.Sleep(time.Minute)
		_, err = p.Credentials(t.Context())
		require.ErrorContains(t, err, "HTTP 500: oops")
		assert.NotContains(t, err.Error(), "\x1b")
		status, ok := errors.AsType[*oidc.StatusError](err)
		require.True(t, ok)
		assert.Equal(t, 500, status.Status)
	})
}

func TestCLILinkedProject(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	m.Link("team_l", "prj_l")
	got, err := auth.CLI(opts).Credentials(t.Context())
	require.NoError(t, err, "a failure to find the names does not matter")
	assert.Equal(t, auth.Credentials{Token: "cli_tok", TeamID: "team_l", ProjectID: "prj_l"}, withoutSource(got))
	assert.Equal(t, []string{"GET vercel.com/api/v2/teams/team_l", "GET vercel.com/api/v2/projects/prj_l"}, v.Asked())

	// At a terminal the login is used when the project gets no OIDC token.
	v.Say("POST api.vercel.com/v1/projects/prj_l/token", forbiddenResponse(http.StatusForbidden))
	_, err = auth.Default(opts).Credentials(t.Context())
	require.ErrorContains(t, err, "HTTP 403")
	opts.Interactive = new(true)
	got, err = auth.Default(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "cli_tok", got.Token)

	opts.TeamID = "team_other"
	v.Say(getDefault, struct{}{})
	got, err = auth.CLI(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "team_other", got.TeamID)
	assert.Equal(t, "vercel-sandbox-default-project", got.ProjectID, "another team's project is not used")

	for id, project := range map[string]string{"team_l": "prj_l", "team_other": "vercel-sandbox-default-project"} {
		opts.TeamID = "slug-of-" + id
		v.Say("GET vercel.com/api/v2/teams/"+opts.TeamID, map[string]string{"id": id})
		got, err = auth.CLI(opts).Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, opts.TeamID, got.TeamID)
		assert.Equal(t, project, got.ProjectID, "a team may be given by its slug")
	}
}

func TestCLILoginIsRefreshedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		opts.TeamID, opts.ProjectID = "x", "p"
		m.Write(m.LoginFile(), login("refreshToken", "r0", "expiresAt", time.Now().Add(time.Hour).Unix()))
		v.Discover()
		v.Say(oauthToken, map[string]any{"access_token": "cli_2", "token_type": "bearer", "expires_in": 3600})
		p := auth.CLI(opts)
		token := func() string {
			got, err := p.Credentials(t.Context())
			require.NoError(t, err)
			return got.Token
		}
		assert.Equal(t, "cli_tok", token())
		time.Sleep(54 * time.Minute)
		assert.Equal(t, "cli_tok", token())
		assert.Empty(t, v.Asked())
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "cli_2", token())
		assert.Equal(t, []string{discovery, oauthToken}, v.Asked())
		assert.Equal(t, "r0", m.Read(m.LoginFile())["refreshToken"], "the refresh token is kept if the server sends no other")
	})
}

func TestCLILoginIsRefreshedWhenRefused(t *testing.T) {
	m, v, opts := setup(t)
	opts.TeamID, opts.ProjectID = "x", "p"
	m.Write(m.LoginFile(), login("refreshToken", "r0", "expiresAt", time.Now().Add(time.Hour).Unix()))
	v.Discover()
	v.Say(oauthToken, map[string]any{"access_token": "cli_2", "token_type": "Bearer", "refresh_token": "r1"})
	for range 2 { // the second call finds that the first one has refreshed the login
		got, err := auth.CLI(opts).Refresh(t.Context(), auth.Credentials{Token: "cli_tok"})
		require.NoError(t, err)
		assert.Equal(t, auth.Credentials{Token: "cli_2", TeamID: "x", ProjectID: "p"}, withoutSource(got))
	}
	assert.Equal(t, []string{discovery, oauthToken}, v.Asked())
	assert.Equal(t, map[string]any{"token": "cli_2", "refreshToken": "r1"}, m.Read(m.LoginFile()),
		"the old expiry is not the new token's")
}
