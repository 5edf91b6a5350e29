package oidc_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

func TestLocations(t *testing.T) {
	windows := map[string]string{"USERPROFILE": `C:\Users\me`, "LOCALAPPDATA": `D:\local`, "APPDATA": `C:\Users\me\AppData\Roaming`}
	for _, test := range []struct {
		name, goos   string
		env          map[string]string
		login, token string
	}{
		{"linux", "linux", map[string]string{"HOME": "/home/me"},
			"/home/me/.local/share/com.vercel.cli/auth.json", "/home/me/.local/share/com.vercel.token/prj.json"},
		{"freebsd", "freebsd", map[string]string{"HOME": "/home/me"},
			"/home/me/.local/share/com.vercel.cli/auth.json", "/home/me/.local/share/com.vercel.token/prj.json"},
		{"linux, XDG", "linux", map[string]string{"HOME": "/home/me", "XDG_DATA_HOME": "/data"},
			"/data/com.vercel.cli/auth.json", "/data/com.vercel.token/prj.json"},
		{"linux, XDG without a home", "linux", map[string]string{"XDG_DATA_HOME": "/data"},
			"/data/com.vercel.cli/auth.json", "/data/com.vercel.token/prj.json"},
		{"the CLI's folder named", "linux", map[string]string{"HOME": "/home/me", "VERCEL_AUTH_CONFIG_DIR": "/auth"},
			"/auth/auth.json", "/home/me/.local/share/com.vercel.token/prj.json"},
		{"macOS", "darwin", map[string]string{"HOME": "/Users/me"},
			"/Users/me/Library/Application Support/com.vercel.cli/auth.json", "/Users/me/Library/Application Support/com.vercel.token/prj.json"},
		{"macOS, XDG", "darwin", map[string]string{"HOME": "/Users/me", "XDG_DATA_HOME": "/data"},
			"/data/com.vercel.cli/auth.json", "/data/com.vercel.token/prj.json"},
		{"Windows", "windows", windows,
			`D:\local\com.vercel.cli\auth.json`, `D:\local\com.vercel.token\prj.json`},
		{"Windows without LOCALAPPDATA", "windows", map[string]string{"USERPROFILE": `C:\Users\me`},
			`C:\Users\me\AppData\Local\com.vercel.cli\auth.json`, `C:\Users\me\AppData\Local\com.vercel.token\prj.json`},
		{"Windows, the CLI's folder named", "windows", map[string]string{"LOCALAPPDATA": `D:\local`, "VERCEL_AUTH_CONFIG_DIR": `E:\auth`},
			`E:\auth\auth.json`, `D:\local\com.vercel.token\prj.json`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := oidc.NewHost(nil, func(key string) string { return test.env[key] }, "")
			h.GOOS = test.goos
			login, err := h.LoginFile()
			require.NoError(t, err)
			assert.Equal(t, test.login, login)
			token, err := h.TokenFile("prj")
			require.NoError(t, err)
			assert.Equal(t, test.token, token)
		})
	}
	for goos, key := range map[string]string{"linux": "HOME", "darwin": "HOME", "windows": "USERPROFILE"} {
		h := oidc.NewHost(nil, func(string) string { return "" }, "")
		h.GOOS = goos
		_, err := h.LoginFile()
		assert.ErrorContains(t, err, key+" is not set")
	}
}

func TestWindowsLoginOfTheCLI(t *testing.T) {
	m := oidctest.NewMachine(t)
	local, roaming := filepath.Join(m.Home, "local"), filepath.Join(m.Home, "roaming")
	h := oidc.NewHost(nil, func(key string) string {
		return map[string]string{"LOCALAPPDATA": local, "APPDATA": roaming}[key]
	}, "")
	h.GOOS = "windows"
	first, second := local+`\com.vercel.cli\auth.json`, roaming+`\xdg.data\com.vercel.cli\auth.json`
	for _, step := range []struct{ write, want string }{{"", first}, {second, second}, {first, first}} {
		if step.write != "" {
			m.Write(step.write, "{}")
		}
		file, err := h.LoginFile()
		require.NoError(t, err)
		assert.Equal(t, step.want, file)
	}
}

func TestTokenFileStaysInItsFolder(t *testing.T) {
	h := oidc.NewHost(nil, func(string) string { return "/home/me" }, "")
	for _, id := range []string{"", ".", "..", "../x", "a/b", `a\b`, "C:x", "a\x00", "a\n", "nul?", " a", "a.", ".a", string(make([]byte, 300))} {
		_, err := h.TokenFile(id)
		assert.ErrorContains(t, err, "invalid project ID", "%q", id)
	}
	for _, id := range []string{"prj_1", "a b", "my-app", "ünïcode"} {
		file, err := h.TokenFile(id)
		require.NoError(t, err)
		assert.Equal(t, id+".json", filepath.Base(file))
	}
}

func TestNothingIsFound(t *testing.T) {
	m := oidctest.NewMachine(t)
	h := oidc.NewHost(nil, m.Getenv, m.Dir)
	_, err := h.Link()
	require.ErrorIs(t, err, oidc.ErrNotLinked)
	require.ErrorIs(t, err, oidc.ErrNothing)
	_, err = h.Login(t.Context(), 0, "")
	require.ErrorIs(t, err, oidc.ErrNotLoggedIn)
	for _, content := range []string{"", "{}", `{"token":""}`, `{"refreshToken":"r"}`, `{"token":null}`} {
		m.Write(m.LoginFile(), content)
		_, err = h.Login(t.Context(), 0, "")
		require.ErrorIs(t, err, oidc.ErrNotLoggedIn, content)
	}
}
