package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// pipeline is like the workflow of the documentation, but deletes its sandbox.
func pipeline(ctx workflow.Context, o durable.Options) (err error) {
	sb, err := durable.Open(ctx, &o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(ctx)) }()
	_, err = sb.Run(ctx, "sleep", []string{"0.3"}, nil)
	return err
}

// TestCanceledOpen: a workflow that is canceled at any moment of its opening leaves no
// sandbox. A sandbox that existed before is stopped with its files.
func TestCanceledOpen(t *testing.T) {
	moments := 3
	if !needs.Slow() {
		moments = 1
	}
	var all sync.WaitGroup // most of the time they wait, so don't limit them by -parallel
	for _, kept := range []bool{false, true} {
		for _, operation := range []sandboxtest.Operation{"", sandboxtest.CreateSandbox, sandboxtest.RunCommand} {
			for after := range moments {
				test := func(t *testing.T) {
					env := durabletest.New(t, nil)
					env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "pipeline"})
					if kept {
						sb, err := env.Server.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "box"})
						require.NoError(t, err)
						require.NoError(t, sb.FS().WriteFile(t.Context(), "f", []byte("kept"), 0o600))
						_, err = sb.Stop(t.Context(), nil)
						require.NoError(t, err)
					}
					// The response is delayed until after the cancellation.
					env.Server.Inject(sandboxtest.Fault{Operation: operation, Delay: 400 * time.Millisecond})
					env.At(time.Duration(after)*time.Millisecond, env.CancelWorkflow)
					env.ExecuteWorkflow(pipeline, durable.Options{Name: "box", Heartbeat: time.Second})
					require.True(t, env.IsWorkflowCompleted())
					if err := env.GetWorkflowError(); err != nil {
						assert.True(t, temporal.IsCanceledError(err), "%v", err)
					}
					for info, err := range env.Server.Client().List(t.Context(), nil) {
						require.NoError(t, err)
						assert.True(t, kept, "a sandbox remains, and is %s", info.Status)
						assert.Equal(t, sandbox.StatusStopped, info.Status)
					}
				}
				all.Go(func() { t.Run(fmt.Sprint(kept, operation, after), test) })
			}
		}
	}
	all.Wait()
}

// TestFailedOpen: an opening that fails after it has created the sandbox leaves none.
func TestFailedOpen(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "pipeline"})
	env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, ActThenStatus: 403, Times: 1})
	env.ExecuteWorkflow(pipeline, durable.Options{Name: "box"})
	require.Error(t, env.GetWorkflowError())
	for range env.Server.Client().List(t.Context(), nil) {
		assert.Fail(t, "a sandbox remains")
	}
}

// TestCanceledResume: a canceled call returns after its machine has started, so that Close
// stops the machine.
func TestCanceledResume(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "sleeper"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		require.NoError(t, sb.Hibernate(ctx))
		env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.GetSandbox, Delay: 400 * time.Millisecond})
		env.Worker.Prepare = func(context.Context, durable.Options, *sandbox.CreateOptions) error {
			env.CancelWorkflow() // during the activity, before its first request
			return nil
		}
		if err := sb.Resume(ctx); err != nil {
			assert.True(t, temporal.IsCanceledError(err), "%v", err)
		}
		for info, err := range env.Server.Client().List(t.Context(), nil) {
			require.NoError(t, err)
			assert.Equal(t, sandbox.StatusRunning, info.Status)
		}
		return sb.Close(ctx)
	})
	require.NoError(t, env.GetWorkflowError())
	sb, err := env.Server.Client().Get(t.Context(), "durable-sleeper", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusStopped, sb.Status())
}

// TestResumeRunsNothing: opening and resuming a sandbox runs no program in it.
func TestResumeRunsNothing(t *testing.T) {
	env := durabletest.New(t, nil)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{Name: "box"})
		if err != nil {
			return err
		}
		require.NoError(t, sb.Hibernate(ctx))
		require.NoError(t, sb.Resume(ctx))
		return sb.Delete(ctx)
	})
	require.NoError(t, env.GetWorkflowError())
	for _, r := range env.Server.Requests() {
		assert.NotEqual(t, sandboxtest.RunCommand, r.Operation)
	}
}
