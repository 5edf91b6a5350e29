package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestBill: sessions are destroyed or canceled at random moments, while requests are slow.
// One lease later no machine runs, and only the sandboxes exist that a session has kept.
func TestBill(t *testing.T) {
	ends := 1000
	if !needs.Slow() {
		ends = 12 // at random moments, each for a destroy and for a cancellation
	}
	for seed := range ends {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, uint64(seed))) //nolint:gosec // the test must be repeatable
			p := newTestSession(t, nil)
			p.Server.Inject(sandboxtest.Fault{Delay: time.Duration(r.IntN(60)) * time.Millisecond})
			p.send(time.Second, "a", "sleep 0.1; echo a")
			p.send(40*time.Minute, "b", "echo b") // after the session has hibernated
			o := DestroyOptions{DeleteSandbox: seed/6%3 == 0}
			end := func() { p.sendUpdate(updateDestroy, o) }
			if seed/6%3 == 1 {
				end = p.CancelWorkflow
			}
			// End the session at a moment of its clock, or up to two seconds later, while
			// requests may be in flight.
			at := []time.Duration{0, time.Second, 10 * time.Minute, 31 * time.Minute, 40 * time.Minute, time.Hour}[seed%6]
			p.At(at, func() {
				if r.IntN(3) == 0 {
					p.RegisterDelayedCallback(end, time.Duration(r.IntN(2000))*time.Millisecond)
					return
				}
				end()
			})
			p.ExecuteWorkflow(Workflow, input{})
			require.True(t, p.IsWorkflowCompleted())
			created := false
			for _, e := range p.events() {
				created = created || e.Type == TypeCreated
			}
			p.Server.Advance(time.Hour)
			left := 0
			for info, err := range p.Server.Client().List(t.Context(), nil) {
				require.NoError(t, err)
				assert.Equal(t, sandbox.StatusStopped, info.Status)
				left++
			}
			want := 0
			if created && !o.DeleteSandbox {
				want = 1
			}
			assert.Equal(t, want, left, "created %v, %+v, at %v: %v", created, o, at, story(p.events()))
		})
	}
}
