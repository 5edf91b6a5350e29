package auth_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestTokenFindsItsProject: a token alone is sufficient, with one line of code. With NoCreate no
// project is created.
func TestTokenFindsItsProject(t *testing.T) {
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	token := srv.Credentials().Token
	search := []string{"/v2/user", "/v2/projects/vercel-sandbox-default-project"}
	asked := func() (paths []string) {
		for _, r := range srv.Requests() {
			paths = append(paths, r.Path)
		}
		return paths
	}
	looking := auth.Token(token, &auth.Options{BaseURL: srv.URL, NoCreate: true, Dir: t.TempDir()})
	for range 2 {
		_, err := looking.Credentials(t.Context())
		require.ErrorIs(t, err, auth.ErrNoProject)
		require.NotErrorIs(t, err, auth.ErrNoCredentials)
		assert.ErrorContains(t, err, "team team_emulator has no vercel-sandbox-default-project")
	}
	assert.Equal(t, append(search, search...), asked(), "nothing is created, and the next call searches again")

	m := oidctest.NewMachine(t)
	m.Set("VERCEL_AUTH_TOKEN", token)
	m.Set("VERCEL_SANDBOX_BASE_URL", srv.URL)
	want := auth.Credentials{Token: token, TeamID: "team_emulator", ProjectID: "vercel-sandbox-default-project"}
	for name, p := range map[string]auth.Provider{
		"given":              auth.Token(token, &auth.Options{LookupEnv: m.LookupEnv, Dir: m.Dir}),
		"of the environment": auth.Default(&auth.Options{LookupEnv: m.LookupEnv, Dir: m.Dir}),
	} {
		client, err := sandbox.NewClient(&sandbox.ClientOptions{Credentials: p, BaseURL: srv.URL})
		require.NoError(t, err)
		for range 2 {
			_, err = client.ListPage(t.Context(), nil)
			require.NoError(t, err, name)
		}
		got, err := p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
	got, err := looking.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, got)
	created := 0
	for _, r := range srv.Requests() {
		if r.Method == http.MethodPost {
			created++
		}
	}
	assert.Equal(t, 1, created)
}

func TestTokenScope(t *testing.T) {
	m, v, opts := setup(t)
	got := func(token string) auth.Credentials {
		t.Helper()
		c, err := auth.Token(token, opts).Credentials(t.Context())
		require.NoError(t, err)
		return c
	}
	m.Link("team_l", "prj_l")
	assert.Equal(t, auth.Credentials{Token: "t", TeamID: "team_l", ProjectID: "prj_l"}, got("t"))
	oidcToken := oidctest.Token("team_c", "prj_c", time.Hour)
	assert.Equal(t, auth.Credentials{Token: oidcToken, TeamID: "team_c", ProjectID: "prj_c"}, got(oidcToken))
	opts.ProjectID = "prj_o"
	assert.Equal(t, auth.Credentials{Token: "t", TeamID: "team_l", ProjectID: "prj_o"}, got("t"))
	opts.TeamID = "team_o"
	assert.Equal(t, auth.Credentials{Token: "t", TeamID: "team_o", ProjectID: "prj_o"}, got("t"))
	assert.Empty(t, v.Asked())

	// A link to another team's project is ignored.
	opts.ProjectID = ""
	v.Say(getDefault, forbiddenResponse(http.StatusNotFound))
	opts.NoCreate = true
	_, err := auth.Token("t", opts).Credentials(t.Context())
	require.ErrorIs(t, err, auth.ErrNoProject)
	assert.Equal(t, []string{getDefault}, v.Asked())

	// With a given project no default project is needed.
	require.NoError(t, os.Remove(m.LinkFile()))
	opts.TeamID, opts.ProjectID = "", "prj_o"
	v.Say(getUser, userResponse("team_d"))
	v.Say(getTeamD, map[string]string{"slug": "d"})
	assert.Equal(t, auth.Credentials{Token: "t", TeamID: "team_d", ProjectID: "prj_o"}, got("t"))

	var log bytes.Buffer
	m.Link("team_l", "prj_l")
	opts.Logger, opts.ProjectID = slog.New(slog.NewTextHandler(&log, nil)), ""
	v.Say("GET vercel.com/api/v2/teams/team_l", map[string]string{"slug": "l"})
	got("planted_secret")
	assert.Contains(t, log.String(), "teamSlug=l")
	assert.NotContains(t, log.String(), "planted_secret")
}

func TestTokenCannotBeUsed(t *testing.T) {
	_, v, opts := setup(t)
	opts.TeamID, opts.ProjectID = "x", "p"
	_, err := auth.Token("", opts).Credentials(t.Context())
	require.EqualError(t, err, "sandbox: no credentials found: the token is empty")
	require.ErrorIs(t, err, auth.ErrNoCredentials)
	opts.ProjectID = ""
	_, err = auth.Token("planted\n", opts).Credentials(t.Context())
	require.ErrorContains(t, err, "Token may only contain printable ASCII")
	assert.NotContains(t, err.Error(), "planted")
	assert.Empty(t, v.Asked(), "the token is not sent")
	opts.ProjectID = "p"
	p := auth.Token("t", opts)
	_, err = p.Refresh(t.Context(), auth.Credentials{Token: "t"})
	require.EqualError(t, err, "sandbox: credentials: the API rejected the token, which can't be refreshed")
	for _, base := range []string{"http://example.com/api", "https://user:planted@x", "x"} {
		_, err := auth.Token("t", &auth.Options{LookupEnv: func(key string) (string, bool) {
			return base, key == "VERCEL_SANDBOX_BASE_URL"
		}, Dir: t.TempDir()}).Credentials(t.Context())
		require.ErrorContains(t, err, "the address of the API", base)
		assert.NotContains(t, err.Error(), "planted")
	}
}

// TestLoneTokenOfTheEnvironment: the link completes VERCEL_TOKEN, or the error says why not. No
// project is searched for or created.
func TestLoneTokenOfTheEnvironment(t *testing.T) {
	m, v, opts := setup(t)
	m.Set("VERCEL_TOKEN", "t")
	p := auth.Default(opts)
	_, err := p.Credentials(t.Context())
	missing, ok := err.(*auth.MissingError)
	require.True(t, ok)
	assert.Equal(t, []string{"VERCEL_TEAM_ID", "VERCEL_PROJECT_ID"}, missing.Missing)
	require.ErrorContains(t, err, "missing VERCEL_TEAM_ID, VERCEL_PROJECT_ID; no project is linked to this folder or a parent (run `vercel link`)")
	m.Link("", "prj_l")
	_, err = p.Credentials(t.Context())
	require.ErrorContains(t, err, "has no team")
	m.Link("team_l", "prj_l")
	want := auth.Credentials{Token: "t", TeamID: "team_l", ProjectID: "prj_l"}
	got, err := p.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, got)
	m.Link("team_later", "prj_later")
	got, err = p.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, got, "a provider keeps its project")
	m.Set("VERCEL_PROJECT_ID", "prj_e")
	got, err = p.Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, auth.Credentials{Token: "t", TeamID: "team_later", ProjectID: "prj_e"}, got)
	m.Write(m.LinkFile(), "{")
	_, err = auth.Default(opts).Credentials(t.Context())
	require.ErrorContains(t, err, "does not hold a JSON object")
	m.Set("VERCEL_PROJECT_ID", "")
	opts.TeamID, opts.ProjectID = "team_o", "prj_o"
	got, err = auth.Default(opts).Credentials(t.Context())
	require.NoError(t, err)
	assert.Equal(t, auth.Credentials{Token: "t", TeamID: "team_o", ProjectID: "prj_o"}, got)
	assert.Empty(t, v.Asked())
}
