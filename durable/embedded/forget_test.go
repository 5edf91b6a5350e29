package embedded_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestForget: of a session that has continued as new, what was before is deleted, and
// nobody misses it: its state, all its events, its keys and its next command are there.
func TestForget(t *testing.T) {
	emulator, store := sandboxtest.New(t, nil), durable.Dir(t.TempDir())
	srv, err := embedded.Start(t.Context(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, srv.Close()) }()
	c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
	require.NoError(t, err)
	defer c.Close()
	w := worker.New(c, queue, worker.Options{})
	session.Register(w, &durable.Worker{Client: emulator.Client(), Output: store})
	require.NoError(t, w.Start())
	defer w.Stop()
	sessions := session.New(c, &session.Options{Sandbox: emulator.Client(), Output: store, Policy: session.Policy{HistoryLimit: 50, KeepEvents: 5}})
	id, err := sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	first, err := c.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	const commands = 12
	events := func() (all []session.Event) {
		ended := 0
		for e, err := range sessions.Events(t.Context(), id, session.Cursor{}) {
			require.NoError(t, err)
			if all = append(all, e); e.Type == session.TypeCommandEnd {
				ended++
			}
			if ended >= commands && e.Type == session.TypeActivity {
				break
			}
		}
		return all
	}
	for n := range commands {
		_, err := sessions.Command(t.Context(), id, session.Command{Command: fmt.Sprint("echo ", n), Key: fmt.Sprint(n)})
		require.NoError(t, err)
	}
	before := events()
	var runs int64
	over := &workflowservice.CountWorkflowExecutionsRequest{Query: "ExecutionStatus = 'ContinuedAsNew'"}
	require.Eventually(t, func() bool {
		n, err := c.CountWorkflow(t.Context(), over)
		require.NoError(t, err)
		runs = n.GetCount()
		return runs >= 3
	}, time.Minute, 50*time.Millisecond)
	forgotten, err := embedded.Forget(t.Context(), srv, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	assert.Zero(t, forgotten, "who reads them is left the time")
	_, err = embedded.Forget(t.Context(), srv, time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err := c.CountWorkflow(t.Context(), over)
		require.NoError(t, err)
		_, err = c.DescribeWorkflowExecution(t.Context(), id, first.GetWorkflowExecutionInfo().GetExecution().GetRunId())
		_, gone := err.(*serviceerror.NotFound)
		return gone && n.GetCount() == 0
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, before, events())
	again, err := sessions.Command(t.Context(), id, session.Command{Command: "echo never", Key: "0"})
	require.NoError(t, err)
	assert.Equal(t, "cmd-1", again)
	state, err := sessions.State(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, session.StateActive, state.State)
	next, err := sessions.Command(t.Context(), id, session.Command{Command: "echo next"})
	require.NoError(t, err)
	for e, err := range sessions.Events(t.Context(), id, before[len(before)-1].Cursor) {
		require.NoError(t, err)
		if e.Type == session.TypeCommandEnd && e.ID == next {
			break
		}
	}
}
