package sandboxtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestRealistic: a stop shows itself while it lasts, that of a persistent
// sandbox is answered before its snapshot is the current one, and a fork taken
// then has the files of the snapshot before.
func TestRealistic(t *testing.T) {
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Realistic: true})
	// pass lets the server's time go by until done is closed.
	pass := func(done <-chan struct{}) {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				srv.Advance(100 * time.Millisecond)
			}
		}
	}
	during := func(f func()) {
		done := make(chan struct{})
		go func() { defer close(done); f() }()
		pass(done)
	}
	fresh := c.create(obj{"name": "fresh", "persistent": false})
	began := srv.Now()
	var stopped *wire.StopResponse
	during(func() { stopped = c.stop(fresh.Session.ID) })
	assert.Equal(t, []string{"stopped", "stopped"}, []string{stopped.Session.Status, stopped.Sandbox.Status})
	assert.WithinRange(t, srv.Now(), began.Add(time.Second), began.Add(4*time.Second))

	one := c.create(obj{"name": "one"})
	c.sh(one.Session.ID, "echo first > file")
	during(func() { stopped = c.stop(one.Session.ID) })
	assert.NotEqual(t, "stopped", stopped.Session.Status)
	assert.Equal(t, "stopping", stopped.Sandbox.Status)
	assert.Empty(t, stopped.Sandbox.CurrentSnapshotID)
	seen := map[string]bool{}
	for {
		now := c.session(one.Session.ID).Status
		seen[now] = true
		if now == "stopped" {
			break
		}
		srv.Advance(100 * time.Millisecond)
	}
	assert.True(t, seen["snapshotting"])
	first := c.get("one", "&resume=false", 200).Sandbox.CurrentSnapshotID
	require.NotEmpty(t, first)

	// A resume waits for the session before.
	var back *wire.SandboxResponse
	back = c.get("one", "&resume=true", 200)
	c.sh(back.Session.ID, "echo second > file")
	during(func() { stopped = c.stop(back.Session.ID) })
	var fork wire.SandboxResponse
	c.call("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "stale"}, 200, &fork)
	assert.Equal(t, "first\n", c.sh(fork.Session.ID, "cat file"), "taken before the snapshot was current")
	during(func() { back = c.get("one", "&resume=true", 200) })
	assert.Equal(t, "second\n", c.sh(back.Session.ID, "cat file"))

	// A snapshot takes its time, and its session ends after the answer.
	began = srv.Now()
	var snap wire.SnapshotResponse
	during(func() { c.call("POST", session(back.Session.ID)+"/snapshot", obj{}, 201, &snap) })
	assert.GreaterOrEqual(t, srv.Now().Sub(began), 3700*time.Millisecond)
	assert.Equal(t, "snapshotting", snap.Session.Status)
	assert.Equal(t, "created", snap.Snapshot.Status)
	srv.Advance(time.Second)
	assert.Equal(t, "stopped", c.session(back.Session.ID).Status)

	_, err := sandboxtest.NewServer(&sandboxtest.Options{Realistic: true, Stopping: time.Second})
	assert.ErrorContains(t, err, "Realistic")
}
