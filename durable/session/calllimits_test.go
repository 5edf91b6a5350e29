package session

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCallsAreBounded: whatever is sent to a session while a command runs, its owner can
// still interrupt and destroy it. All calls stay within Temporal's limit for one run.
func TestCallsAreBounded(t *testing.T) {
	const updates = 2000 // Temporal's limit for one run
	r := &run{state: &state{Counter: 1, Keys: []keyed{{"a", "cmd-1"}}}, begun: "cmd-1", in: input{Policy: Policy{}.withDefaults()}}
	taken := 0
	for r.acceptCommand(nil, commandUpdate{Key: "a"}) == nil && taken <= updates { // the same command again and again
		id, err := r.enqueue(nil, commandUpdate{Key: "a"})
		require.NoError(t, err)
		require.Equal(t, "cmd-1", id)
		taken++
	}
	assert.Equal(t, maxCalls, taken)
	for r.acceptInterrupt(nil, interrupt{"cmd-1", 2}) == nil && taken <= updates {
		_, err := r.interrupt(nil, interrupt{"cmd-1", 2})
		require.NoError(t, err)
		r.interrupts = nil // as if the command had received the interrupt
		taken++
	}
	assert.Equal(t, maxInterruptCalls, taken)
	assert.Less(t, taken, updates)
	require.NoError(t, r.checkOpen(), "the session can be destroyed")
	r.begun, r.calls = "", 0 // the next run
	require.NoError(t, r.acceptCommand(nil, commandUpdate{Key: "b"}), "the session accepts commands again once the command has ended")
	require.ErrorContains(t, r.acceptInterrupt(nil, interrupt{"cmd-1", 2}), "nothing", "a refusal leaves no trace in the history")
}

// TestCallsWhileRefused: while the platform refuses requests, a run of the workflow stops
// accepting calls early enough that the session can still be destroyed. When the refusals
// end, the next run begins and accepts calls again.
func TestCallsWhileRefused(t *testing.T) {
	t.Parallel()
	for _, destroyed := range []bool{true, false} {
		p := newTestSession(t, nil)
		p.send(time.Minute, "a", "true")
		p.At(40*time.Minute, func() { // the session has hibernated
			stop := p.Server.Inject(sandboxtest.Fault{Status: http.StatusUnauthorized})
			p.RegisterDelayedCallback(stop, 30*time.Minute)
		})
		p.update(41*time.Minute, "hold", updateHold, holdUpdate{"a", time.Minute})
		calls := []func(key string){
			func(key string) { p.update(0, key, updateHold, holdUpdate{"a", time.Minute}) },
			func(key string) { p.send(0, key, "true") },
		}
		// Send more calls than the session accepts. Don't count holds, because only few of
		// them may wait.
		all := (maxCalls + 100) * len(calls) / (len(calls) - 1)
		var next func(i int)
		next = func(i int) { // not all at once: the environment's buffers are limited
			for range 50 {
				if i >= all {
					return
				}
				calls[i%len(calls)](fmt.Sprint(i))
				i++
			}
			p.RegisterDelayedCallback(func() { next(i) }, time.Millisecond)
		}
		p.At(42*time.Minute, func() { next(0) })
		if destroyed {
			p.update(50*time.Minute, "destroy", updateDestroy, DestroyOptions{})
		}
		p.ExecuteWorkflow(Workflow, input{Policy: Policy{QueueLimit: 2000}})
		taken := 0
		for _, outcome := range p.outcomes {
			if !strings.HasPrefix(outcome, "refused") {
				taken++
			}
		}
		assert.Less(t, taken, maxCalls+10)
		assert.Greater(t, taken, rollCalls)
		assert.Equal(t, destroyed, p.outcomes["destroy"] == "done")
		assert.Equal(t, !destroyed, workflow.IsContinueAsNewError(p.GetWorkflowError()), "%v", p.GetWorkflowError())
	}
}
