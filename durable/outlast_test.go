package durable_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestOutlast: what is refused for some time after a sandbox was opened is the
// error of no call: it is done afterwards, once. Only an opening may fail.
func TestOutlast(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "refused"})
	refused, over := 0, 0
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		var allow func()
		refuse := func(operation sandboxtest.Operation) {
			allow = env.Server.Inject(sandboxtest.Fault{Operation: operation, Status: http.StatusUnauthorized})
		}
		sb.OnRefused = func(ctx workflow.Context, err error, pause time.Duration) error {
			if err == nil {
				over++
				return nil
			}
			assert.ErrorContains(t, err, "401")
			if refused++; refused%3 == 0 {
				allow()
			}
			return workflow.Sleep(ctx, pause)
		}
		run := func(script string) string {
			res, err := sb.Run(ctx, "sh", []string{"-c", script}, nil)
			require.NoError(t, err)
			return res.Tail
		}
		refuse("") // before it starts
		assert.Equal(t, "one\n", run("echo one | tee -a log"))
		// When it has ended, in the midst of what the response to its start says of that.
		env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: 850, Times: 1})
		refuse(sandboxtest.GetCommand)
		assert.Equal(t, "two\n", run("echo two | tee -a log"))
		refuse("")
		require.NoError(t, sb.Refresh(ctx))
		assert.Equal(t, "one\ntwo\n", run("cat log"), "each ran once")
		for _, do := range []func() error{
			func() error { _, err := sb.Renew(ctx); return err },
			func() error { _, err := sb.Snapshot(ctx); return err },
			func() error { return sb.Resume(ctx) },
			func() error { return sb.Delete(ctx) },
		} {
			refuse("")
			require.NoError(t, do())
		}
		refuse("")
		defer allow()
		_, err = durable.Open(ctx, &durable.Options{Name: "other"})
		require.ErrorContains(t, err, "401", "the first opening")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	assert.Equal(t, 7*3, refused)
	assert.Equal(t, 7, over)
}

// TestRefusedAfterUnknown: a start whose first response was lost, and whose second
// attempt was refused, is looked for before it is sent again.
func TestRefusedAfterUnknown(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "unknown"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		var allow func()
		sb.OnRefused = func(_ workflow.Context, err error, _ time.Duration) error {
			if err == nil {
				return nil
			}
			allow()
			assert.True(t, env.Server.Crash(sb.Options.Name), "and its machine ends")
			return nil
		}
		env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, DropAfter: true, Times: 1})
		allow = env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.GetCommand, Status: http.StatusUnauthorized})
		res, err := sb.Run(ctx, "sh", []string{"-c", "echo ran"}, nil)
		require.NoError(t, err)
		assert.Equal(t, durable.Lost, res.Outcome, "it may have run, and doesn't run again")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}
