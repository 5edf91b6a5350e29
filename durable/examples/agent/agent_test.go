package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestSolve: the model's second call breaks, and a command's answer is lost;
// nothing runs twice.
func TestSolve(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "agent-1"})
	calls := 0
	env.RegisterActivityWithOptions(func(ctx context.Context, task string, turns []Turn) (Move, error) {
		if calls++; calls == 2 {
			return Move{}, errors.New("the model is overloaded")
		}
		return Scripted(ctx, task, turns)
	}, activity.RegisterOptions{Name: "model"})
	env.RegisterWorkflow(Solve)
	env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, DropAfter: true, Times: 1})
	env.ExecuteWorkflow(Solve, "mend add.sh")
	var answer string
	require.NoError(t, env.GetWorkflowResult(&answer))
	assert.Equal(t, "The test passed after 3 turns.", answer)
	for info, err := range env.Server.Client().List(t.Context(), nil) {
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusStopped, info.Status)
	}
}
