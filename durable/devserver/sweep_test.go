package devserver_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestSweep: Sweep stops a sandbox whose workflow was terminated. It does not touch a
// sandbox whose workflow runs, nor those of another Temporal server with the same project,
// because it can't know their workflows.
func TestSweep(t *testing.T) {
	emu := sandboxtest.New(t, nil)
	temporal := func() (client.Client, *session.Client) {
		_, c := startTemporal(t)
		w := worker.New(c, queue, worker.Options{})
		session.Register(w, &durable.Worker{Client: emu.Client()})
		require.NoError(t, w.Start())
		t.Cleanup(w.Stop)
		return c, session.New(c, nil)
	}
	c, sessions := temporal()
	for _, id := range []string{"lives", "terminated"} {
		_, err := sessions.Start(t.Context(), &session.StartOptions{ID: id})
		require.NoError(t, err)
		for e, err := range sessions.Events(t.Context(), id, session.Cursor{}) {
			require.NoError(t, err)
			if e.State == session.StateActive {
				break
			}
		}
	}
	require.NoError(t, c.TerminateWorkflow(t.Context(), "terminated", "", "the test says so"))
	sweep := func(c client.Client) (n int) {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, durable.SweepWorkflow)
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), &n))
		return n
	}
	status := func() map[string]sandbox.Status {
		all := map[string]sandbox.Status{}
		for info, err := range emu.Client().List(t.Context(), nil) {
			require.NoError(t, err)
			all[info.Name] = info.Status
		}
		return all
	}
	stranger, _ := temporal()
	assert.Zero(t, sweep(stranger))
	assert.Equal(t, map[string]sandbox.Status{"durable-lives": sandbox.StatusRunning, "durable-terminated": sandbox.StatusRunning}, status())
	assert.Equal(t, 1, sweep(c))
	assert.Equal(t, map[string]sandbox.Status{"durable-lives": sandbox.StatusRunning, "durable-terminated": sandbox.StatusStopped}, status())

	_, err := (&durable.Worker{Client: emu.Client()}).Sweep(t.Context(), c)
	require.ErrorIs(t, err, sandbox.ErrInvalid, "outside an activity, the namespace is unknown")
}
