package auth_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	oidclogin "github.com/go-vercel/sandbox/internal/oidc/login"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

func TestLogout(t *testing.T) {
	t.Parallel()
	const discovery, revocation = "GET vercel.com/.well-known/openid-configuration", "POST api.vercel.com/login/oauth/token/revoke"
	kept := map[string]any{"token": "t1", "refreshToken": "r1", "expiresAt": int64(4102444800), "other": "kept"}
	setUp := func(t *testing.T, address string) (*oidctest.Machine, *oidctest.Vercel, *oidc.Host) {
		m, v := oidctest.NewMachine(t), &oidctest.Vercel{}
		v.Say(discovery, map[string]string{"revocation_endpoint": address})
		v.Say(revocation, map[string]string{})
		m.Write(m.LoginFile(), kept)
		return m, v, oidc.NewHost(v.Client(), m.Getenv, "")
	}

	t.Run("revoked and emptied", func(t *testing.T) {
		t.Parallel()
		m, v, h := setUp(t, "https://api.vercel.com/login/oauth/token/revoke")
		require.NoError(t, oidclogin.Logout(t.Context(), h))
		assert.Equal(t, map[string]any{"other": "kept"}, m.Read(m.LoginFile()))
		assert.Equal(t, []string{discovery, revocation}, v.Asked())
		assert.ErrorIs(t, oidclogin.Logout(t.Context(), h), oidc.ErrNotLoggedIn)
	})
	t.Run("kept when the issuer fails", func(t *testing.T) {
		t.Parallel()
		m, v, h := setUp(t, "https://api.vercel.com/login/oauth/token/revoke")
		v.Say(revocation, oidctest.Response{Status: 503})
		assert.Error(t, oidclogin.Logout(t.Context(), h))
		assert.Equal(t, "r1", m.Read(m.LoginFile())["refreshToken"])
	})
	t.Run("sent to the issuer only", func(t *testing.T) {
		t.Parallel()
		m, v, h := setUp(t, "https://evil.example/revoke")
		assert.ErrorContains(t, oidclogin.Logout(t.Context(), h), "no usable revocation_endpoint")
		assert.Equal(t, []string{discovery}, v.Asked())
		assert.Equal(t, "t1", m.Read(m.LoginFile())["token"])
	})
}

func TestLoginFileThatIsALinkStaysOne(t *testing.T) {
	m := oidctest.NewMachine(t)
	real := filepath.Join(m.Home, "dotfiles", "auth.json")
	m.Write(real, map[string]any{"token": "old"})
	require.NoError(t, os.MkdirAll(filepath.Dir(m.LoginFile()), 0o755))
	require.NoError(t, os.Symlink(real, m.LoginFile()))
	h := oidc.NewHost(nil, m.Getenv, m.Dir)
	require.NoError(t, oidclogin.Save(t.Context(), h, oidc.Login{Token: "new"}))
	assert.Equal(t, map[string]any{"token": "new"}, m.Read(real))
	info, err := os.Lstat(m.LoginFile())
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink)
}
