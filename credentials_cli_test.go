package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

const (
	getUser        = "GET vercel.com/api/v2/user"
	getDefault     = "GET vercel.com/api/v2/projects/vercel-sandbox-default-project"
	createProject  = "POST vercel.com/api/v11/projects"
	getTeams       = "GET vercel.com/api/v2/teams"
	getTeamD       = "GET vercel.com/api/v2/teams/team_d"
	discovery      = "GET vercel.com/.well-known/openid-configuration"
	authorizeLogin = "POST api.vercel.com/login/oauth/device-authorization"
	oauthToken     = "POST api.vercel.com/login/oauth/token"
)

func user(defaultTeam any) any {
	return map[string]any{"user": map[string]any{"defaultTeamId": defaultTeam, "username": "me"}}
}

func refusal(status int) oidctest.Answer {
	return oidctest.Answer{Status: status, Body: json.RawMessage(`{"error":{"code":"forbidden","message":"no"}}`)}
}

func TestCLIDefaultTeam(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	v.Say(getUser, user("team_d"))
	v.Say(getDefault, map[string]string{"id": "prj_1"})
	v.Say(getTeamD, map[string]string{"slug": "d"})
	var log bytes.Buffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))

	// The default chain does so only at a terminal.
	_, err := sandbox.DefaultCredentials(opts).Credentials(t.Context())
	require.ErrorIs(t, err, sandbox.ErrNoCredentials)
	require.Empty(t, v.Asked())
	opts.Interactive = new(true)
	p := sandbox.DefaultCredentials(opts)
	for range 2 {
		got, err := p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, sandbox.Credentials{Token: "cli_tok", TeamID: "team_d", ProjectID: "vercel-sandbox-default-project"}, got)
	}
	m.Link("team_later", "prj_later")
	got, err := p.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "team_d", got.TeamID, "a program stays with its project")
	assert.Equal(t, []string{getUser, getDefault, getTeamD}, v.Asked())
	assert.Equal(t, []string{"team_d"}, v.Requests()[1].Query["teamId"])
	assert.Contains(t, log.String(), "teamSlug=d")
	assert.NotContains(t, log.String(), "cli_tok")
}

func TestInteractiveIsFoundOut(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	opts.Interactive = nil
	for _, env := range [][2]string{{"CI", "1"}, {"CI", "true"}, {"NODE_ENV", "production"}} {
		m.Set(env[0], env[1])
		_, err := sandbox.DefaultCredentials(opts).Credentials(t.Context())
		require.ErrorIs(t, err, sandbox.ErrNoCredentials)
		m.Set(env[0], "")
	}
	assert.Empty(t, v.Asked())
}

func TestCLIProjectIsCreated(t *testing.T) {
	m, v, opts := setup(t)
	m.Write(m.LoginFile(), login())
	v.Say(getDefault, refusal(http.StatusNotFound))
	v.Say(createProject, map[string]string{"id": "prj_new"})
	opts.TeamID = "acme"
	var log bytes.Buffer
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	got, err := sandbox.CLICredentials(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "acme", got.TeamID)
	assert.Equal(t, "vercel-sandbox-default-project", got.ProjectID)
	require.Equal(t, []string{getDefault, createProject}, v.Asked())
	assert.Equal(t, []string{"acme"}, v.Requests()[1].Query["slug"])
	assert.JSONEq(t, `{"name":"vercel-sandbox-default-project"}`, v.Requests()[1].Body)
	assert.Contains(t, log.String(), "created the default project")
}

func TestCLITeamSearch(t *testing.T) {
	owned := func(id, slug string, updatedAt int, role, plan string) map[string]any {
		return map[string]any{
			"id": id, "slug": slug, "updatedAt": updatedAt,
			"membership": map[string]string{"role": role}, "billing": map[string]string{"plan": plan},
		}
	}
	page := func(next any, teams ...any) any {
		return map[string]any{"teams": teams, "pagination": map[string]any{"count": len(teams), "next": next}}
	}
	usable := func(v *oidctest.Vercel, teams ...string) {
		v.Handle(getDefault, func(r oidctest.Request) oidctest.Answer {
			for _, team := range teams {
				if r.Query.Get("teamId") == team || r.Query.Get("slug") == team {
					return oidctest.Answer{Body: struct{}{}}
				}
			}
			return refusal(http.StatusForbidden)
		})
	}
	search := func(t *testing.T, defaultTeam any, teams []string, pages ...any) (sandbox.Credentials, *oidctest.Vercel, error) {
		m, v, opts := setup(t)
		m.Write(m.LoginFile(), login())
		v.Say(getUser, user(defaultTeam))
		v.Say(getTeams, pages...)
		usable(v, teams...)
		got, err := sandbox.CLICredentials(opts).Credentials(t.Context())
		return got, v, err
	}
	broken := map[string]any{"id": 7}

	t.Run("the hobby team changed last, on a later page", func(t *testing.T) {
		got, v, err := search(t, "team_d", []string{"team_b"},
			page(77, owned("team_p", "p", 1, "OWNER", "pro"), broken),
			page(nil, owned("team_a", "a", 5, "OWNER", "hobby"), owned("team_b", "b", 9, "OWNER", "hobby"), owned("team_m", "x", 99, "MEMBER", "hobby")))
		require.NoError(t, err)
		assert.Equal(t, "team_b", got.TeamID)
		assert.Equal(t, []string{getUser, getDefault, getTeams, getTeams, getDefault}, v.Asked())
		assert.Equal(t, []string{"20"}, v.Requests()[2].Query["limit"])
		assert.Equal(t, []string{"77"}, v.Requests()[3].Query["until"])
	})
	t.Run("the personal one", func(t *testing.T) {
		got, _, err := search(t, nil, []string{"team_me"},
			page(nil, owned("team_b", "b", 9, "OWNER", "hobby"), owned("team_me", "me", 1, "OWNER", "hobby")))
		require.NoError(t, err)
		assert.Equal(t, "team_me", got.TeamID)
	})
	t.Run("the user's own name", func(t *testing.T) {
		got, _, err := search(t, "team_d", []string{"me"}, page(nil))
		require.NoError(t, err)
		assert.Equal(t, "me", got.TeamID)
	})
	t.Run("none", func(t *testing.T) {
		_, _, err := search(t, "team_d", nil, page(nil, owned("team_d", "d", 1, "OWNER", "hobby")))
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
		p := sandbox.CLICredentials(opts)
		v.Say(getUser, refusal(http.StatusUnauthorized), user("team_d"))
		v.Say(getDefault, oidctest.Answer{Status: 500, Body: "oops\x1b"})
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
	got, err := sandbox.CLICredentials(opts).Credentials(t.Context())
	require.NoError(t, err, "the names are for show only")
	assert.Equal(t, sandbox.Credentials{Token: "cli_tok", TeamID: "team_l", ProjectID: "prj_l"}, got)
	assert.Equal(t, []string{"GET vercel.com/api/v2/teams/team_l", "GET vercel.com/api/v2/projects/prj_l"}, v.Asked())

	// At a terminal it serves when the project gets no OIDC token.
	v.Say("POST api.vercel.com/v1/projects/prj_l/token", refusal(http.StatusForbidden))
	_, err = sandbox.DefaultCredentials(opts).Credentials(t.Context())
	require.ErrorContains(t, err, "HTTP 403")
	opts.Interactive = new(true)
	got, err = sandbox.DefaultCredentials(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "cli_tok", got.Token)

	opts.TeamID = "team_other"
	v.Say(getDefault, struct{}{})
	got, err = sandbox.CLICredentials(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "team_other", got.TeamID)
	assert.Equal(t, "vercel-sandbox-default-project", got.ProjectID, "another team's project is not used")
}

func TestCLILoginIsRefreshedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		opts.TeamID, opts.ProjectID = "x", "p"
		m.Write(m.LoginFile(), login("refreshToken", "r0", "expiresAt", time.Now().Add(time.Hour).Unix()))
		v.Discover()
		v.Say(oauthToken, map[string]any{"access_token": "cli_2", "token_type": "bearer", "expires_in": 3600})
		p := sandbox.CLICredentials(opts)
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
		assert.Equal(t, "r0", m.Read(m.LoginFile())["refreshToken"], "kept when the server sends no other")
	})
}

func TestCLILoginIsRefreshedWhenRefused(t *testing.T) {
	m, v, opts := setup(t)
	opts.TeamID, opts.ProjectID = "x", "p"
	m.Write(m.LoginFile(), login("refreshToken", "r0", "expiresAt", time.Now().Add(time.Hour).Unix()))
	v.Discover()
	v.Say(oauthToken, map[string]any{"access_token": "cli_2", "token_type": "Bearer", "refresh_token": "r1"})
	for _, p := range []sandbox.CredentialsRefresher{
		sandbox.CLICredentials(opts),
		sandbox.DeviceLogin(nil, opts), // finds the work done
	} {
		got, err := p.Refresh(t.Context(), sandbox.Credentials{Token: "cli_tok"})
		require.NoError(t, err)
		assert.Equal(t, sandbox.Credentials{Token: "cli_2", TeamID: "x", ProjectID: "p"}, got)
	}
	assert.Equal(t, []string{discovery, oauthToken}, v.Asked())
	assert.Equal(t, map[string]any{"token": "cli_2", "refreshToken": "r1"}, m.Read(m.LoginFile()),
		"the old expiry is not the new token's")
}

// device answers the device flow: pending that often, then the last answer.
func device(v *oidctest.Vercel, pending int, last any) {
	v.Discover()
	v.Say(authorizeLogin, map[string]any{
		"device_code": "dev_secret", "user_code": "U-C", "verification_uri": "https://vercel.com/device",
		"verification_uri_complete": "https://vercel.com/device?c=U-C", "expires_in": 600, "interval": 0,
	})
	answers := make([]any, pending, pending+1)
	for i := range answers {
		answers[i] = oidctest.Answer{Status: 400, Body: map[string]string{"error": "authorization_pending"}}
	}
	v.Say(oauthToken, append(answers, last)...)
}

func loggedIn(token string) any {
	return map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r"}
}

func TestDeviceLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		device(v, 1, loggedIn("dev_tok"))
		v.Say(getUser, user("team_d"))
		v.Say(getDefault, struct{}{})
		v.Say(getTeamD, map[string]string{"slug": "d"})
		m.Write(m.LoginFile(), map[string]any{"// Note": "kept"})
		var shown strings.Builder
		p := sandbox.ChainCredentials(sandbox.DefaultCredentials(opts), sandbox.DeviceLogin(sandbox.PromptOn(&shown), opts))
		got, err := p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, sandbox.Credentials{Token: "dev_tok", TeamID: "team_d", ProjectID: "vercel-sandbox-default-project"}, got)
		assert.Equal(t, "To log in to Vercel visit https://vercel.com/device?c=U-C\nor https://vercel.com/device and type U-C\n", shown.String())
		assert.Equal(t, []string{discovery, authorizeLogin, oauthToken, oauthToken, getUser, getDefault, getTeamD}, v.Asked())
		assert.Equal(t, map[string][]string{
			"client_id": {"cl_HYyOPBNtFMfHhaUn9L4QPfTZz6TP47bp"}, "scope": {"openid offline_access"},
		}, map[string][]string(v.Requests()[1].Form))
		assert.Equal(t, map[string][]string{
			"client_id": {"cl_HYyOPBNtFMfHhaUn9L4QPfTZz6TP47bp"}, "device_code": {"dev_secret"},
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"},
		}, map[string][]string(v.Requests()[2].Form))
		content := m.Read(m.LoginFile())
		assert.InDelta(t, time.Now().Add(time.Hour).Unix(), content["expiresAt"], 10)
		delete(content, "expiresAt")
		assert.Equal(t, map[string]any{"token": "dev_tok", "refreshToken": "r", "// Note": "kept"}, content)
		info, err := os.Stat(m.LoginFile())
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		_, err = p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Len(t, v.Asked(), 7)
	})
}

func TestDeviceLoginDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		device(v, 2, oidctest.Answer{Status: 400, Body: map[string]string{"error": "access_denied", "error_description": "The user said no"}})
		var mu sync.Mutex
		prompts := 0
		p := sandbox.DeviceLogin(func(context.Context, sandbox.DeviceCode) error {
			mu.Lock()
			defer mu.Unlock()
			prompts++
			return nil
		}, opts)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := p.Credentials(t.Context())
				assert.ErrorContains(t, err, "access_denied: The user said no")
				assert.NotContains(t, err.Error(), "dev_secret")
			})
		}
		wg.Wait()
		assert.Equal(t, 1, prompts, "everybody waits for the same login")
		assert.NoFileExists(t, m.LoginFile())
	})
}

func TestDeviceLoginWhenTheLeaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v, opts := setup(t)
		opts.TeamID, opts.ProjectID = "x", "p"
		device(v, 3, loggedIn("dev_tok"))
		p := sandbox.DeviceLogin(func(context.Context, sandbox.DeviceCode) error { return nil }, opts)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Credentials(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		wg.Go(func() {
			got, err := p.Credentials(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, "dev_tok", got.Token)
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}

func TestDeviceLoginFailures(t *testing.T) {
	authorization := func(change func(map[string]any)) func(*oidctest.Vercel) {
		return func(v *oidctest.Vercel) {
			device(v, 0, loggedIn("dev_tok"))
			a := map[string]any{
				"device_code": "d", "user_code": "U-C", "verification_uri": "https://vercel.com/device", "expires_in": 600, "interval": 1,
			}
			change(a)
			v.Say(authorizeLogin, a)
		}
	}
	for _, test := range []struct {
		name string
		play func(*oidctest.Vercel)
		text string // "" is success
	}{
		{"a negative interval", authorization(func(a map[string]any) { a["interval"] = -5 }), ""},
		{"a huge interval", authorization(func(a map[string]any) { a["interval"] = int64(1) << 62 }), ""},
		{"no expiry", authorization(func(a map[string]any) { delete(a, "expires_in") }), ""},
		{"a page elsewhere", authorization(func(a map[string]any) { a["verification_uri"] = "https://evil.example" }), "no usable device code"},
		{"no code", authorization(func(a map[string]any) { delete(a, "device_code") }), "no usable device code"},
		{"the code expires", func(v *oidctest.Vercel) {
			device(v, 0, oidctest.Answer{Status: 400, Body: map[string]string{"error": "authorization_pending"}})
		}, "deadline exceeded"},
		{"polls get lost", func(v *oidctest.Vercel) {
			device(v, 0, nil)
			v.Say(oauthToken, oidctest.Answer{Err: http.ErrServerClosed}, oidctest.Answer{Err: http.ErrServerClosed}, loggedIn("dev_tok"))
		}, ""},
		{"slow down", func(v *oidctest.Vercel) {
			device(v, 0, nil)
			v.Say(oauthToken, oidctest.Answer{Status: 400, Body: map[string]string{"error": "slow_down"}}, loggedIn("dev_tok"))
		}, ""},
		{"refused at once", func(v *oidctest.Vercel) {
			v.Discover()
			v.Say(authorizeLogin, oidctest.Answer{Status: 400, Body: map[string]string{"error": "invalid_client"}})
		}, "invalid_client"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, v, opts := setup(t)
				opts.TeamID, opts.ProjectID = "x", "p"
				test.play(v)
				// A login that has run out is replaced too.
				m.Write(m.LoginFile(), login("token", "run_out", "expiresAt", time.Now().Add(-time.Hour).Unix()))
				got, err := sandbox.DeviceLogin(func(context.Context, sandbox.DeviceCode) error { return nil }, opts).Credentials(t.Context())
				if test.text == "" {
					require.NoError(t, err)
					assert.Equal(t, "dev_tok", got.Token)
					return
				}
				require.ErrorContains(t, err, test.text)
				assert.Equal(t, "run_out", m.Read(m.LoginFile())["token"])
			})
		})
	}
	t.Run("the prompt fails", func(t *testing.T) {
		_, v, opts := setup(t)
		device(v, 0, loggedIn("dev_tok"))
		broken := errors.New("no terminal")
		_, err := sandbox.DeviceLogin(func(context.Context, sandbox.DeviceCode) error { return broken }, opts).Credentials(t.Context())
		require.ErrorIs(t, err, broken)
		assert.NotContains(t, v.Asked(), oauthToken)
	})
}
