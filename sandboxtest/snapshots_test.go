package sandboxtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const day = 24 * time.Hour

func (c *raw) snapshot(sess string, body any) wire.Snapshot {
	c.t.Helper()
	var out wire.SnapshotResponse
	c.call("POST", session(sess)+"/snapshot", body, 201, &out)
	require.NotNil(c.t, out.Session)
	assert.Equal(c.t, "created", out.Snapshot.Status)
	assert.Equal(c.t, "manual", out.Snapshot.CreationMethod)
	return out.Snapshot
}

func (c *raw) snapshotStatus(id string) string {
	c.t.Helper()
	var out wire.SnapshotResponse
	c.call("GET", "/v2/sandboxes/snapshots/"+id, nil, 200, &out)
	return out.Snapshot.Status
}

// saveFile resumes a sandbox, writes a file and stops the sandbox. It returns the snapshot
// of the stop.
func (c *raw) saveFile(name, content string) string {
	c.t.Helper()
	sess := c.get(name, "&resume=true", 200).Session.ID
	c.sh(sess, "echo "+content+" > file")
	out := c.stop(sess)
	require.NotNil(c.t, out.Snapshot)
	assert.Equal(c.t, out.Snapshot.ID, out.Sandbox.CurrentSnapshotID)
	return out.Snapshot.ID
}

func TestPersistence(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		made := c.create(obj{"name": "one"})
		c.sh(made.Session.ID, "echo kept > file; mkdir d; ln -s ../file d/link; echo home > ~/h; chmod 600 ~/h")
		stopped := c.stop(made.Session.ID)
		assert.Equal(t, "stopped", stopped.Session.Status)
		assert.NotNil(t, stopped.Session.Duration)
		assert.NotNil(t, stopped.Session.ActiveCPUDurationMs)
		assert.NotNil(t, stopped.Session.NetworkTransfer)
		require.NotNil(t, stopped.Snapshot)
		assert.Equal(t, made.Session.ID, stopped.Snapshot.SourceSessionID)
		assert.Equal(t, stopped, c.stop(made.Session.ID), "a second stop returns the same")

		for _, query := range []string{"", "&resume=false"} {
			idle := c.get("one", query, 200)
			assert.False(t, idle.Resumed)
			assert.Equal(t, "stopped", idle.Session.Status)
		}

		back := c.get("one", "&resume=true", 200)
		assert.True(t, back.Resumed)
		assert.NotEqual(t, made.Session.ID, back.Session.ID)
		assert.Equal(t, stopped.Snapshot.ID, back.Session.SourceSnapshotID)
		assert.Equal(t, "kept\nhome\n600\n", c.sh(back.Session.ID, "cat d/link ~/h; stat -c %a ~/h"))
		assert.False(t, c.get("one", "&resume=true", 200).Resumed)

		c.refused("GET", "/v2/sandboxes/one?projectId=other", nil, 404, "not_found")
		c.refused("GET", "/v2/sandboxes/one?projectId=prj&resume=maybe", nil, 400, "bad_request")
	})
}

func TestNotPersistent(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	sess := c.create(obj{"name": "one", "persistent": false}).Session.ID
	c.sh(sess, "echo gone > file")
	assert.Nil(t, c.stop(sess).Snapshot)
	assert.Equal(t, "stopped", c.get("one", "&resume=false", 200).Session.Status)
	message := c.refused("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, 400, "snapshot_not_found")
	assert.Equal(t, "Cannot resume sandbox: no snapshot available.", message)
}

// TestNothingToResumeFrom: a persistent sandbox whose machine died before its
// first snapshot has no files either.
func TestNothingToResumeFrom(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	require.True(t, srv.Crash("one"))
	message := c.refused("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, 400, "bad_request")
	assert.Equal(t, "Cannot resume sandbox: no snapshot available.", message)
	assert.Equal(t, "stopped", c.get("one", "&resume=false", 200).Sandbox.Status, "a sandbox has fewer states than a session")
}

func TestSessionTimeout(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	made := c.create(obj{"name": "one", "timeout": 600_000})
	assert.Equal(t, made.Session.StartedAt.Add(10*time.Minute), c.get("one", "", 200).Sandbox.ExpiresAt.Time)
	sess := made.Session.ID
	mark := marked(2)
	cmd := c.detach(sess, obj{"command": "sh", "args": []string{"-c", "echo up; sleep " + mark}})
	assert.Equal(t, "up\n", c.stream("GET", session(sess)+"/cmd/"+cmd.ID+"/logs", nil).next().text(t))
	srv.Advance(9 * time.Minute)
	var out wire.SessionResponse
	c.call("POST", session(sess)+"/extend-timeout", obj{"duration": 300_000}, 200, &out)
	assert.Equal(t, wire.Duration(15*time.Minute), out.Session.Timeout)
	srv.Advance(5 * time.Minute)
	assert.Equal(t, "running", c.session(sess).Status)
	assertRuns(t, mark)
	srv.Advance(time.Minute)
	assert.Equal(t, "stopped", c.session(sess).Status)
	assert.False(t, alive(t, mark))
	sb := c.get("one", "&resume=false", 200).Sandbox
	assert.NotEmpty(t, sb.CurrentSnapshotID, "a persistent sandbox is saved when it times out")
	assert.GreaterOrEqual(t, *sb.TotalDurationMs, wire.Duration(15*time.Minute))

	c.refused("POST", session(sess)+"/extend-timeout", obj{"duration": 1000}, 410, "sandbox_stopped")
	sess = c.get("one", "&resume=true", 200).Session.ID
	for _, bad := range []any{obj{}, obj{"duration": 0}, obj{"duration": -1}, obj{"duration": "x"}} {
		c.refused("POST", session(sess)+"/extend-timeout", bad, 400, "bad_request")
	}
	message := c.refused("POST", session(sess)+"/extend-timeout", obj{"duration": 25 * day.Milliseconds()}, 400, "sandbox_timeout_invalid")
	assert.Contains(t, message, "extension would exceed maximum execution timeout")
}

// edgeError returns the status and the error code with which the platform's edge responds for a
// port that has no server.
func (c *raw) edgeError(route wire.Route) string {
	c.t.Helper()
	resp, err := c.client.Get(route.URL)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Vercel-Error"))
}

func TestRollbackAndFork(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		c.create(obj{"name": "one", "env": obj{"E": "env"}, "tags": obj{"t": "1"}, "resources": obj{"vcpus": 4}})
		first := c.saveFile("one", "first")
		second := c.saveFile("one", "second")

		var out wire.UpdateResponse
		c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"currentSnapshotId": first}, 200, &out)
		assert.Equal(t, first, out.Sandbox.CurrentSnapshotID)
		assert.Equal(t, "first\n", c.sh(c.get("one", "&resume=true", 200).Session.ID, "cat file"))
		c.refused("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"currentSnapshotId": "snap_none"}, 404, "not_found")

		var fork wire.SandboxResponse
		c.call("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "two", "tags": obj{"t": "2"}, "__private": 1}, 200, &fork)
		assert.Equal(t, map[string]string{"t": "2"}, fork.Sandbox.Tags)
		assert.Equal(t, 4, fork.Sandbox.VCPUs)
		assert.Equal(t, "first\nenv\n", c.sh(fork.Session.ID, "cat file; echo $E"))
		c.sh(fork.Session.ID, "echo fork > file")
		assert.Equal(t, "first\n", c.sh(c.get("one", "&resume=true", 200).Session.ID, "cat file"), "a change of the fork does not affect its source")
		c.refused("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "two"}, 400, "bad_request")
		c.refused("POST", "/v2/sandboxes/none/fork?projectId=prj", obj{}, 404, "not_found")

		made := c.create(obj{"source": obj{"type": "snapshot", "snapshotId": second}})
		assert.Equal(t, "second\n", c.sh(made.Session.ID, "cat file"))
		assert.Equal(t, second, made.Session.SourceSnapshotID)
		c.refused("POST", "/v2/sandboxes", obj{"projectId": "other", "source": obj{"type": "snapshot", "snapshotId": second}}, 404, "not_found")
		made = c.create(obj{"runtime": "node24", "source": obj{"type": "snapshot", "snapshotId": second}})
		assert.Equal(t, "node24", made.Sandbox.Runtime)
		c.call("DELETE", "/v2/sandboxes/snapshots/"+second, nil, 200, nil)
		c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "source": obj{"type": "snapshot", "snapshotId": second}}, 410, "snapshot_not_found")
	})
}

func TestSnapshotDeletion(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	first := c.saveFile("one", "first")
	second := c.saveFile("one", "second")
	c.call("DELETE", "/v2/sandboxes/snapshots/"+first, nil, 200, nil)
	assert.Equal(t, "deleted", c.snapshotStatus(first))
	c.refused("DELETE", "/v2/sandboxes/snapshots/"+first, nil, 400, "bad_request") // it is already deleted
	assert.Equal(t, "second\n", c.sh(c.get("one", "&resume=true", 200).Session.ID, "cat file"), "a snapshot on top of a deleted one stays")
	c.stop(c.get("one", "&resume=true", 200).Session.ID)

	c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"currentSnapshotId": second}, 200, nil)
	c.call("DELETE", "/v2/sandboxes/snapshots/"+second, nil, 200, nil)
	c.refused("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, 410, "snapshot_not_found")
	assert.Equal(t, "stopped", c.get("one", "&resume=false", 200).Session.Status)
	c.refused("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{}, 410, "snapshot_not_found")
	c.call("DELETE", "/v2/sandboxes/one?projectId=prj", nil, 200, nil)
	c.refused("GET", "/v2/sandboxes/snapshots/snap_none", nil, 404, "not_found")
	c.refused("GET", "/v2/sandboxes/snapshots/a%20b", nil, 400, "bad_request")
}

func TestSnapshotExpiry(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one", "snapshotExpiration": (2 * day).Milliseconds()})
	first := c.saveFile("one", "first")
	srv.Advance(2*day - time.Minute)
	assert.Equal(t, "created", c.snapshotStatus(first))
	srv.Advance(time.Minute)
	assert.Equal(t, "deleted", c.snapshotStatus(first))
	c.refused("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, 410, "snapshot_not_found")

	// By default a snapshot expires thirty days after its last use.
	c.create(obj{"name": "two"})
	second := c.saveFile("two", "second")
	srv.Advance(29 * day)
	c.get("two", "&resume=true", 200)
	srv.Advance(29 * day)
	assert.Equal(t, "created", c.snapshotStatus(second))
	srv.Advance(day)
	assert.Equal(t, "deleted", c.snapshotStatus(second))

	// Every expiry counts from the last use, and no response shows it as an
	// update.
	sess := c.create(obj{"name": "slides"}).Session.ID
	slides := c.snapshot(sess, obj{"expiration": day.Milliseconds()})
	srv.Advance(20 * time.Hour)
	used := c.create(obj{"source": obj{"type": "snapshot", "snapshotId": slides.ID}})
	srv.Advance(20 * time.Hour)
	var moved wire.SnapshotResponse
	c.call("GET", "/v2/sandboxes/snapshots/"+slides.ID, nil, 200, &moved)
	assert.Equal(t, "created", moved.Snapshot.Status)
	assert.Equal(t, moved.Snapshot.LastUsedAt.Add(day), moved.Snapshot.ExpiresAt.Time)
	assert.Equal(t, slides.UpdatedAt, moved.Snapshot.UpdatedAt)
	assert.Equal(t, "iad1", used.Session.Region)

	// Zero means forever, and a snapshot's own expiry takes precedence.
	sess = c.create(obj{"name": "three", "snapshotExpiration": 0}).Session.ID
	third := c.snapshot(sess, obj{"expiration": day.Milliseconds()})
	assert.Equal(t, third.CreatedAt.Add(day), third.ExpiresAt.Time)
	fourth := c.saveFile("three", "x")
	srv.Advance(1000 * day)
	assert.Equal(t, "deleted", c.snapshotStatus(third.ID))
	assert.Equal(t, "created", c.snapshotStatus(fourth))
	sess = c.get("three", "&resume=true", 200).Session.ID
	c.refused("POST", session(sess)+"/snapshot", obj{"expiration": 1000}, 400, "bad_request")
}

func TestKeepLastSnapshots(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one", "keepLastSnapshots": obj{"count": 2}})
	var ids []string
	for i := range 4 {
		ids = append(ids, c.saveFile("one", fmt.Sprint(i)))
		srv.Advance(time.Second)
	}
	assert.Equal(t, []string{"deleted", "deleted", "created", "created"}, c.statuses(ids))

	// With deleteEvicted false, evicted snapshots are not deleted: they expire, possibly
	// earlier than kept ones.
	c.create(obj{"name": "two", "snapshotExpiration": day.Milliseconds(),
		"keepLastSnapshots": obj{"count": 1, "deleteEvicted": false, "expiration": 0}})
	ids = []string{c.saveFile("two", "a")}
	srv.Advance(time.Second)
	ids = append(ids, c.saveFile("two", "b"))
	assert.Equal(t, []string{"created", "created"}, c.statuses(ids))
	srv.Advance(day)
	assert.Equal(t, []string{"deleted", "created"}, c.statuses(ids))

	c.call("PATCH", "/v2/sandboxes/two?projectId=prj", obj{"keepLastSnapshots": nil}, 200, nil)
	assert.Nil(t, c.get("two", "&resume=false", 200).Sandbox.KeepLastSnapshots)
}

func (c *raw) statuses(ids []string) (out []string) {
	c.t.Helper()
	for _, id := range ids {
		out = append(out, c.snapshotStatus(id))
	}
	return out
}

func TestSnapshotTree(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	var ids []string
	for i := range 5 {
		ids = append(ids, c.saveFile("one", fmt.Sprint(i)))
		srv.Advance(time.Second)
	}
	// Two siblings of the last one.
	var siblings []string
	for range 2 {
		sess := c.create(obj{"source": obj{"type": "snapshot", "snapshotId": ids[3]}}).Session.ID
		siblings = append(siblings, c.stop(sess).Snapshot.ID)
		srv.Advance(time.Second)
	}
	tree := func(query string) (out wire.SnapshotTreePage) {
		t.Helper()
		c.call("GET", "/v2/sandboxes/snapshots/tree?project=prj&"+query, nil, 200, &out)
		return out
	}
	names := func(page wire.SnapshotTreePage) (out []string) {
		for _, n := range page.Snapshots {
			out = append(out, n.Snapshot.ID)
		}
		return out
	}
	// Ancestors, in pages.
	page := tree("limit=2&snapshotId=" + ids[4])
	require.NotNil(t, page.Anchor)
	assert.Equal(t, ids[4], page.Anchor.Snapshot.ID)
	assert.Equal(t, "3", page.Anchor.Count)
	assert.Equal(t, siblings, []string{page.Anchor.Siblings[0].ID, page.Anchor.Siblings[1].ID})
	assert.Equal(t, []string{ids[3], ids[2]}, names(page))
	require.NotNil(t, page.Pagination.Next)
	assert.Equal(t, 2, page.Pagination.Count)
	page = tree("limit=2&snapshotId=" + *page.Pagination.Next)
	assert.Equal(t, []string{ids[1], ids[0]}, names(page))
	assert.Nil(t, page.Pagination.Next)
	assert.Equal(t, "1", page.Snapshots[0].Count)
	assert.NotNil(t, page.Snapshots[0].Siblings)

	// Descendants follow the newest child.
	page = tree("sortOrder=asc&snapshotId=" + ids[1])
	assert.Equal(t, []string{ids[2], ids[3], siblings[1]}, names(page))
	assert.Equal(t, "3", page.Snapshots[2].Count)

	empty := tree("snapshotId=snap_none")
	assert.Empty(t, empty.Snapshots)
	assert.Nil(t, empty.Anchor)
	c.refused("GET", "/v2/sandboxes/snapshots/tree?project=prj", nil, 400, "bad_request")
	c.refused("GET", "/v2/sandboxes/snapshots/tree?limit=11&snapshotId=x", nil, 400, "bad_request")
}

func TestCrash(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	c.saveFile("one", "saved")
	sess := c.get("one", "&resume=true", 200).Session.ID
	c.sh(sess, "echo lost > file")
	// A request that waits for a command gets the error that the machine is gone, and no
	// exit code.
	l := c.stream("POST", session(sess)+"/cmd", obj{"command": "sleep", "args": []string{"1000"}, "wait": true, "logs": true})
	cmd := l.next().Command
	waiting := make(chan int, 1)
	go func() {
		resp, err := c.client.Do(c.request("GET", session(sess)+"/cmd/"+cmd.ID+"?wait=true", nil))
		if err != nil {
			waiting <- 0
			return
		}
		resp.Body.Close()
		waiting <- resp.StatusCode
	}()
	require.Eventually(t, func() bool { return inFlight(srv, sandboxtest.GetCommand) }, eventually, time.Millisecond)
	require.True(t, srv.Crash("one"))
	assert.Equal(t, 410, <-waiting)
	r := l.next()
	assert.Contains(t, r.Stream+string(r.Data), `error{"code":"sandbox_stream_closed"`)
	assert.Nil(t, l.next())
	assert.Equal(t, "failed", c.session(sess).Status)
	assert.False(t, srv.Crash("one"))
	assert.False(t, srv.Crash("none"))
	c.refused("POST", session(sess)+"/cmd", obj{"command": "true"}, 410, "sandbox_stopped")
	assert.Equal(t, "saved\n", c.sh(c.get("one", "&resume=true", 200).Session.ID, "cat file"))
}
