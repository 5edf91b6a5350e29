package devserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

var _ agent.Sessions = (*session.Conversations)(nil)

// envAgent is an environment variable with a serviceConfig as JSON. It makes this test
// binary run converse.
const envAgent = "DURABLE_TEST_AGENT"

const conversation = "user-7/chat-3"

// conversations returns the conversations of an agent in this process.
func conversations(ctx context.Context, c serviceConfig) (*session.Conversations, client.Client, error) {
	sandboxes, err := c.client()
	if err != nil {
		return nil, nil, err
	}
	temporal, err := c.Temporal.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	sessions := session.New(temporal, &session.Options{
		Sandbox: sandboxes, Policy: session.Policy{IdleAfter: time.Minute, MaxAge: time.Hour}, Defaults: durable.Options{Heartbeat: 2 * time.Second},
	})
	return &session.Conversations{Client: sessions}, temporal, nil
}

// converse is the agent that the test kills. It calls a command that does not end.
func converse(c serviceConfig) error {
	ctx := context.Background()
	all, _, err := conversations(ctx, c)
	if err != nil {
		return err
	}
	tools := agent.ForConversation(all, conversation, nil)
	if _, err := tools.Call(ctx, "write_file", json.RawMessage(`{"path": "f", "content": "kept"}`)); err != nil {
		return err
	}
	fmt.Println(all.ID(conversation))
	_, err = tools.Call(ctx, "bash", json.RawMessage(`{"command": "touch begun; sleep 1000"}`))
	return err
}

// TestKilledAgent kills an agent's process in the middle of a call. Another process
// continues the conversation on the same machine, where the programs still run. A command
// that was sent to the session before the kill waits until the dead process's hold has
// ended.
func TestKilledAgent(t *testing.T) {
	emulator, config := startEmulator(t)
	srv, _ := startTemporal(t)
	config.Temporal = srv.Environ()
	all, temporal, err := conversations(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	w := worker.New(temporal, queue, worker.Options{})
	session.Register(w, &durable.Worker{Client: emulator.Client(), Output: durable.Dir(t.TempDir())})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)

	data, err := json.Marshal(config)
	require.NoError(t, err)
	first := exec.Command(os.Args[0])
	first.Env = append(os.Environ(), envAgent+"="+string(data))
	id := startProcess(t, first)
	require.Equal(t, all.ID(conversation), id)
	sb, err := emulator.Client().Get(t.Context(), "durable-"+id, &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	machine := sb.CurrentSession().ID()
	require.Eventually(t, func() bool {
		_, err := sb.FS().Stat(t.Context(), "begun")
		return err == nil
	}, testkit.Patience, 20*time.Millisecond)
	_, err = all.Client.Command(t.Context(), id, session.Command{Command: "cat f"})
	require.NoError(t, err)
	state, err := all.Client.State(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, []any{1, 1, ""}, []any{state.Held, state.Queued, state.Running})
	require.NoError(t, first.Process.Kill())

	tools := agent.ForConversation(all, conversation, nil)
	defer tools.Close()
	call := func(tool, args string) string {
		t.Helper()
		result, err := tools.Call(t.Context(), tool, json.RawMessage(args))
		require.NoError(t, err)
		require.False(t, result.Failed, result.Text)
		return result.Text
	}
	again, release, err := all.Acquire(t.Context(), conversation)
	require.NoError(t, err)
	for e, err := range all.Client.Events(t.Context(), id, session.Cursor{}) { // Acquire has waited for the command, so all events exist
		require.NoError(t, err)
		if e.Type == session.TypeCommandEnd {
			require.Equal(t, durable.Exited, e.Outcome)
			break
		}
		require.NotEqual(t, session.TypeResult, e.Type)
	}
	assert.Equal(t, machine, again.CurrentSession().ID())
	release()
	release() // the second call does nothing
	assert.Contains(t, call("read_file", `{"path": "f"}`), "kept")
	assert.Contains(t, call("bash", `{"command": "pgrep -x sleep >/dev/null && echo goes on"}`), "goes on")

	// A destroyed conversation starts over.
	require.NoError(t, all.Client.Destroy(t.Context(), id, &session.DestroyOptions{DeleteSandbox: true}))
	fresh, release, err := all.Acquire(t.Context(), conversation)
	require.NoError(t, err)
	defer release()
	_, err = fresh.FS().Stat(t.Context(), "f")
	assert.Error(t, err)
}
