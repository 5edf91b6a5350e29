package durabletest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestSleep: a lease ends while a workflow sleeps. The workflow finds its files again.
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
		assert.NotEqual(t, vm, sb.VM, "the first machine's lease has ended")
		return res.Tail, sb.Delete(ctx)
	})
	require.NoError(t, e.GetWorkflowError())
	var text string
	require.NoError(t, e.GetWorkflowResult(&text))
	assert.Equal(t, "kept\n", text)
}

// TestWaitForCancellation: with WaitForCancellation, a canceled call returns after its
// activity has ended. Between two attempts it ends at once, and a long attempt learns of
// the cancellation.
func TestWaitForCancellation(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		heartbeat time.Duration
		attempt   func(ctx context.Context) error
		attempts  int32
		canceled  bool
	}{
		"ends": {time.Hour, func(context.Context) error { testkit.Linger(100 * time.Millisecond); return nil }, 1, false},
		"is told": {2 * time.Second, func(ctx context.Context) error {
			for ctx.Err() == nil {
				activity.RecordHeartbeat(ctx)
				testkit.Linger(10 * time.Millisecond)
			}
			return ctx.Err()
		}, 1, true},
		"is tried": {time.Hour, func(context.Context) error { return errors.New("again") }, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := New(t, nil)
			var running, attempts atomic.Int32
			e.RegisterActivityWithOptions(func(ctx context.Context) error {
				running.Add(1)
				defer running.Add(-1)
				if attempts.Add(1) == 1 {
					e.CancelWorkflow()
				}
				return row.attempt(ctx)
			}, activity.RegisterOptions{Name: "slow"})
			e.ExecuteWorkflow(func(ctx workflow.Context) error {
				err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
					StartToCloseTimeout: time.Minute, HeartbeatTimeout: row.heartbeat, WaitForCancellation: true,
				}), "slow").Get(ctx, nil)
				assert.Zero(t, running.Load(), "the workflow continued before the activity ended")
				assert.Error(t, ctx.Err())
				return err
			})
			assert.Equal(t, row.attempts, attempts.Load())
			if err := e.GetWorkflowError(); row.canceled {
				assert.True(t, temporal.IsCanceledError(err), "%v", err)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
