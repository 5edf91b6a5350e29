package auth_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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
			`C:\Users\me\AppData\Roaming\com.vercel.cli\Data\auth.json`, `D:\local\com.vercel.token\prj.json`},
		{"Windows, XDG", "windows", map[string]string{"USERPROFILE": `C:\Users\me`, "XDG_DATA_HOME": `E:\data`},
			`E:\data\com.vercel.cli\auth.json`, `E:\data\com.vercel.token\prj.json`},
		{"Windows without LOCALAPPDATA and APPDATA", "windows", map[string]string{"USERPROFILE": `C:\Users\me`},
			`C:\Users\me\AppData\Roaming\com.vercel.cli\Data\auth.json`, `C:\Users\me\AppData\Local\com.vercel.token\prj.json`},
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

// TestCLIFolders: the first of the CLI's possible folders that exists is its
// folder, or else the first.
func TestCLIFolders(t *testing.T) {
	for goos, dirs := range map[string][]string{
		"linux":   {"data/com.vercel.cli", "more/com.vercel.cli", ".now", "data/now", "more/now"},
		"windows": {`roaming\com.vercel.cli\Data`, `more\com.vercel.cli`, `roaming\xdg.data\com.vercel.cli`, `\.now`, `roaming\now\Data`, `more\now`},
	} {
		m := oidctest.NewMachine(t)
		env := map[string]string{"XDG_DATA_DIRS": filepath.Join(m.Home, "more"), "HOME": m.Home, "USERPROFILE": m.Home, "APPDATA": filepath.Join(m.Home, "roaming")}
		slash := "/"
		if goos == "windows" {
			slash = `\`
		} else {
			env["XDG_DATA_HOME"] = filepath.Join(m.Home, "data")
		}
		h := oidc.NewHost(nil, func(key string) string { return env[key] }, "")
		h.GOOS = goos
		place := func(dir string) string {
			if strings.HasPrefix(dir, `\`) {
				return m.Home + dir
			}
			return filepath.Join(m.Home, dir)
		}
		login := func() string {
			file, err := h.LoginFile()
			require.NoError(t, err)
			return file
		}
		assert.Equal(t, place(dirs[0])+slash+"auth.json", login())
		for _, dir := range slices.Backward(dirs) {
			require.NoError(t, os.MkdirAll(place(dir), 0o755))
			assert.Equal(t, place(dir)+slash+"auth.json", login(), goos)
		}
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
	for _, content := range []string{"", "{}", `{"token":""}`, `{"token":null}`} {
		m.Write(m.LoginFile(), content)
		_, err = h.Login(t.Context(), 0, "")
		require.ErrorIs(t, err, oidc.ErrNotLoggedIn, content)
	}
}
