package session

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// update plans an update at a time. outcomes[key] gets its answer or refusal.
func (p *testSession) update(at time.Duration, key, name string, arg any) {
	p.At(at, func() {
		p.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { p.outcomes[key] = "refused: " + err.Error() },
			OnComplete: func(_ any, err error) {
				p.outcomes[key] = "done"
				if err != nil {
					p.outcomes[key] = "refused: " + err.Error()
				}
			},
		}, arg)
	})
}

// machine returns the sandbox, without resuming it.
func (p *testSession) machine() *sandbox.Sandbox {
	sb, err := p.Server.Client().Get(p.t.Context(), "durable-ses-1", &sandbox.GetOptions{NoResume: true})
	require.NoError(p.t, err)
	return sb
}

// TestHold: while somebody holds a session, its machine runs beyond its lease and
// IdleAfter, and no command runs. The hold waits for an earlier command.
func TestHold(t *testing.T) {
	t.Parallel()
	p := newTestSession(t, nil)
	p.send(10*time.Minute-time.Second, "before", "echo one >> f") // after the session has hibernated
	p.update(10*time.Minute, "hold", updateHold, holdUpdate{"a", 10 * time.Minute})
	var vm string
	p.At(11*time.Minute, func() {
		assert.Equal(t, "done", p.outcomes["hold"])
		sb := p.machine()
		vm = sb.CurrentSession().ID()
		data, err := sb.FS().ReadFile(t.Context(), "f")
		require.NoError(t, err)
		assert.Equal(t, "one\n", string(data))
	})
	p.send(12*time.Minute, "waits", "cat g")
	for at := 18 * time.Minute; at < time.Hour; at += 8 * time.Minute {
		p.update(at, "longer", updateHold, holdUpdate{"a", 10 * time.Minute})
	}
	p.At(60*time.Minute, func() {
		sb := p.machine()
		assert.Equal(t, sandbox.StatusRunning, sb.Status())
		assert.Equal(t, vm, sb.CurrentSession().ID())
		assert.NoError(t, sb.FS().WriteFile(t.Context(), "g", []byte("two\n"), 0o600))
		s, err := p.QueryWorkflow(queryState)
		require.NoError(t, err)
		var state State
		require.NoError(t, s.Get(&state))
		assert.Equal(t, 1, state.Held)
		assert.Equal(t, 1, state.Queued)
		assert.Zero(t, state.HibernatesAt)
	})
	p.update(61*time.Minute, "release", updateRelease, "a")
	p.update(62*time.Minute, "again", updateRelease, "a")
	p.destroyAt(2 * time.Hour)
	events := p.run(Policy{IdleAfter: 5 * time.Minute})
	words := story(events)
	assert.Equal(t, []string{
		StateActive, StateHibernating, StateHibernated, StateResuming, StateActive, "cmd-1 exited 0",
		"cmd-2 exited 0", StateHibernating, StateHibernated, StateDestroyed, StateDestroyed,
	}, words)
	assert.Equal(t, "two\n", p.output("cmd-2"))
	assert.Equal(t, "done", p.outcomes["release"])
	assert.Contains(t, p.outcomes["again"], "no such hold")
}

// TestHoldExpires: a hold that is not renewed expires, even if its caller gave up while it
// waited.
func TestHoldExpires(t *testing.T) {
	t.Parallel()
	p := newTestSession(t, nil)
	p.update(time.Minute, "hold", updateHold, holdUpdate{"a", time.Minute})
	p.update(time.Minute, "other", updateHold, holdUpdate{"b", 2 * time.Minute})
	p.send(90*time.Second, "command", "true")
	p.At(170*time.Second, func() { assert.Equal(t, "cmd-1", p.outcomes["command"]) })
	p.destroyAt(10 * time.Minute)
	events := p.run(Policy{})
	i := slices.IndexFunc(events, func(e Event) bool { return e.Type == TypeCommandStart })
	require.Positive(t, i)
	assert.InDelta(t, 3*time.Minute.Milliseconds(), int64(events[i].At-events[0].StartedAt), 30_000)
}

// TestHeldMachineIsReplaced: the session takes over a machine that a direct call has
// started, and reports a loss only if an earlier machine has crashed. It notices when a
// machine has ended, and stops no machine too early.
func TestHeldMachineIsReplaced(t *testing.T) {
	t.Parallel()
	p := newTestSession(t, nil)
	p.update(time.Minute, "hold", updateHold, holdUpdate{"a", 10 * time.Minute})
	replace := func() {
		sb := p.machine()
		for range 3 {
			_, err := sb.Snapshot(t.Context(), nil) // starts a machine unless one runs, and ends it
			require.NoError(t, err)
			_, err = sb.RunCommand(t.Context(), "true", nil, nil) // starts another machine
			require.NoError(t, err)
		}
	}
	p.At(2*time.Minute, replace)
	p.update(3*time.Minute, "release", updateRelease, "a")
	p.At(4*time.Minute, func() { assert.Equal(t, sandbox.StatusRunning, p.machine().Status()) })
	p.At(20*time.Minute, func() { assert.Equal(t, sandbox.StatusStopped, p.machine().Status()) })
	p.update(30*time.Minute, "hold", updateHold, holdUpdate{"a", 10 * time.Minute})
	p.At(31*time.Minute, func() {
		_, err := p.machine().Stop(t.Context(), nil)
		require.NoError(t, err)
	})
	p.update(32*time.Minute, "release", updateRelease, "a")
	p.update(40*time.Minute, "hold", updateHold, holdUpdate{"a", 10 * time.Minute})
	p.At(41*time.Minute, func() {
		assert.True(t, p.Server.Crash("durable-ses-1"))
		replace()
	})
	p.update(42*time.Minute, "release", updateRelease, "a")
	p.destroyAt(time.Hour)
	events := p.run(Policy{IdleAfter: 5 * time.Minute})
	assert.Equal(t, []string{
		StateActive, StateActive, StateHibernating, StateHibernated,
		StateResuming, StateActive, StateHibernated,
		StateResuming, StateActive, StateRolledBack, StateActive, StateHibernating, StateHibernated,
		StateDestroyed, StateDestroyed,
	}, story(events))
	i := slices.IndexFunc(events, func(e Event) bool { return e.State == StateRolledBack })
	require.Positive(t, i)
	saved := events[i].SavedAt.Time().Sub(events[0].StartedAt.Time())
	assert.InDelta(t, 31*time.Minute, saved, float64(time.Minute), "the last snapshot before the crash")
}

// TestHoldsAreCarried: holds survive continue-as-new. A waiting caller is asked to repeat
// its request.
func TestHoldsAreCarried(t *testing.T) {
	t.Parallel()
	p := newTestSession(t, nil)
	p.update(time.Minute, "hold", updateHold, holdUpdate{"a", 10 * time.Minute})
	p.send(2*time.Minute, "command", "true")
	p.At(3*time.Minute, func() { p.SetCurrentHistoryLength(100) })
	p.update(4*time.Minute, "waits", updateHold, holdUpdate{"b", 10 * time.Minute})
	p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50}})
	assert.Contains(t, p.outcomes["waits"], "continuing as new")
	again, carried := p.continued()
	again.update(time.Minute, "waits", updateHold, holdUpdate{"b", 10 * time.Minute})
	again.update(2*time.Minute, "release", updateRelease, "a")
	again.At(3*time.Minute, func() { assert.Equal(t, "done", again.outcomes["waits"]) })
	again.destroyAt(5 * time.Minute)
	again.ExecuteWorkflow(Workflow, carried)
	require.NoError(t, again.GetWorkflowError())
	assert.Contains(t, story(again.events()), "cmd-1 exited 0")
	assert.Equal(t, "done", again.outcomes["waits"])
}

// TestHoldOfDestroyedSession: a caller that waits to hold a session learns that it was
// destroyed.
func TestHoldOfDestroyedSession(t *testing.T) {
	t.Parallel()
	p := newTestSession(t, nil)
	p.send(time.Minute, "command", "echo up; sleep 1000")
	p.update(time.Minute, "hold", updateHold, holdUpdate{"a", time.Minute})
	p.on(p.whenRead("up"), func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
	p.run(Policy{})
	assert.Contains(t, p.outcomes["hold"], "destroyed")
}

// TestMaxAge: a session destroys itself with everything at its maximum age, whatever else
// it waits for. Only a hold delays that.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	const maxAge = time.Hour
	for name, c := range map[string]struct {
		command, hold time.Duration // the times, if not zero
		policy        Policy
		want          time.Duration
	}{
		"asleep":             {policy: Policy{IdleAfter: 10 * time.Minute}},
		"idle":               {command: 55 * time.Minute, policy: Policy{IdleAfter: 30 * time.Minute}},
		"idle for hours":     {policy: Policy{IdleAfter: 4 * time.Hour}},
		"before a refresh":   {policy: Policy{IdleAfter: 4 * time.Hour, MaxLifetime: 90 * time.Minute}},
		"after a refresh":    {policy: Policy{IdleAfter: 4 * time.Hour, MaxLifetime: 45 * time.Minute}},
		"after a checkpoint": {policy: Policy{IdleAfter: 4 * time.Hour, CheckpointEvery: 20 * time.Minute}},
		"released":           {hold: 45 * time.Minute, policy: Policy{IdleAfter: 30 * time.Minute}},
		"held":               {hold: 55 * time.Minute, policy: Policy{IdleAfter: 10 * time.Minute}, want: 65 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestSession(t, &durabletest.Options{Output: durable.Dir(t.TempDir())})
			p.send(time.Minute, "command", "echo kept")
			if c.command > 0 {
				p.send(c.command, "late", "true")
			}
			if c.hold > 0 {
				p.update(c.hold, "hold", updateHold, holdUpdate{"a", 10 * time.Minute})
			}
			c.policy.MaxAge = maxAge
			events := p.run(c.policy)
			require.NoError(t, p.GetWorkflowError())
			took := time.Duration(events[len(events)-1].DurationMs) * time.Millisecond
			assert.InDelta(t, cmp.Or(c.want, maxAge).Seconds(), took.Seconds(), 30, "%v", story(events))
			_, err := p.Server.Client().Get(t.Context(), "durable-ses-1", nil)
			assert.ErrorIs(t, err, sandbox.ErrNotFound)
			for _, err := range durable.ReadOutput(t.Context(), p.Worker.Output, keyOfOutput(events, "cmd-1"), 0) {
				assert.Error(t, err)
			}
		})
	}
}

// TestClocksDiffer: hours between Temporal's clock and the service's neither move an idle
// session from machine to machine, nor let a held machine's lease end.
func TestClocksDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{5 * time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			p := newTestSession(t, nil)
			srv := sandboxtest.New(t, &sandboxtest.Options{Start: p.Server.Now().Add(-ahead)})
			p.Worker.Client = srv.Client()
			p.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
				if info.ActivityType.Name == "sandbox.Stop" && len(srv.Requests()) > 50 { // if time stands still, the session would stop and start machines for ever
					p.CancelWorkflow()
				}
			})
			p.update(time.Minute, "hold", updateHold, holdUpdate{"a", 10 * time.Minute})
			for at := 10 * time.Minute; at < 30*time.Minute; at += 9 * time.Minute {
				p.update(at, "longer", updateHold, holdUpdate{"a", 10 * time.Minute})
			}
			p.At(15*time.Minute, func() { srv.Advance(15 * time.Minute) })
			p.At(25*time.Minute, func() {
				extends := func(r sandboxtest.Request) bool { return r.Operation == sandboxtest.ExtendTimeout }
				assert.True(t, slices.ContainsFunc(srv.Requests(), extends))
			})
			p.destroyAt(90 * time.Minute)
			events := p.run(Policy{})
			assert.Equal(t, []string{StateActive, StateHibernating, StateHibernated, StateDestroyed, StateDestroyed}, story(events))
		})
	}
}
