package sandboxtest_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestAuthorization(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Token: "right"})
	for header, code := range map[string]int{"": 403, "Bearer": 403, "Bearer ": 403, "Basic right": 403, "Bearer wrong": 403, "Bearer righ": 403,
		"Bearer rightt": 403, "bearer right": 200} {
		req := c.request("GET", "/v2/sandboxes", nil)
		req.Header.Set("Authorization", header)
		assert.Equal(t, code, c.send(req).StatusCode, header)
	}
	assert.Equal(t, "right", c.srv.Credentials().Token)
}

// TestOtherTeams: a valid token works only for its own team, by ID or slug.
func TestOtherTeams(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	for query, code := range map[string]int{
		"?project=prj_emulator": 200, "?project=prj_emulator&teamId=team_emulator": 200, "?project=prj_emulator&slug=emulator": 200,
		"?project=prj_emulator&teamId=team_other": 403, "?project=prj_emulator&slug=other": 403, "?project=prj_emulator&teamId=team_emulator&slug=other": 403,
		"?project=prj_other&teamId=team_other": 200, // as recorded exchanges are
	} {
		assert.Equal(t, code, c.send(c.request("GET", "/v2/sandboxes"+query, nil)).StatusCode, query)
	}
	other := srv.Credentials()
	other.TeamID = "team_other"
	client, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, Credentials: auth.Static(other)})
	require.NoError(t, err)
	sb, err := srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	sn, err := sb.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	for name, call := range map[string]func() error{
		"create":   func() error { _, err := client.Create(t.Context(), nil); return err },
		"get":      func() error { _, err := client.Get(t.Context(), sb.Name(), nil); return err },
		"drive":    func() error { _, err := client.GetOrCreateDrive(t.Context(), "data", nil); return err },
		"snapshot": func() error { _, err := client.GetSnapshot(t.Context(), sn.ID()); return err },
	} {
		err := call()
		require.ErrorIs(t, err, sandbox.ErrUnauthorized, name)
		if name != "drive" { // for drives this can also mean that the plan has none
			assert.ErrorContains(t, err, "team_other", name)
		}
	}
	session := "/v2/sandboxes/sessions/" + sb.CurrentSession().ID()
	assert.Equal(t, 403, c.send(c.request("GET", session+"?teamId=team_other", nil)).StatusCode)
	assert.Equal(t, 200, c.send(c.request("GET", session+"?teamId=team_emulator", nil)).StatusCode)
}

// TestScope: with a token alone, the official command finds its team and project.
func TestScope(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	var user struct {
		User struct{ DefaultTeamID string }
	}
	c.call("GET", "/v2/user", nil, 200, &user)
	assert.Equal(t, "team_emulator", user.User.DefaultTeamID)
	var found struct{ Slug, Name string }
	c.call("GET", "/v2/teams/team_emulator", nil, 200, &found)
	c.call("GET", "/v2/projects/my%20default?teamId=team_emulator", nil, 200, &found)
	assert.Equal(t, []string{"emulator", "my default"}, []string{found.Slug, found.Name})
	c.call("GET", "/v2/teams/emulator", nil, 200, &found)
	var teams struct{ Teams []struct{ ID string } }
	c.call("GET", "/v2/teams?limit=20", nil, 200, &teams)
	assert.Equal(t, "team_emulator", teams.Teams[0].ID)
	const defaultProject = "vercel-sandbox-default-project"
	c.refused("GET", "/v2/projects/"+defaultProject+"?teamId=team_emulator", nil, 404, "not_found")
	c.refused("POST", "/v11/projects?teamId=team_emulator", obj{}, 400, "bad_request")
	c.call("POST", "/v11/projects?teamId=team_emulator", obj{"name": defaultProject}, 200, &found)
	c.call("GET", "/v2/projects/"+defaultProject+"?teamId=team_emulator", nil, 200, &found)
	assert.Equal(t, defaultProject, found.Name)
	c.refused("GET", "/v2/projects/prj_emulator?teamId=team_other", nil, 403, "forbidden")
	c.refused("GET", "/v2/teams/team_other", nil, 404, "not_found")
	c.refused("POST", "/v2/user", obj{}, 404, "not_found")
	req := c.request("GET", "/v2/user", nil)
	req.Header.Del("Authorization")
	assert.Equal(t, 403, c.send(req).StatusCode)
}

// TestTokenNamesItsProject: with an OIDC token, requests need not name the project.
func TestTokenNamesItsProject(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	ask := func(token, method, path string, body any, status int) *wire.SandboxResponse {
		req := c.request(method, path, body)
		req.Header.Set("Authorization", "Bearer "+token)
		resp := c.send(req)
		require.Equal(t, status, resp.StatusCode, "%s %s", method, path)
		out := new(wire.SandboxResponse)
		require.NoError(t, json.NewDecoder(resp.Body).Decode(out))
		return out
	}
	made := ask(srv.OIDCToken(), "POST", "/v3/sandboxes", obj{"name": "box"}, 200)
	assert.Equal(t, srv.Credentials().ProjectID, made.Session.ProjectID)
	made = ask(srv.OIDCToken(), "POST", "/v3/sandboxes", obj{"name": "named", "projectId": "prj_named"}, 200)
	assert.Equal(t, "prj_named", made.Session.ProjectID, "the project in the request takes precedence")
	ask(srv.OIDCToken(), "GET", "/v2/sandboxes/box", nil, 200)
	ask(srv.OIDCToken(), "POST", "/v2/sandboxes/drives/data", obj{}, 201)
	ask(srv.OIDCToken(), "POST", "/v2/sandboxes/drives/data/fork", obj{"name": "copy"}, 201)
	ask(srv.Credentials().Token, "POST", "/v3/sandboxes", obj{}, 400)
	ask(srv.Credentials().Token, "POST", "/v2/sandboxes/drives/data", obj{}, 400)
}

func TestGeneratedToken(t *testing.T) {
	t.Parallel()
	one, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	two, _ := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	assert.NotEqual(t, one.Credentials().Token, two.Credentials().Token)
	assert.GreaterOrEqual(t, len(one.Credentials().Token), 26)
	assert.Equal(t, one.Credentials(), one.Credentials())
	for _, token := range []string{"emulator", "test", two.Credentials().Token} {
		req := c.request("POST", "/v2/sandboxes", obj{"projectId": "prj"})
		req.Header.Set("Authorization", "Bearer "+token)
		assert.Equal(t, 403, c.send(req).StatusCode, token)
	}
}

// TestWebPagesAreKeptOut sends the requests of a web page whose host name
// points to this machine (DNS rebinding), and those of honest clients.
func TestWebPagesAreKeptOut(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Hosts: []string{"ci-emulator"}})
	_, port, err := net.SplitHostPort(c.request("GET", "/", nil).URL.Host)
	require.NoError(t, err)
	for _, x := range []struct {
		host, origin string
		status       int
	}{
		{"127.0.0.1:" + port, "", 200}, {"127.0.0.1", "", 200}, {"localhost:" + port, "", 200}, {"LOCALHOST.:" + port, "", 200},
		{"[::1]:" + port, "", 200}, {"[::1]", "", 200}, {"app.localhost:" + port, "", 200}, {"192.0.2.7:" + port, "", 200},
		{"host.internal:" + port, "", 200}, {"CI-emulator:" + port, "", 200},
		{"evil.example:" + port, "", 403}, {"evil.example", "", 403}, {"localhost.evil.example:" + port, "", 403},
		{"127.0.0.1.nip.example:" + port, "", 403}, {"notlocalhost:" + port, "", 403}, {"ci-emulator.evil.example:" + port, "", 403},
		{"127.0.0.1:" + port, "http://evil.example", 403}, {"127.0.0.1:" + port, "http://127.0.0.1:" + port, 403},
		{"127.0.0.1:" + port, "null", 403}, {"evil.example:" + port, "http://evil.example:" + port, 403},
	} {
		req := c.request("GET", "/v2/sandboxes", nil)
		req.Host = x.host
		if x.origin != "" {
			req.Header.Set("Origin", x.origin)
		}
		assert.Equal(t, x.status, c.send(req).StatusCode, "Host %s, Origin %s", x.host, x.origin)
	}
	// A terminal has its own token, which a page can't obtain.
	sess := c.create(nil).Session.ID
	var response wire.InteractiveResponse
	c.call("POST", session(sess)+"/interactive", obj{}, 200, &response)
	_, resp, err := websocket.Dial(t.Context(), response.URL+"?token="+srv.Credentials().Token, nil)
	require.Error(t, err)
	assert.Equal(t, 401, resp.StatusCode)
}

func TestWarnsBeyondLoopback(t *testing.T) {
	t.Parallel()
	for addr, warned := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true, ":0": true} {
		var log bytes.Buffer
		srv, err := sandboxtest.NewServer(&sandboxtest.Options{Addr: addr, Mode: sandboxtest.Folder,
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		require.NoError(t, err)
		require.NoError(t, srv.Close())
		assert.Equal(t, warned, bytes.Contains(log.Bytes(), []byte("other machines can reach the emulator")), "%s: %s", addr, log.String())
	}
}

// TestStateIsForItsOwner: only the owner may read the saved state, because it contains
// environments and files.
func TestStateIsForItsOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		needs.Other(t, "Windows has no permission bits")
	}
	dir := filepath.Join(t.TempDir(), "state")
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, Dir: dir})
	require.NoError(t, err)
	newRaw(t, srv).create(obj{"name": "one", "env": obj{"SECRET": "s"}})
	require.NoError(t, srv.Close())
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o066, "%v", info.Mode())
	for _, entry := range []string{"state.json", "machines/lock"} {
		info, err := os.Stat(filepath.Join(dir, entry))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), entry)
	}
}
