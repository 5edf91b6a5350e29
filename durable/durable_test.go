package durable_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestLease: after all processes of the user have ended, the machine stops within its lease
// and keeps its files.
func TestLease(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "left"})
	var sb *durable.Sandbox
	env.ExecuteWorkflow(func(ctx workflow.Context) (err error) {
		if sb, err = durable.Open(ctx, &durable.Options{Lease: 10 * time.Minute}); err != nil {
			return err
		}
		_, err = sb.Run(ctx, "sh", []string{"-c", "echo kept > f"}, nil)
		return err // the workflow does not close the sandbox
	})
	require.NoError(t, env.GetWorkflowError())
	status := func() sandbox.Status {
		got, err := env.Server.Client().Get(t.Context(), "durable-left", &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		return got.Status()
	}
	env.Server.Advance(9 * time.Minute)
	assert.Equal(t, sandbox.StatusRunning, status())
	env.Server.Advance(2 * time.Minute)
	assert.Equal(t, sandbox.StatusStopped, status(), "the machine no longer costs money")
	got, err := env.Server.Client().Get(t.Context(), "durable-left", nil)
	require.NoError(t, err)
	data, err := got.FS().ReadFile(t.Context(), "f")
	require.NoError(t, err)
	assert.Equal(t, "kept\n", string(data))
}

// TestSandboxInWorkflow uses the methods of a sandbox in a workflow.
func TestSandboxInWorkflow(t *testing.T) {
	env := durabletest.New(t, nil)
	env.Worker.Env = func(_ context.Context, name string) (map[string]string, error) {
		return map[string]string{"WHO": "env of " + name}, nil
	}
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "all"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{EnvFrom: "prod"})
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		res, err := sb.Run(ctx, "sh", []string{"-c", `echo "$WHO"; echo once > once; exit 7`}, nil)
		require.NoError(t, err)
		assert.Equal(t, "env of prod\n", res.Tail)
		assert.Equal(t, 7, res.ExitCode)
		require.ErrorContains(t, res.Err(), "exit code 7")

		cmd, err := sb.Start(ctx, "sleep", []string{"1000"}, nil)
		require.NoError(t, err)
		require.NoError(t, sb.Kill(ctx, cmd, sandbox.SIGKILL))
		res, err = sb.Wait(ctx, cmd)
		require.NoError(t, err)
		assert.Equal(t, durable.Killed, res.Outcome)
		assert.Equal(t, 137, res.ExitCode)
		require.NoError(t, sb.Kill(ctx, cmd, sandbox.SIGKILL), "the command has already ended")

		vm := sb.VM
		require.NoError(t, sb.Refresh(ctx))
		assert.NotEqual(t, vm, sb.VM)
		snapshot, err := sb.Snapshot(ctx)
		require.NoError(t, err)
		assert.Empty(t, sb.VM, "a snapshot ends the machine")
		copied, err := durable.Open(ctx, &durable.Options{Name: "copied", SnapshotID: snapshot})
		require.NoError(t, err)
		res, err = copied.Run(ctx, "cat", []string{"once"}, nil)
		require.NoError(t, err)
		assert.Equal(t, "once\n", res.Tail, "%+v", res)
		return copied.Delete(ctx)
	})
	require.NoError(t, env.GetWorkflowError())
	for range env.Server.Client().List(t.Context(), nil) {
		assert.Fail(t, "a sandbox remains")
	}
}

// TestResumeOfRunning: Resume uses a running machine. If that machine began with another
// machine's files, this is not a loss.
func TestResumeOfRunning(t *testing.T) {
	env := durabletest.New(t, nil)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, sb.Refresh(ctx))
		vm := sb.VM
		require.NoError(t, sb.Resume(ctx))
		assert.Equal(t, vm, sb.VM)
		runs, err := sb.Renew(ctx)
		require.NoError(t, err)
		assert.True(t, runs)
		assert.Zero(t, sb.Rollbacks)
		return sb.Delete(ctx)
	})
	require.NoError(t, env.GetWorkflowError())
}

// TestKillWithChildren: a signal also reaches the command's children. A shell that waits
// for its children would not forward the signal.
func TestKillWithChildren(t *testing.T) {
	needs.Programs(t, "sh")
	for _, sig := range []sandbox.Signal{sandbox.SIGINT, sandbox.SIGKILL} {
		env := durabletest.New(t, nil)
		mark := strconv.FormatInt(time.Now().UnixNano(), 10)
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			sb, err := durable.Open(ctx, nil)
			if err != nil {
				return err
			}
			defer sb.Delete(ctx)
			cmd, err := sb.Start(ctx, "sh", []string{"-c", "sh -c 'touch begun; sleep 1000." + mark + "; true'; echo never"}, nil)
			require.NoError(t, err)
			_, err = sb.Run(ctx, "sh", []string{"-c", "until [ -e begun ]; do sleep 0.01; done; sleep 0.2"}, nil)
			require.NoError(t, err)
			require.NoError(t, sb.Kill(ctx, cmd, sig))
			res, err := sb.Wait(ctx, cmd)
			require.NoError(t, err)
			assert.Equal(t, 128+int(sig), res.ExitCode)
			assert.Empty(t, res.Tail)
			res, err = sb.Run(ctx, "sh", []string{"-c", "grep -l 1000.$0 /proc/[0-9]*/cmdline 2>/dev/null | grep -v self", mark[:len(mark)-1] + "[" + mark[len(mark)-1:] + "]"}, nil)
			require.NoError(t, err)
			assert.Empty(t, res.Tail)
			return nil
		})
		require.NoError(t, env.GetWorkflowError())
	}
}

// TestKillRefused: a signal that was refused with 403 does not mean that the command has
// ended.
func TestKillRefused(t *testing.T) {
	env := durabletest.New(t, nil)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		cmd, err := sb.Start(ctx, "sleep", []string{"1000"}, nil)
		require.NoError(t, err)
		// Refuse the script, and then the signal itself.
		for _, op := range []sandboxtest.Operation{sandboxtest.RunCommand, sandboxtest.KillCommand} {
			env.Server.Inject(sandboxtest.Fault{Operation: op, Status: 403, Code: "forbidden", Times: 1})
		}
		require.ErrorContains(t, sb.Kill(ctx, cmd, sandbox.SIGKILL), "403")
		env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Status: 403, Code: "forbidden", Times: 1})
		env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.KillCommand, Status: 408, Times: 4})
		return sb.Kill(ctx, cmd, sandbox.SIGKILL)
	})
	require.NoError(t, env.GetWorkflowError())
}
