package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestWeek simulates more than a week of a session. It hibernates and wakes each day, moves
// to new machines before the cap, loses one, and continues as new. It keeps its files and
// outputs, and its events have no gap.
func TestWeek(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	morning := func(i int) time.Duration { return time.Duration(i)*day + 5*hour }
	policy := Policy{IdleAfter: 30 * time.Minute, MaxLifetime: 5 * time.Hour, HistoryLimit: 50}
	p := newTestSession(t, nil)
	began := time.Now()
	p.send(time.Minute, "a", "echo kept > f; echo one")
	for i := range 4 { // each day one command, after a night's rest
		p.send(morning(i), fmt.Sprint("day", i), "cat f; echo more >> f; wc -l < f")
	}
	p.longDay(4*day, "serve")
	// A machine dies and loses what was written since the last snapshot.
	p.send(5*day, "dies", "echo unsaved >> f; echo begun; sleep 1000")
	p.on(p.whenRead("begun"), func() { p.Server.Crash("durable-ses-1") })
	p.send(5*day+hour, "after", "wc -l < f")
	p.At(5*day+2*hour, func() { p.SetCurrentHistoryLength(100) })
	p.send(6*day, "roll", "true")
	p.ExecuteWorkflow(Workflow, input{Policy: policy})

	again, carried := p.continued()
	for i := range 3 {
		again.send(morning(i), fmt.Sprint("later", i), "cat f; echo more >> f; wc -l < f")
	}
	again.longDay(4*day, "serve again")
	again.send(5*day, "a", "echo never") // the session knows the key
	again.At(6*day, func() { again.sendUpdate(updateDestroy, DestroyOptions{}) })
	again.ExecuteWorkflow(Workflow, carried)
	require.NoError(t, again.GetWorkflowError())
	events := again.events()

	count := map[string]int{}
	for _, word := range story(events) {
		count[word]++
	}
	assert.Equal(t, 12, count[StateHibernating])
	assert.Equal(t, 2, count[StateRefreshing], "each long day crosses the cap once")
	assert.Equal(t, 1, count["cmd-7 lost"])
	assert.Zero(t, count[StateReset], "no file of a snapshot was lost")
	assert.Equal(t, 1, count[StateRolledBack], "changes after the last snapshot are lost once")
	for i, e := range events {
		require.Equal(t, i, e.Seq)
		if e.Type == TypeCommandEnd {
			assert.True(t, e.Archived)
			assert.Equal(t, e.ID == "cmd-7", e.Outcome == durable.Lost, "%s: %s", e.ID, e.Outcome)
		}
	}
	assert.Equal(t, "one\n", again.output("cmd-1"))
	assert.Equal(t, "kept\n2\n", again.output("cmd-2"))
	assert.Equal(t, "begun\n", again.output("cmd-7"))
	assert.Equal(t, "5\n", again.output("cmd-8"), "the files are those of the last snapshot")
	assert.Equal(t, "kept\nmore\nmore\nmore\nmore\nmore\nmore\n8\n", again.output("cmd-12"))
	assert.Equal(t, "cmd-1", again.outcomes["a"])
	for info, err := range p.Server.Client().List(t.Context(), nil) {
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusStopped, info.Status, "no machine continues to run")
	}
	t.Logf("%v in %v, %d events", again.Now().Sub(began).Round(time.Hour), time.Since(began).Round(time.Millisecond), len(events))
}

// longDay plans a day on which somebody uses the session every 25 minutes, longer than the
// cap.
func (p *testSession) longDay(at time.Duration, key string) {
	p.send(at, key, "true")
	for i := range 13 {
		id, from := fmt.Sprint("use-", i), at+time.Duration(i*25)*time.Minute
		p.update(from, id, updateHold, holdUpdate{id, 10 * time.Minute})
		p.update(from+time.Minute, id, updateRelease, id)
	}
}

// countExits counts the commands that have ended. It checks that each exited by itself and
// has stored output.
func (p *testSession) countExits(events []Event) (n int) {
	for _, e := range events {
		if e.Type == TypeCommandEnd {
			n++
			assert.Equal(p.t, durable.Exited, e.Outcome, "%s", e.Error)
			assert.True(p.t, e.Archived)
		}
	}
	return n
}

// TestLostResponses: a command whose start loses its response, in any way, runs once.
func TestLostResponses(t *testing.T) {
	for name, f := range map[string]sandboxtest.Fault{
		"dropped after": {DropAfter: true}, "502 although it acted": {ActThenStatus: 502},
		"dropped before": {DropBefore: true}, "503": {Status: 503}, "429": {Status: 429, RetryAfter: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestSession(t, nil)
			f.Operation, f.Times = sandboxtest.RunCommand, 3
			p.Server.Inject(f)
			p.send(time.Minute, "a", "echo ran >> log")
			p.send(2*time.Minute, "b", "wc -l < log | tr -d '\\n'")
			p.At(20*time.Minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
			events := p.run(Policy{})
			require.NoError(t, p.GetWorkflowError())
			assert.Equal(t, 2, p.countExits(events))
			assert.Equal(t, "1", p.output("cmd-2"), "the command ran once")
		})
	}
}

// TestOutputInNoHistory: output is only in the store, because it may contain secrets of the
// environment.
func TestOutputInNoHistory(t *testing.T) {
	p := newTestSession(t, nil)
	ends := 0
	p.SetOnActivityCompletedListener(func(_ *activity.Info, result converter.EncodedValue, _ error) {
		var v map[string]any
		if result != nil && result.HasValue() && result.Get(&v) == nil {
			ends++
			assert.NotContains(t, fmt.Sprint(v), "top-secret")
		}
	})
	p.send(time.Minute, "a", "printf top-; echo secret")
	p.destroyAt(2 * time.Minute)
	p.run(Policy{})
	require.NoError(t, p.GetWorkflowError())
	assert.Equal(t, "top-secret\n", p.output("cmd-1"))
	assert.GreaterOrEqual(t, ends, 3)
}

// TestMachineDies: a command whose machine ends is lost, with its output so far, and does
// not run again. The next one wakes the sandbox and runs.
func TestMachineDies(t *testing.T) {
	p := newTestSession(t, nil)
	p.send(time.Minute, "a", "echo part; sleep 1000")
	p.send(2*time.Minute, "b", "echo again")
	p.At(20*time.Minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
	p.on(p.whenRead("part"), func() { p.Server.Crash("durable-ses-1") })
	events := p.run(Policy{})
	require.NoError(t, p.GetWorkflowError())
	assert.Equal(t, []string{
		"active", "cmd-1 lost", "hibernated", "resuming", "reset", "active", "cmd-2 exited 0", "destroyed", "destroyed"}, story(events))
	assert.Equal(t, "part\n", p.output("cmd-1"))
}

// TestInterrupt: a running command gets the signal; a queued one never begins.
func TestInterrupt(t *testing.T) {
	p := newTestSession(t, nil)
	p.send(time.Minute, "a", "trap 'echo bye; exit 5' INT; echo up; while :; do sleep 0.05; done")
	p.send(time.Minute, "b", "echo never")
	p.on(p.whenRead("up"), func() { // the command has set its trap
		p.sendUpdate(updateInterrupt, interrupt{"cmd-2", 2})
		p.sendUpdate(updateInterrupt, interrupt{"cmd-1", 2})
	})
	p.At(20*time.Minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
	events := p.run(Policy{})
	require.NoError(t, p.GetWorkflowError())
	assert.Contains(t, story(events), "cmd-1 killed 5")
	assert.Contains(t, story(events), "cmd-2 killed")
	assert.Equal(t, "up\nbye\n", p.output("cmd-1"))
}

// TestInterruptTwice: a second interrupt does not reach the next command, and its answer
// says so.
func TestInterruptTwice(t *testing.T) {
	p := newTestSession(t, nil)
	p.send(time.Minute, "a", "trap 'exit 5' INT; echo up; while :; do sleep 0.05; done")
	p.send(time.Minute, "b", "echo fine")
	interrupts := func(key string, i interrupt) {
		p.UpdateWorkflow(updateInterrupt, "", &testsuite.TestUpdateCallback{
			OnAccept:   func() {},
			OnReject:   func(err error) { p.outcomes[key] = "refused: " + err.Error() },
			OnComplete: func(v any, err error) { p.outcomes[key] = fmt.Sprint(v, " ", err) },
		}, i)
	}
	p.on(p.whenRead("up"), func() {
		p.RegisterDelayedCallback(func() { // in the loop of the environment: its updates have no lock
			interrupts("unknown", interrupt{"cmd-3", 2})
			interrupts("strange", interrupt{"x", 2})
			interrupts("first", interrupt{"", 2})
			interrupts("second", interrupt{"", 2})
			interrupts("third", interrupt{"cmd-1", 2})
		}, 0)
	})
	p.At(10*time.Minute, func() { interrupts("idle", interrupt{"", 2}) })
	p.At(11*time.Minute, func() { interrupts("over", interrupt{"cmd-1", 2}) })
	p.At(20*time.Minute, func() {
		p.UpdateWorkflow(updateDestroy, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { assert.NoError(t, err) }, OnComplete: func(_ any, err error) { assert.NoError(t, err) },
		}, DestroyOptions{})
	})
	events := p.run(Policy{})
	require.NoError(t, p.GetWorkflowError())
	assert.Equal(t, []string{"active", "cmd-1 killed 5", "cmd-2 exited 0", "destroyed", "destroyed"}, story(events))
	assert.Contains(t, p.outcomes["unknown"], "no such command")
	assert.Contains(t, p.outcomes["strange"], "no such command")
	assert.Equal(t, "true <nil>", p.outcomes["first"])
	assert.Contains(t, p.outcomes["idle"], "nothing to interrupt")
	assert.Contains(t, p.outcomes["over"], "nothing to interrupt")
}

// TestInterruptEscalates: if the first interrupt does not end a command, the second kills it
// with its children.
func TestInterruptEscalates(t *testing.T) {
	p := newTestSession(t, nil)
	p.send(time.Minute, "a", "trap 'echo no' INT; echo up; while :; do sleep 0.05; done")
	p.send(time.Minute, "b", "echo fine")
	interrupts := func() {
		p.UpdateWorkflow(updateInterrupt, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { assert.ErrorContains(t, err, "nothing") }, OnComplete: func(_ any, err error) { assert.NoError(t, err) },
		}, interrupt{"cmd-1", 2})
	}
	p.on(p.whenRead("up"), func() {
		kills := func() (n int) {
			for _, r := range p.Server.Requests() {
				if r.Operation == sandboxtest.RunCommand && bytes.Contains(r.Body, []byte("sig=$1")) {
					n++
				}
			}
			return n
		}
		for kills() < 2 && t.Context().Err() == nil { // an interrupt that comes while another is in flight counts as the same one
			p.RegisterDelayedCallback(interrupts, 0)
			testkit.Linger(100 * time.Millisecond)
		}
	})
	p.At(20*time.Minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
	events := p.run(Policy{})
	require.NoError(t, p.GetWorkflowError())
	assert.Equal(t, []string{"active", "cmd-1 killed 137", "cmd-2 exited 0", "destroyed", "destroyed"}, story(events))
}

// TestRefused: a permanent refusal at the start ends the session with the reason. A full
// queue refuses commands.
func TestRefused(t *testing.T) {
	p := newTestSession(t, nil)
	p.ExecuteWorkflow(Workflow, input{Options: durable.Options{Name: "no name/at all"}})
	err := p.GetWorkflowError()
	require.ErrorContains(t, err, "name")
	events := p.events()
	last := events[len(events)-1]
	assert.Equal(t, "failed", last.Status)
	assert.NotEmpty(t, last.Error)

	p = newTestSession(t, nil)
	for i := range 4 {
		p.send(time.Minute, fmt.Sprint(i), "sleep 0.2")
	}
	p.At(20*time.Minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{DeleteSandbox: true, RemoveOutput: true}) })
	p.run(Policy{QueueLimit: 2})
	refused := 0
	for _, outcome := range p.outcomes {
		if strings.HasPrefix(outcome, "refused") {
			assert.Contains(t, outcome, "queue is full")
			refused++
		}
	}
	assert.Positive(t, refused)
	for range p.Server.Client().List(t.Context(), nil) {
		assert.Fail(t, "the sandbox still exists")
	}
}

func TestEventJSON(t *testing.T) {
	data, err := json.Marshal(Event{Type: TypeCommandEnd, Seq: 3, ID: "cmd-1", Outcome: durable.Lost, Cursor: Cursor{Seq: 4}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"type":"command_end","seq":3,"cursor":"4.0","id":"cmd-1","outcome":"lost","exitCode":null,"durationMs":0,"bytes":0}`, string(data))
	data, err = json.Marshal(stored{Event: Event{Type: TypeCommandStart, Seq: 1}, Handle: []byte(`{"a":1}`)})
	require.NoError(t, err)
	var back stored
	require.NoError(t, json.Unmarshal(data, &back))
	assert.Equal(t, stored{Event: Event{Type: TypeCommandStart, Seq: 1}, Handle: []byte(`{"a":1}`)}, back)
}

func FuzzCursor(f *testing.F) {
	for _, text := range []string{"", "0.0", "12.345", "12.345.6", "1.0.2", "1", "-1.0", "1.-2", "9999999999.1", "1.99999999999999999999", "a.b", "1.2.3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCursor(text)
		if err != nil {
			assert.ErrorIs(t, err, ErrCursor)
			return
		}
		assert.GreaterOrEqual(t, c.Seq, 0)
		assert.GreaterOrEqual(t, c.Byte, int64(0))
		assert.GreaterOrEqual(t, c.Ahead, 0)
		again, err := ParseCursor(c.String())
		require.NoError(t, err)
		assert.Equal(t, c, again)
	})
}

// TestRequestsOfACommand: a command costs two requests. The first one starts it and returns
// its output and its end, and the second one extends the lease. If the lease would change
// only a little, there is no second request.
func TestRequestsOfACommand(t *testing.T) {
	// The first gap is longer than the difference for which the lease is not renewed. The
	// second one is longer than half a lease.
	for _, apart := range []time.Duration{3 * time.Minute, 20 * time.Minute} {
		t.Run(apart.String(), func(t *testing.T) { testRequestsOfACommand(t, apart) })
	}
}

func testRequestsOfACommand(t *testing.T, apart time.Duration) {
	p := newTestSession(t, nil)
	const commands = 5
	for i := range commands {
		p.send(time.Duration(i+1)*apart, fmt.Sprint(i), "true")
	}
	p.destroyAt((commands + 1) * apart)
	events := p.run(Policy{})
	require.NoError(t, p.GetWorkflowError())
	assert.Equal(t, commands, p.countExits(events))
	counts, all := map[sandboxtest.Operation]int{}, 0
	for _, r := range p.Server.Requests() {
		counts[r.Operation]++
		all++
	}
	t.Log(counts)
	assert.Equal(t, commands, counts[sandboxtest.RunCommand])
	assert.LessOrEqual(t, all, 2*commands+5, "two for each command, and a few for the start and the end of the session: %v", counts)
	assert.LessOrEqual(t, counts[sandboxtest.GetSandbox], 2, "nothing is looked up for a command: %v", counts)
}
