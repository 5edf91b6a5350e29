package devserver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestFullSlots: even if as many commands run as a worker has slots, it can interrupt
// commands, destroy sessions and start others. The activities that follow commands run on
// another queue.
func TestFullSlots(t *testing.T) {
	const slots = 3
	emulator := sandboxtest.New(t, nil)
	_, c := startTemporal(t)
	w := worker.New(c, queue, worker.Options{MaxConcurrentActivityExecutionSize: slots})
	activities := &durable.Worker{Client: emulator.Client(), Output: durable.Dir(t.TempDir())}
	session.Register(w, activities)
	follow := worker.New(c, "follow", worker.Options{})
	activities.RegisterFollow(follow)
	for _, w := range []worker.Worker{w, follow} {
		require.NoError(t, w.Start())
		t.Cleanup(w.Stop)
	}
	sessions := session.New(c, &session.Options{Sandbox: emulator.Client(), Defaults: durable.Options{FollowQueue: "follow"}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	until := func(id string, want func(session.Event) bool) {
		t.Helper()
		for e, err := range sessions.Events(ctx, id, session.Cursor{}) {
			require.NoError(t, err)
			if want(e) {
				return
			}
		}
		require.Fail(t, "the session has ended")
	}
	ids := make([]string, slots+1)
	for i := range ids {
		var err error
		ids[i], err = sessions.Start(ctx, &session.StartOptions{ID: fmt.Sprint("ses-", i)})
		require.NoError(t, err)
		_, err = sessions.Command(ctx, ids[i], session.Command{Command: "trap 'exit 5' INT; echo up; while :; do sleep 0.05; done"})
		require.NoError(t, err)
		until(ids[i], func(e session.Event) bool { return e.Type == session.TypeCommandOutput })
	}
	require.NoError(t, sessions.Interrupt(ctx, ids[0], "", sandbox.SIGINT))
	until(ids[0], func(e session.Event) bool { return e.Type == session.TypeCommandEnd && e.Outcome == durable.Killed })
	require.NoError(t, sessions.Destroy(ctx, ids[1], nil))
	until(ids[1], func(e session.Event) bool { return e.Type == session.TypeResult })
	_, err := sessions.Start(ctx, &session.StartOptions{ID: "another"})
	require.NoError(t, err)
	until("another", func(e session.Event) bool { return e.State == session.StateActive })
	for _, id := range append(ids[2:], "another", ids[0]) {
		require.NoError(t, sessions.Destroy(ctx, id, nil))
	}
}
