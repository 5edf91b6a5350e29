package sandboxtest_test

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestLockedDirectory: a server that can't lock its directory changes no file there. It
// does not even create the files that a server creates at its start, because the server
// that has locked the directory may be about to create them.
func TestLockedDirectory(t *testing.T) {
	t.Parallel()
	opts := &sandboxtest.Options{Dir: filepath.Join(t.TempDir(), "state")}
	srv, err := sandboxtest.NewServer(opts)
	require.NoError(t, err)
	name := filepath.Join(opts.Dir, "authority.pem")
	refused := func() {
		t.Helper()
		_, err := sandboxtest.NewServer(opts)
		require.ErrorContains(t, err, "in use")
	}
	require.NoError(t, os.Remove(name))
	refused()
	assert.NoFileExists(t, name)
	require.NoError(t, os.WriteFile(name, []byte("half"), 0o600))
	refused()
	require.NoError(t, srv.Close())
	_, err = sandboxtest.NewServer(opts)
	require.ErrorContains(t, err, "authority.pem is damaged")
}

func TestStateSurvives(t *testing.T) {
	t.Parallel()
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
		snap := c.saveFile("one", "first")
		running := c.get("one", "&resume=true", 200).Session.ID
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

		closed := srv.Now()
		srv, c = open()
		assert.False(t, srv.Now().Before(closed), "the clock continues from where it was")
		idle := c.get("one", "&resume=false", 200)
		assert.Equal(t, "stopped", idle.Session.Status)
		assert.Equal(t, running, idle.Session.ID)
		assert.Equal(t, map[string]string{"a": "b"}, idle.Sandbox.Tags)
		assert.Equal(t, []string{"a.com"}, idle.Sandbox.NetworkPolicy.AllowedDomains)
		assert.True(t, made.Sandbox.CreatedAt.Equal(idle.Sandbox.CreatedAt.Time))
		assert.Len(t, idle.Routes, 1)
		assert.Equal(t, "second\nenv\n", c.sh(c.get("one", "&resume=true", 200).Session.ID, "cat file; echo $E"))
		assert.Equal(t, "created", c.snapshotStatus(snap))
		var sessions wire.SessionsPage
		c.call("GET", "/v2/sandboxes/sessions?project=prj&name=one", nil, 200, &sessions)
		assert.Len(t, sessions.Sessions, 3)
		c.refused("GET", "/v2/sandboxes/two?projectId=prj&resume=true", nil, 400, "snapshot_not_found")
		require.NoError(t, srv.Close())
	})
}

func TestStateAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: dir}
	srv, err := sandboxtest.NewServer(opts)
	require.NoError(t, err)
	c := newRaw(t, srv)
	c.create(obj{"name": "one"})
	c.saveFile("one", "saved")
	sess := c.get("one", "&resume=true", 200).Session.ID
	c.sh(sess, "echo lost > file")
	// A crash leaves the state that the server has saved while the session runs.
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
	back := c.get("one", "&resume=true", 200)
	assert.True(t, back.Resumed)
	assert.Equal(t, "saved\n", c.sh(back.Session.ID, "cat file"))
}

// TestFailedSaveDeletesNothing: the files of a deleted snapshot are removed only once the
// saved state no longer names it. A save replaces the state file instead of writing into
// it.
func TestFailedSaveDeletesNothing(t *testing.T) {
	t.Parallel()
	opts := &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: filepath.Join(t.TempDir(), "state")}
	_, c := start(t, opts)
	c.create(obj{"name": "one"})
	snapshot := c.saveFile("one", "text")
	layers := func() []string {
		all, err := filepath.Glob(filepath.Join(opts.Dir, "machines/*/l/*"))
		require.NoError(t, err)
		return all
	}
	name := filepath.Join(opts.Dir, "state.json")
	before, err := os.Stat(name)
	require.NoError(t, err)
	c.create(obj{"name": "two"})
	after, err := os.Stat(name)
	require.NoError(t, err)
	assert.False(t, os.SameFile(before, after), "a crash would leave half a file")

	// The state can't replace a directory.
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.Mkdir(name, 0o700))
	require.Len(t, layers(), 1)
	c.refused("DELETE", "/v2/sandboxes/snapshots/"+snapshot, nil, 507, "insufficient_storage")
	assert.Len(t, layers(), 1)
	require.NoError(t, os.Remove(name))
	c.create(obj{"name": "three"})
	assert.Empty(t, layers())
}

// contents returns the files of a directory, except for those that lock it, with
// their content.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || slices.Contains([]string{"owner", "take", "lock"}, filepath.Base(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	}))
	return all
}

// saveState creates a state with a stopped sandbox and its snapshot.
func saveState(t *testing.T, opts *sandboxtest.Options) (snapshot string) {
	t.Helper()
	srv, err := sandboxtest.NewServer(opts)
	require.NoError(t, err)
	c := newRaw(t, srv)
	c.create(obj{"name": "one"})
	snapshot = c.saveFile("one", "precious")
	require.NoError(t, srv.Close())
	return snapshot
}

// checkState checks that a state has what saveState has created.
func checkState(t *testing.T, opts *sandboxtest.Options, snapshot string) {
	t.Helper()
	srv, err := sandboxtest.NewServer(opts)
	require.NoError(t, err)
	c := newRaw(t, srv)
	assert.Equal(t, "created", c.snapshotStatus(snapshot))
	assert.Equal(t, "precious\n", c.sh(c.get("one", "&resume=true", 200).Session.ID, "cat file"))
	require.NoError(t, srv.Close())
}

// TestFailedStartKeepsTheState: whatever makes a start fail, the state is
// unchanged.
func TestFailedStartKeepsTheState(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		opts := sandboxtest.Options{Mode: probe.Mode(), Dir: filepath.Join(t.TempDir(), "state")}
		snapshot := saveState(t, &opts)
		name := filepath.Join(opts.Dir, "state.json")
		whole, err := os.ReadFile(name)
		require.NoError(t, err)
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer taken.Close()
		flipped := bytes.Replace(whole, []byte(`"name":"one"`), []byte(`"name":"two"`), 1)
		for what, try := range map[string]struct {
			content []byte
			opts    func(o *sandboxtest.Options)
		}{
			"port in use":     {whole, func(o *sandboxtest.Options) { o.Addr = taken.Addr().String() }},
			"bad address":     {whole, func(o *sandboxtest.Options) { o.Addr = "256.0.0.1:0" }},
			"half a file":     {whole[:len(whole)/2], nil},
			"another version": {[]byte(`{"version":99}`), nil},
			"no JSON":         {[]byte("{"), nil},
			"empty":           {nil, nil},
			"changed bits":    {flipped, nil},
		} {
			require.NoError(t, os.WriteFile(name, try.content, 0o600))
			before := contents(t, opts.Dir)
			o := opts
			if try.opts != nil {
				try.opts(&o)
			}
			_, err := sandboxtest.NewServer(&o)
			require.Error(t, err, what)
			if try.opts == nil {
				require.ErrorContains(t, err, "state.json", what)
			}
			assert.Equal(t, before, contents(t, opts.Dir), what)
		}
		require.NoError(t, os.WriteFile(name, whole, 0o600))
		checkState(t, &opts, snapshot)
	})
}

// TestOtherModeKeepsTheState: a server in one mode can't use the layers of the other mode,
// but keeps them.
func TestOtherModeKeepsTheState(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		if probe.Mode() == sandboxtest.Folder {
			srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Namespace})
			if err != nil {
				needs.Other(t, "%v", err)
			}
			require.NoError(t, srv.Close())
		}
		other := map[sandboxtest.Mode]sandboxtest.Mode{sandboxtest.Folder: sandboxtest.Namespace, sandboxtest.Namespace: sandboxtest.Folder}[probe.Mode()]
		dir := filepath.Join(t.TempDir(), "state")
		opts := &sandboxtest.Options{Mode: probe.Mode(), Dir: dir}
		snapshot := saveState(t, opts)
		before := contents(t, dir)
		_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: other, Dir: dir})
		require.ErrorContains(t, err, "another directory")
		assert.Equal(t, before, contents(t, dir))
		checkState(t, opts, snapshot)
	})
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: "virtual"})
	require.Error(t, err)
	_, err = sandboxtest.NewServer(&sandboxtest.Options{MaxUpload: -1})
	require.Error(t, err)
	_, err = sandboxtest.NewServer(&sandboxtest.Options{Addr: "256.0.0.1:0"})
	require.Error(t, err)
}

// TestIncompleteState: a state with a missing part is refused at each start, and works
// again when the part is restored.
func TestIncompleteState(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		opts := &sandboxtest.Options{Mode: probe.Mode(), Dir: filepath.Join(t.TempDir(), "state")}
		srv, err := sandboxtest.NewServer(opts)
		require.NoError(t, err)
		newRaw(t, srv).call("POST", "/v2/sandboxes/drives/disk?projectId=prj", obj{"projectId": "prj"}, 201, nil)
		require.NoError(t, srv.Close())
		snapshot := saveState(t, opts)
		for what, pattern := range map[string]string{
			"state.json":       "state.json",
			"all machines":     "machines",
			"a record":         "machines/*/m/*.json",
			"a snapshot":       "machines/*/l/*",
			"all records":      "machines/*/m",
			"all snapshots":    "machines/*/l",
			"a drive":          "machines/drives/*",
			"all drives":       "machines/drives",
			"machines of kind": "machines/[fnr]*",
		} {
			found, err := filepath.Glob(filepath.Join(opts.Dir, pattern))
			require.NoError(t, err)
			require.NotEmpty(t, found, what)
			away := filepath.Join(filepath.Dir(opts.Dir), "away")
			require.NoError(t, os.Rename(found[0], away), what)
			before := contents(t, opts.Dir)
			for range 2 {
				srv, err := sandboxtest.NewServer(opts)
				if err == nil {
					require.NoError(t, srv.Close())
				}
				require.ErrorContains(t, err, "nothing was changed", what)
				assert.Equal(t, before, contents(t, opts.Dir), what)
			}
			require.NoError(t, os.RemoveAll(found[0])) // an empty directory that holds the lock
			require.NoError(t, os.Rename(away, found[0]), what)
		}
		checkState(t, opts, snapshot)
	})
}

// TestDamagedRecord: an unreadable record affects only its own snapshot, until it is
// repaired.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		var log bytes.Buffer
		opts := &sandboxtest.Options{Mode: probe.Mode(), Dir: filepath.Join(t.TempDir(), "state"), Logger: slog.New(slog.NewTextHandler(&log, nil))}
		snapshot := saveState(t, opts)
		records, err := filepath.Glob(filepath.Join(opts.Dir, "machines/*/m/*.json"))
		require.NoError(t, err)
		require.Len(t, records, 1)
		whole, err := os.ReadFile(records[0])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(records[0], whole[:len(whole)/2], 0o600))
		before := contents(t, filepath.Join(opts.Dir, "machines"))

		srv, err := sandboxtest.NewServer(opts)
		require.NoError(t, err)
		c := newRaw(t, srv)
		assert.Contains(t, log.String(), records[0])
		c.refused("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, 410, "snapshot_not_found")
		c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "source": obj{"type": "snapshot", "snapshotId": snapshot}}, 410, "snapshot_not_found")
		c.refused("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "fork"}, 410, "snapshot_not_found")
		other := c.create(obj{"name": "two"})
		c.stop(other.Session.ID)
		require.NoError(t, srv.Close())
		after := contents(t, filepath.Join(opts.Dir, "machines"))
		for name, content := range before {
			assert.Equal(t, content, after[name], name)
		}
		require.NoError(t, os.WriteFile(records[0], whole, 0o600))
		checkState(t, opts, snapshot)
	})
}

// TestForeignDirectory: another program's directory is not mistaken for a state.
func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, Dir: dir})
	require.NoError(t, err)
	require.NoError(t, srv.Close())

	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stdio.h"), nil, 0o600))
	before := contents(t, dir)
	_, err = sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, Dir: dir})
	require.ErrorContains(t, err, "stdio.h")
	assert.Equal(t, before, contents(t, dir))
}
