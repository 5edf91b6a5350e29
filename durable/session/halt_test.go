package session

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

// TestHalt: after a loss, whether it is found when the machine is started for a command
// or by the start of one, commands wait for a go as the policy says, and then run. The
// session says what is lost once, and who restores it reaches the machine.
func TestHalt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		halt, loss string
		halts      bool
	}{
		"files":                {"", StateReset, true},
		"recent files":         {"", StateRolledBack, false},
		"files, any":           {HaltAny, StateReset, true},
		"recent files, any":    {HaltAny, StateRolledBack, true},
		"files, never":         {HaltNever, StateReset, false},
		"recent, files, never": {HaltNever, StateRolledBack, false},
	} {
		for _, asleep := range []bool{false, true} {
			if asleep && c.loss == StateRolledBack {
				continue // what sleeps is saved
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPlay(t, nil)
				p.send(time.Minute, "a", "echo kept > f")
				at := 40 * time.Minute // it hibernates at 31
				if !asleep {
					p.send(at, "wakes", "true")
				}
				p.At(at+time.Minute, func() {
					if c.loss == StateReset {
						assert.NoError(t, p.Server.Client().Delete(t.Context(), "durable-ses-1", nil))
					} else {
						assert.True(t, p.Server.Crash("durable-ses-1"))
					}
				})
				p.send(at+2*time.Minute, "waits", "cat f; echo ran")
				p.update(at+3*time.Minute, "hold", updateHold, holdUpdate{"a", time.Minute})
				var state decided
				p.At(at+4*time.Minute, func() {
					s, err := p.QueryWorkflow(queryState)
					require.NoError(t, err)
					require.NoError(t, s.Get(&state))
					if c.halts {
						assert.Equal(t, "done", p.outcomes["hold"])
						assert.NoError(t, p.machine().FS().WriteFile(t.Context(), "f", []byte("restored\n"), 0o600))
					}
				})
				p.update(100*time.Minute, "go", updateGo, struct{}{}) // it has hibernated once more
				p.destroyAt(3 * time.Hour)
				words := story(p.run(Policy{Halt: c.halt}))
				count := func(word string) (n int) {
					for _, w := range words {
						if w == word {
							n++
						}
					}
					return n
				}
				assert.Equal(t, 1, count(c.loss), "%v", words)
				id := p.outcomes["waits"]
				ended := slices.IndexFunc(words, func(w string) bool { return len(w) > len(id) && w[:len(id)] == id })
				require.Positive(t, ended)
				assert.Equal(t, c.halts, state.Halted != "")
				if !c.halts {
					assert.Zero(t, count(StateHalted))
					assert.Zero(t, state.Queued)
					assert.Contains(t, p.outcomes["go"], "not halted")
					return
				}
				assert.Equal(t, 1, count(StateHalted), "%v", words)
				assert.Less(t, slices.Index(words, StateHalted), ended)
				assert.Equal(t, 1, state.Queued)
				assert.Equal(t, id+" exited 0", words[ended])
				assert.Equal(t, "restored\nran\n", p.output(id))
			})
		}
	}
}

// TestHaltedRolls: a session that waits for a go continues as new, and waits on.
func TestHaltedRolls(t *testing.T) {
	t.Parallel()
	p := newPlay(t, nil)
	p.send(time.Minute, "a", "true")
	p.At(40*time.Minute, func() {
		assert.NoError(t, p.Server.Client().Delete(t.Context(), "durable-ses-1", nil))
	})
	p.send(41*time.Minute, "waits", "echo ran")
	p.At(42*time.Minute, func() { p.SetCurrentHistoryLength(100) })
	p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50}})
	again, carried := p.continued()
	require.NotEmpty(t, carried.State.Halted)
	assert.Len(t, carried.State.Queue, 1)
	again.update(time.Minute, "go", updateGo, struct{}{})
	again.destroyAt(20 * time.Minute)
	again.ExecuteWorkflow(Workflow, carried)
	require.NoError(t, again.GetWorkflowError())
	assert.Contains(t, story(again.events()), "cmd-2 exited 0")
}

// TestLongSleep: files are kept as long as the session sleeps, beyond the time that
// the platform keeps snapshots by default.
func TestLongSleep(t *testing.T) {
	t.Parallel()
	for _, days := range []int{29, 31, 400} {
		p := newPlay(t, nil)
		p.send(time.Minute, "a", "echo precious > f")
		at := time.Duration(days) * 24 * time.Hour
		p.send(at, "b", "cat f")
		p.destroyAt(at + 2*time.Hour)
		assert.NotContains(t, story(p.run(Policy{})), StateReset)
		assert.Equal(t, "precious\n", p.output("cmd-2"), "after %d days", days)
	}
}

// TestSecondLife: a session with the ID of one that is over shows nothing of it, neither
// outputs of commands with the same number nor old events.
func TestSecondLife(t *testing.T) {
	t.Parallel()
	store := durable.Dir(t.TempDir())
	first := newPlay(t, &durabletest.Options{Output: store})
	second := newPlay(t, &durabletest.Options{Output: store})
	second.Worker.Client = first.Server.Client()
	var outputs, pages []string
	for _, p := range []*play{first, second} {
		p.send(time.Minute, "a", "echo of "+p.Server.URL)
		p.destroyAt(2 * time.Minute)
		p.run(Policy{})
		require.NoError(t, p.GetWorkflowError())
		assert.Equal(t, "of "+p.Server.URL+"\n", p.output("cmd-1"))
		outputs = append(outputs, outputOf(p.events(), "cmd-1"))
		v, err := p.QueryWorkflow(queryEvents, 0)
		require.NoError(t, err)
		var got page
		require.NoError(t, v.Get(&got))
		pages = append(pages, got.Dir)
	}
	assert.NotEqual(t, outputs[0], outputs[1])
	assert.NotEqual(t, pages[0], pages[1])
}

// TestMaxRun: a command that does not end by itself does not keep the queue.
func TestMaxRun(t *testing.T) {
	t.Parallel()
	p := newPlay(t, nil)
	p.send(time.Minute, "a", "sleep 1000")
	p.send(time.Minute, "b", "echo ran")
	p.destroyAt(10 * time.Minute)
	words := story(p.run(Policy{MaxRun: time.Second}))
	assert.Contains(t, words, "cmd-2 exited 0", "%v", words)
	assert.Equal(t, "ran\n", p.output("cmd-2"))
}
