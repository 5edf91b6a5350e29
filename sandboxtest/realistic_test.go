package sandboxtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestRealistic: a stop is visible while it lasts. The stop of a persistent sandbox
// returns before its snapshot becomes the current one, and a fork at that moment has the
// files of the previous snapshot.
func TestRealistic(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Realistic: true})
	srv.Freeze() // so that a busy machine makes no state last longer
	// during calls f, and advances the clock by d once f waits.
	during := func(waits func() bool, d time.Duration, f func()) {
		done := make(chan struct{})
		go func() { defer close(done); f() }()
		require.Eventually(t, waits, eventually, time.Millisecond)
		srv.Advance(d)
		<-done
	}
	timers := func(n int) func() bool { return func() bool { return srv.Due(4*time.Second) == n } }
	fresh := c.create(obj{"name": "fresh", "persistent": false})
	began := srv.Now().Truncate(time.Millisecond) // as in responses
	var stopped *wire.StopResponse
	during(timers(1), 3*time.Second, func() { stopped = c.stop(fresh.Session.ID) })
	assert.Equal(t, []string{"stopped", "stopped"}, []string{stopped.Session.Status, stopped.Sandbox.Status})
	assert.WithinRange(t, stopped.Session.StoppedAt.Time, began.Add(time.Second), began.Add(2700*time.Millisecond))

	one := c.create(obj{"name": "one"})
	c.sh(one.Session.ID, "echo first > file")
	during(timers(2), 1500*time.Millisecond, func() { stopped = c.stop(one.Session.ID) }) // one for the end of the state, one for the response
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

	// A resume waits for the previous session.
	var back *wire.SandboxResponse
	back = c.get("one", "&resume=true", 200)
	c.sh(back.Session.ID, "echo second > file")
	during(timers(2), 1500*time.Millisecond, func() { stopped = c.stop(back.Session.ID) })
	var fork wire.SandboxResponse
	c.call("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "stale"}, 200, &fork)
	assert.Equal(t, "first\n", c.sh(fork.Session.ID, "cat file"), "forked before the new snapshot was current")
	during(func() bool { return inFlight(srv, sandboxtest.GetSandbox) }, 10*time.Second, func() { back = c.get("one", "&resume=true", 200) })
	assert.Equal(t, "second\n", c.sh(back.Session.ID, "cat file"))

	// A snapshot takes some time, and its session ends after the response.
	began = srv.Now().Truncate(time.Millisecond)
	var snap wire.SnapshotResponse
	during(timers(1), 3700*time.Millisecond, func() { c.call("POST", session(back.Session.ID)+"/snapshot", obj{}, 201, &snap) })
	assert.WithinDuration(t, began.Add(3700*time.Millisecond), snap.Snapshot.CreatedAt.Time, 0)
	assert.Equal(t, "snapshotting", snap.Session.Status)
	assert.Equal(t, "created", snap.Snapshot.Status)
	srv.Advance(time.Second)
	assert.Equal(t, "stopped", c.session(back.Session.ID).Status)
}

// TestTransitions: while a session is stopping or saving its files, calls and visitors of
// its ports get the error for that state.
func TestTransitions(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Realistic: true})
	srv.Freeze()
	made := c.create(obj{"name": "one", "ports": []int{3000}})
	path := session(made.Session.ID)
	refused := func(state string) {
		t.Helper()
		text := map[string]string{
			"stopping": "Sandbox is stopping and is no longer available", "snapshotting": "Sandbox is creating a snapshot and will be stopped shortly",
		}[state]
		require.Equal(t, state, c.session(made.Session.ID).Status)
		for call, body := range map[string]obj{"/cmd": {"command": "true"}, "/fs/read": {"path": "file"}, "/snapshot": {}} {
			assert.Equal(t, text, c.refused("POST", path+call, body, 422, "sandbox_"+state))
		}
		assert.Equal(t, "422 SANDBOX_"+strings.ToUpper(state), c.edgeError(made.Routes[0]))
	}
	stopped := c.sendAsync("POST", path+"/stop", nil)
	require.Eventually(t, func() bool { return srv.Due(4*time.Second) == 2 }, eventually, time.Millisecond)
	refused("stopping")
	srv.Advance(2700 * time.Millisecond)
	assert.Equal(t, 200, (<-stopped).status)
	refused("snapshotting")
	srv.Advance(5 * time.Second)
	assert.Equal(t, "stopped", c.session(made.Session.ID).Status)
	c.refused("POST", path+"/cmd", obj{"command": "true"}, 410, "sandbox_stopped")
	assert.Equal(t, "410 SANDBOX_STOPPED", c.edgeError(made.Routes[0]))

	made = c.get("one", "&resume=true", 200)
	path = session(made.Session.ID)
	saved := c.sendAsync("POST", path+"/snapshot", obj{})
	require.Eventually(t, func() bool { return srv.Due(4*time.Second) == 1 }, eventually, time.Millisecond)
	refused("snapshotting")
	srv.Advance(5 * time.Second)
	assert.Equal(t, 201, (<-saved).status)
}
