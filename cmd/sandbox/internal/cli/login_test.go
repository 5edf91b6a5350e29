package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// TestPagesAreOpened: programs that open pages get only addresses of web pages, because
// they might run a file.
func TestPagesAreOpened(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"https://vercel.com/device?code=AB", "http://127.0.0.1:3000/", "HTTPS://vercel.com"} {
		cmd, err := pageCommand(address)
		require.NoError(t, err, address)
		assert.Equal(t, address, cmd.Args[len(cmd.Args)-1])
	}
	for _, address := range []string{"", "-a Calculator", "--help", "/bin/sh", "file:///bin/sh", "FILE:///c:/x.exe", "javascript:alert(1)", "ssh://host", "https:", "https:///x", "C:\\x.exe", " https://vercel.com", "vercel.com"} {
		_, err := pageCommand(address)
		require.ErrorContains(t, err, "not the address of a page", address)
	}
}

// TestTokensStayOutOfArguments: login accepts no token as an argument, which every user
// of the machine could see, and stores none.
func TestTokensStayOutOfArguments(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	host := oidc.NewHost(nil, func(name string) string {
		if name == "HOME" || name == "XDG_DATA_HOME" {
			return home
		}
		return ""
	}, "")
	login := func(token, in string) (oidc.Login, error) {
		name := filepath.Join(t.TempDir(), "in")
		require.NoError(t, os.WriteFile(name, []byte(in), 0o600))
		stdin, err := os.Open(name)
		require.NoError(t, err)
		defer stdin.Close()
		a := newApp(nil)
		a.screen.In, a.account.Given.Token = stdin, token
		return (&loginCommand{deps: a.deps}).newLogin(t.Context(), host)
	}
	_, err := login("vcp_secret", "")
	require.ErrorContains(t, err, "other users can see")
	assert.NotContains(t, err.Error(), "vcp_secret")
	for _, in := range []string{"", " \n", "two words", "two\nlines"} {
		_, err := login("-", in)
		require.ErrorContains(t, err, "holds no token", "%q", in)
	}
}
