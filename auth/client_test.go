package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

const (
	listSandboxes  = "GET vercel.com/api/v2/sandboxes"
	createSandbox  = "POST vercel.com/api/v3/sandboxes"
	exchangeOIDC   = "POST api.vercel.com/v1/projects/prj_oidc/token"
	emptyListing   = `{"sandboxes":[],"pagination":{"count":0,"next":null}}`
	forbiddenError = `{"error":{"code":"forbidden","message":"The token is not valid"}}`
)

func list(t *testing.T, c *sandbox.Client) error {
	for _, err := range c.List(t.Context(), nil) {
		return err
	}
	return nil
}

func TestTokenThatExpiresInFlight(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		synctest.Test(t, func(t *testing.T) {
			m, v, opts := setup(t)
			old := oidctest.Token("team_oidc", "prj_oidc", time.Minute)
			fresh := oidctest.Token("team_oidc", "prj_oidc", 2*time.Hour)
			m.Set("VERCEL_OIDC_TOKEN", old)
			m.Write(m.LoginFile(), login())
			// Refreshing early fails, so the old token is used until it expires.
			v.Say(exchangeOIDC, oidctest.Response{Status: 503, Body: "busy"}, map[string]string{"token": fresh})
			for _, on := range []string{listSandboxes, createSandbox} {
				v.Handle(on, func(r oidctest.Request) oidctest.Response {
					if r.Authorization == "Bearer "+old {
						time.Sleep(2 * time.Minute)
						return oidctest.Response{Status: status, Body: json.RawMessage(forbiddenError)}
					}
					return oidctest.Response{Body: json.RawMessage(emptyListing)}
				})
			}
			c, err := sandbox.NewClient(&sandbox.ClientOptions{Credentials: auth.Default(opts), HTTPClient: v.Client()})
			require.NoError(t, err)
			require.NoError(t, list(t, c))
			assert.Equal(t, []string{exchangeOIDC, listSandboxes, exchangeOIDC, listSandboxes}, v.Asked())
			require.NoError(t, list(t, c))
			assert.Len(t, v.Asked(), 5)
		})
	}
}

func TestTokenRefusedBeforeItExpires(t *testing.T) {
	m, v, opts := setup(t)
	m.Set("VERCEL_OIDC_TOKEN", oidctest.Token("team_oidc", "prj_oidc", time.Hour))
	m.Write(m.LoginFile(), login())
	v.Say(listSandboxes, oidctest.Response{Status: 403, Body: json.RawMessage(forbiddenError)})
	c, err := sandbox.NewClient(&sandbox.ClientOptions{Credentials: auth.Default(opts), HTTPClient: v.Client()})
	require.NoError(t, err)
	err = list(t, c)
	var apiErr *sandbox.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, 403, apiErr.Status)
	assert.Equal(t, []string{listSandboxes}, v.Asked(), "a new token would not allow more")
}

func TestCredentialsAreCheckedBeforeARequest(t *testing.T) {
	v := &oidctest.Vercel{}
	for text, c := range map[string]auth.Credentials{
		"missing Token, ProjectID":               {TeamID: "t"},
		"Token may only contain printable ASCII": {Token: "planted\r\nsecret", TeamID: "t", ProjectID: "p"},
	} {
		provider := auth.ProviderFunc(func(context.Context) (auth.Credentials, error) { return c, nil })
		for _, p := range []auth.Provider{provider, auth.Static(c)} {
			client, err := sandbox.NewClient(&sandbox.ClientOptions{Credentials: p, HTTPClient: v.Client()})
			require.NoError(t, err)
			for _, err := range []error{list(t, client), client.Delete(t.Context(), "name", nil)} {
				require.ErrorContains(t, err, text)
				assert.NotContains(t, err.Error(), "planted")
			}
		}
	}
	assert.Empty(t, v.Asked())
}

func TestTokenGoesNowhereElse(t *testing.T) {
	const secret = "planted_secret"
	v := &oidctest.Vercel{}
	v.Say(listSandboxes,
		oidctest.Response{Status: 302, Body: "", Header: http.Header{"Location": {"https://evil.example/steal"}}},
		oidctest.Response{Status: 500, Body: "no"})
	v.Say("GET evil.example/steal", oidctest.Response{Status: 403, Body: "thanks"})
	var log bytes.Buffer
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(auth.Credentials{Token: secret, TeamID: "team", ProjectID: "prj"}),
		HTTPClient:  v.Client(), MaxRetries: -1,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	var shown []string
	for range 2 {
		err := list(t, c)
		require.Error(t, err)
		shown = append(shown, fmt.Sprintf("%v %+v %#v", err, err, err))
	}
	shown = append(shown, fmt.Sprintf("%v %+v %#v", c, c, c), log.String())
	for _, text := range shown {
		assert.NotContains(t, text, secret)
	}
	for _, r := range v.Requests() {
		if r.String() == listSandboxes {
			assert.Equal(t, "Bearer "+secret, r.Authorization)
			continue
		}
		assert.NotContains(t, fmt.Sprint(r), secret)
	}
	assert.Contains(t, v.Asked(), "GET evil.example/steal")
}
