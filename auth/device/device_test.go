package device_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
	"github.com/go-vercel/sandbox/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Main(m) }

const (
	discovery      = "GET vercel.com/.well-known/openid-configuration"
	authorizeLogin = "POST api.vercel.com/login/oauth/device-authorization"
	oauthToken     = "POST api.vercel.com/login/oauth/token"
	getUser        = "GET vercel.com/api/v2/user"
	getDefault     = "GET vercel.com/api/v2/projects/vercel-sandbox-default-project"
	getTeamD       = "GET vercel.com/api/v2/teams/team_d"
)

func setup(t *testing.T) (*oidctest.Machine, *oidctest.Vercel, *auth.Options) {
	m, v := oidctest.NewMachine(t), &oidctest.Vercel{}
	return m, v, &auth.Options{HTTPClient: v.Client(), LookupEnv: m.LookupEnv, Dir: m.Dir, Interactive: new(false)}
}

// withoutSource returns credentials without their source.
func withoutSource(c auth.Credentials) auth.Credentials {
	return auth.Credentials{Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID}
}

// respond makes v respond to the device flow, first with pending responses, then with last.
func respond(v *oidctest.Vercel, pending int, last any) {
	v.Discover()
	v.Say(authorizeLogin, map[string]any{
		"device_code": "dev_secret", "user_code": "U-C", "verification_uri": "https://vercel.com/device",
		"verification_uri_complete": "https://vercel.com/device?c=U-C", "expires_in": 600, "interval": 0,
	})
	responses := make([]any, pending, pending+1)
	for i := range responses {
		responses[i] = oidctest.Response{Status: 400, Body: map[string]string{"error": "authorization_pending"}}
	}
	v.Say(oauthToken, append(responses, last)...)
}

func loggedIn(token string) any {
	return map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r"}
}

func TestDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		respond(v, 1, loggedIn("dev_tok"))
		v.Say(getUser, map[string]any{"user": map[string]any{"defaultTeamId": "team_d", "username": "me"}})
		v.Say(getDefault, struct{}{})
		v.Say(getTeamD, map[string]string{"slug": "d"})
		m.Write(m.LoginFile(), map[string]any{"// Note": "kept"})
		var shown strings.Builder
		p := auth.Chain(auth.Default(opts), device.Login(device.PromptOn(&shown), opts))
		got, err := p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, auth.Credentials{Token: "dev_tok", TeamID: "team_d", ProjectID: "vercel-sandbox-default-project"}, withoutSource(got))
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

func TestDeviceDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		respond(v, 2, oidctest.Response{Status: 400, Body: map[string]string{"error": "access_denied", "error_description": "The user said no"}})
		var mu sync.Mutex
		prompts := 0
		p := device.Login(func(context.Context, device.Code) error {
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
		assert.Equal(t, 1, prompts, "all callers wait for the same login")
		assert.NoFileExists(t, m.LoginFile())
	})
}

func TestDeviceWhenTheLeaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v, opts := setup(t)
		opts.TeamID, opts.ProjectID = "x", "p"
		respond(v, 3, loggedIn("dev_tok"))
		p := device.Login(func(context.Context, device.Code) error { return nil }, opts)
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

func TestDeviceFailures(t *testing.T) {
	authorization := func(change func(map[string]any)) func(*oidctest.Vercel) {
		return func(v *oidctest.Vercel) {
			respond(v, 0, loggedIn("dev_tok"))
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
		text string // "" means success
	}{
		{"a negative interval", authorization(func(a map[string]any) { a["interval"] = -5 }), ""},
		{"a huge interval", authorization(func(a map[string]any) { a["interval"] = int64(1) << 62 }), ""},
		{"no expiry", authorization(func(a map[string]any) { delete(a, "expires_in") }), ""},
		{"a page elsewhere", authorization(func(a map[string]any) { a["verification_uri"] = "https://evil.example" }), "no usable device code"},
		{"no code", authorization(func(a map[string]any) { delete(a, "device_code") }), "no usable device code"},
		{"the code expires", func(v *oidctest.Vercel) {
			respond(v, 0, oidctest.Response{Status: 400, Body: map[string]string{"error": "authorization_pending"}})
		}, "deadline exceeded"},
		{"polls get lost", func(v *oidctest.Vercel) {
			respond(v, 0, nil)
			v.Say(oauthToken, oidctest.Response{Err: http.ErrServerClosed}, oidctest.Response{Err: http.ErrServerClosed}, loggedIn("dev_tok"))
		}, ""},
		{"slow down", func(v *oidctest.Vercel) {
			respond(v, 0, nil)
			v.Say(oauthToken, oidctest.Response{Status: 400, Body: map[string]string{"error": "slow_down"}}, loggedIn("dev_tok"))
		}, ""},
		{"refused at once", func(v *oidctest.Vercel) {
			v.Discover()
			v.Say(authorizeLogin, oidctest.Response{Status: 400, Body: map[string]string{"error": "invalid_client"}})
		}, "invalid_client"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, v, opts := setup(t)
				opts.TeamID, opts.ProjectID = "x", "p"
				test.play(v)
				// An expired login is replaced, too.
				m.Write(m.LoginFile(), map[string]any{"token": "run_out", "expiresAt": time.Now().Add(-time.Hour).Unix()})
				got, err := device.Login(func(context.Context, device.Code) error { return nil }, opts).Credentials(t.Context())
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
		respond(v, 0, loggedIn("dev_tok"))
		broken := errors.New("no terminal")
		_, err := device.Login(func(context.Context, device.Code) error { return broken }, opts).Credentials(t.Context())
		require.ErrorIs(t, err, broken)
		assert.NotContains(t, v.Asked(), oauthToken)
	})
}

// TestLoginAfterARefusal: a refused refresh token does not prevent a login, and the program keeps its
// project, whichever user logs in.
func TestLoginAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, v, opts := setup(t)
		respond(v, 0, nil)
		refused := oidctest.Response{Status: 400, Body: map[string]string{"error": "invalid_grant"}}
		v.Say(oauthToken, refused, loggedIn("first"), refused, loggedIn("second"))
		v.Say(getUser, map[string]any{"user": map[string]any{"defaultTeamId": "team_d", "username": "me"}})
		v.Say(getDefault, struct{}{})
		v.Say(getTeamD, map[string]string{"slug": "d"})
		m.Write(m.LoginFile(), map[string]any{"token": "old", "refreshToken": "r0", "expiresAt": time.Now().Add(-time.Hour).Unix()})
		p := device.Login(func(context.Context, device.Code) error { return nil }, opts)
		first, err := p.Credentials(t.Context())
		require.NoError(t, err)
		assert.Equal(t, auth.Credentials{Token: "first", TeamID: "team_d", ProjectID: "vercel-sandbox-default-project"}, withoutSource(first))
		v.Say(getUser, map[string]any{"user": map[string]any{"defaultTeamId": "team_e", "username": "you"}})
		second, err := p.Refresh(t.Context(), first)
		require.NoError(t, err)
		assert.Equal(t, auth.Credentials{Token: "second", TeamID: "team_d", ProjectID: "vercel-sandbox-default-project"}, withoutSource(second))
	})
}
