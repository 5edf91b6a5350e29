package sandboxtest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// The tests in this file compare the emulator with observations of the service.

func TestSnapshotStaysInItsRegion(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "golden", "failoverRegions": []string{"sfo1"}})
	id := c.saveFile("golden", "text")
	var got wire.SnapshotResponse
	c.call("GET", "/v2/sandboxes/snapshots/"+id, nil, 200, &got)
	assert.Equal(t, []string{"iad1"}, got.Snapshot.Regions)
	from := obj{"type": "snapshot", "snapshotId": id}
	c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "region": "sfo1", "source": from}, 422, "snapshot_region_mismatch")
	assert.Equal(t, "iad1", c.create(obj{"source": from}).Sandbox.Region)
}

// TestDeletedSnapshot: a deleted snapshot is still found, and says that it was deleted.
// The snapshot from which a sandbox was created is its current one.
func TestDeletedSnapshot(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	id := c.saveFile("one", "text")
	made := c.create(obj{"name": "two", "source": obj{"type": "snapshot", "snapshotId": id}})
	assert.Equal(t, []string{id, id}, []string{made.Sandbox.CurrentSnapshotID, made.Session.SourceSnapshotID})
	c.call("DELETE", "/v2/sandboxes/two?projectId=prj&deleteOrphanSnapshots=true", nil, 200, nil)
	var got wire.SnapshotResponse
	c.call("GET", "/v2/sandboxes/snapshots/"+id, nil, 200, &got)
	assert.Equal(t, "created", got.Snapshot.Status, "it belongs to a sandbox that was not deleted")
	assert.Positive(t, got.Snapshot.SizeBytes)

	c.call("DELETE", "/v2/sandboxes/snapshots/"+id, nil, 200, nil)
	c.call("GET", "/v2/sandboxes/snapshots/"+id, nil, 200, &got)
	assert.Equal(t, "deleted", got.Snapshot.Status)
	assert.Zero(t, got.Snapshot.SizeBytes)
	c.refused("DELETE", "/v2/sandboxes/snapshots/"+id, nil, 400, "bad_request")
	c.refused("DELETE", "/v2/sandboxes/snapshots/snap_none", nil, 404, "not_found")
}

// TestClientDeletesASnapshotTwice: a second delete is refused, and the client looks up
// the reason.
func TestClientDeletesASnapshotTwice(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	id := c.saveFile("one", "text")
	snapshot, err := srv.Client().GetSnapshot(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, snapshot.Delete(t.Context()))
	require.NoError(t, snapshot.Delete(t.Context()))
	assert.EqualValues(t, "deleted", snapshot.Info().Status)
}

func TestForkHasNoDrives(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.call("POST", "/v2/sandboxes/drives/disk?projectId=prj", obj{"projectId": "prj"}, 201, nil)
	c.create(obj{"name": "one", "mounts": obj{"/mnt/disk": obj{"drive": "disk", "mode": "read-write"}}})
	var fork wire.SandboxResponse
	c.call("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "two"}, 200, &fork) // though the drive is in use
	assert.Empty(t, fork.Sandbox.Mounts)
	c.call("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "three", "mounts": obj{"/mnt/disk": obj{"drive": "disk", "mode": "snapshot"}}}, 200, &fork)
	assert.Len(t, fork.Sandbox.Mounts, 1)
}

// TestSignalThenDelete: if a delete immediately follows a signal, the session ends only
// after the command that the signal ends.
func TestSignalThenDelete(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	for _, end := range []string{"DELETE", "stop"} {
		made := c.create(obj{"name": "box", "persistent": false})
		sess := session(made.Session.ID)
		cmd := c.detach(made.Session.ID, obj{"command": "sh", "args": []string{"-c", "trap 'sleep 0.1; echo trapped; exit 3' TERM; echo set; while :; do sleep 0.1; done"}})
		logs := c.send(c.request("GET", sess+"/cmd/"+cmd.ID+"/logs", nil))
		first := make([]byte, 100)
		n, err := logs.Body.Read(first)
		require.NoError(t, err)
		require.Contains(t, string(first[:n]), "set")
		c.kill(cmd, 15, 200)
		if end == "stop" {
			c.stop(made.Session.ID)
		}
		c.call("DELETE", "/v2/sandboxes/box?projectId=prj", nil, 200, nil)
		text, err := io.ReadAll(logs.Body)
		require.NoError(t, err)
		assert.Contains(t, string(text), "trapped", end)
		assert.NotContains(t, string(text), "sandbox_stream_closed", end)
	}
}

// TestWhatSurvivesAResume: files survive, including those in /run and /tmp. Processes
// don't.
func TestWhatSurvivesAResume(t *testing.T) {
	t.Parallel()
	inModes(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		if srv.Mode() == sandboxtest.Folder {
			needs.Other(t, "/run is the machine's")
		}
		made := c.create(obj{"name": "box"})
		c.sh(made.Session.ID, "echo pid > /tmp/server.pid; echo lock > /run/server.lock 2>/dev/null || echo lock > /tmp/server.lock; (setsid sleep 1000 >/dev/null 2>&1 &)")
		c.stop(made.Session.ID)
		back := c.get("box", "&resume=true", 200)
		assert.Equal(t, "pid\nlock\n", c.sh(back.Session.ID, "cat /tmp/server.pid; cat /run/server.lock 2>/dev/null || cat /tmp/server.lock"))
		assert.Equal(t, "none\n", c.sh(back.Session.ID, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q '[s]leep 1000' || echo none"))
	})
}

// TestDeniedNames: without a network no name can be looked up.
func TestDeniedNames(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		if !srv.Enforces().Policies {
			needs.Other(t, "policies are not enforced")
		}
		made := c.create(obj{"networkPolicy": obj{"mode": "deny-all"}})
		out := c.sh(made.Session.ID, "getent hosts example.com || echo unresolvable")
		assert.Equal(t, "unresolvable\n", out)
	})
}

// TestNamesInPolicies: an invalid host name is refused, instead of being accepted as one
// that never occurs.
func TestNamesInPolicies(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := session(c.create(obj{}).Session.ID) + "/network-policy"
	for _, name := range []string{"", "a.com:443", "1.2.3.4", "::1", "a..com", ".a.com", "a b.com", "https://a.com", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 130) + "com"} {
		c.refused("POST", sess, obj{"allow": []string{name}}, 400, "bad_request")
		c.refused("POST", sess, obj{"allow": obj{name: []obj{}}}, 400, "bad_request")
	}
	for _, name := range []string{"*", "*.a.com", "a.com.", "a_b.c-d.com", "www.*.com", "bücher.example", "localhost"} {
		c.call("POST", sess, obj{"allow": []string{name}}, 200, nil)
	}
}

// TestPaymentRequired shows the error of an exhausted plan.
func TestPaymentRequired(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	defer srv.Inject(sandboxtest.Fault{
		Operation: sandboxtest.CreateSandbox, Status: http.StatusPaymentRequired, Code: "payment_required",
		Message: "Hobby plan usage limit exceeded for Snapshots Storage.",
	})()
	require.True(t, strings.HasPrefix(c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj"}, 402, "payment_required"), "Hobby plan"))
}
