package sandboxtest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestStateSurvives(t *testing.T) {
	inModes(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		opts := &sandboxtest.Options{Mode: probe.Mode(), Dir: filepath.Join(t.TempDir(), "state")}
		open := func() (*sandboxtest.Server, *raw) {
			t.Helper()
			srv, err := sandboxtest.NewServer(opts)
			require.NoError(t, err)
			return srv, newRaw(t, srv)
		}
		srv, c := open()
		made := c.create(obj{"name": "one", "env": obj{"E": "env"}, "ports": []int{3000}, "tags": obj{"a": "b"},
			"networkPolicy": obj{"allow": []string{"a.com"}}})
		snap := c.keepFile("one", "first")
		running := c.get("one", "", 200).Session.ID
		c.sh(running, "echo second > file")
		c.create(obj{"name": "two", "persistent": false})
		srv.Advance(time.Minute)
		_, err := sandboxtest.NewServer(opts)
		require.Error(t, err, "the directory is in use")
		require.NoError(t, srv.Close())
		require.NoError(t, srv.Close())

		info, err := os.Stat(filepath.Join(opts.Dir, "state.json"))
		require.NoError(t, err)
		if runtime.GOOS != "windows" {
			assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		}

		srv, c = open()
		assert.Greater(t, time.Until(srv.Now()), 50*time.Second, "the clock goes on from where it was")
		idle := c.get("one", "&resume=false", 200)
		assert.Equal(t, "stopped", idle.Session.Status)
		assert.Equal(t, running, idle.Session.ID)
		assert.Equal(t, map[string]string{"a": "b"}, idle.Sandbox.Tags)
		assert.Equal(t, []string{"a.com"}, idle.Sandbox.NetworkPolicy.AllowedDomains)
		assert.True(t, made.Sandbox.CreatedAt.Equal(idle.Sandbox.CreatedAt.Time))
		assert.Len(t, idle.Routes, 1)
		assert.Equal(t, "second\nenv\n", c.sh(c.get("one", "", 200).Session.ID, "cat file; echo $E"))
		assert.Equal(t, "created", c.snapshotStatus(snap))
		var sessions wire.SessionsPage
		c.call("GET", "/v2/sandboxes/sessions?project=prj&name=one", nil, 200, &sessions)
		assert.Len(t, sessions.Sessions, 3)
		assert.Empty(t, c.sh(c.get("two", "", 200).Session.ID, "ls"))
		require.NoError(t, srv.Close())
	})
}

func TestStateAfterACrash(t *testing.T) {
	dir := t.TempDir()
	opts := &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: dir}
	srv, err := sandboxtest.NewServer(opts)
	require.NoError(t, err)
	c := newRaw(t, srv)
	c.create(obj{"name": "one"})
	c.keepFile("one", "saved")
	sess := c.get("one", "", 200).Session.ID
	c.sh(sess, "echo lost > file")
	// What the server has saved while the session ran is what a crash leaves.
	var crashed []byte
	require.Eventually(t, func() bool {
		crashed, err = os.ReadFile(filepath.Join(dir, "state.json"))
		return err == nil && bytes.Contains(crashed, []byte(sess))
	}, eventually, 10*time.Millisecond)
	require.NoError(t, srv.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), crashed, 0o600))

	_, c = start(t, opts)
	assert.Equal(t, "aborted", c.session(sess).Status)
	assert.False(t, c.session(sess).AbortedAt.IsZero())
	back := c.get("one", "", 200)
	assert.True(t, back.Resumed)
	assert.Equal(t, "saved\n", c.sh(back.Session.ID, "cat file"))
}

func TestDamagedState(t *testing.T) {
	for _, content := range []string{"{", `{"version":99}`} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), []byte(content), 0o600))
		_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, Dir: dir})
		require.ErrorContains(t, err, "state.json")
	}
	_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: "virtual"})
	require.Error(t, err)
	_, err = sandboxtest.NewServer(&sandboxtest.Options{Stopping: -1})
	require.Error(t, err)
	_, err = sandboxtest.NewServer(&sandboxtest.Options{Addr: "256.0.0.1:0"})
	require.Error(t, err)
}
