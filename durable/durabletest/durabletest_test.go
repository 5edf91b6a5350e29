package durabletest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// TestSleep: a lease ends while a workflow sleeps, and it finds its files again.
func TestSleep(t *testing.T) {
	t.Parallel()
	e := New(t, nil)
	e.ExecuteWorkflow(func(ctx workflow.Context) (string, error) {
		sb, err := durable.Open(ctx, &durable.Options{Lease: time.Hour})
		if err != nil {
			return "", err
		}
		if _, err := sb.Run(ctx, "sh", []string{"-c", "echo kept > f"}, nil); err != nil {
			return "", err
		}
		vm := sb.VM
		if err := workflow.Sleep(ctx, 7*24*time.Hour); err != nil {
			return "", err
		}
		res, err := sb.Run(ctx, "cat", []string{"f"}, nil)
		if err != nil {
			return "", err
		}
		assert.NotEqual(t, vm, sb.VM, "its time was up")
		return res.Tail, sb.Delete(ctx)
	})
	require.NoError(t, e.GetWorkflowError())
	var text string
	require.NoError(t, e.GetWorkflowResult(&text))
	assert.Equal(t, "kept\n", text)
}
