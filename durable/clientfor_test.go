package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

// TestClientFor: each activity uses the client of its workflow's tenant, and Sweep uses
// its caller's.
func TestClientFor(t *testing.T) {
	t.Parallel()
	env := durabletest.New(t, nil)
	tenants := map[string]*sandbox.Client{}
	for _, tenant := range []string{"acme", "other"} {
		creds := env.Server.Credentials()
		creds.ProjectID = "prj_" + tenant
		c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: env.Server.URL, Credentials: auth.Static(creds)})
		require.NoError(t, err)
		tenants[tenant] = c
	}
	env.Worker.Client = nil
	env.Worker.ClientFor = func(ctx context.Context) (*sandbox.Client, error) {
		if !activity.IsActivity(ctx) {
			return nil, fmt.Errorf("%w: of whom?", sandbox.ErrInvalid)
		}
		tenant, _, _ := strings.Cut(activity.GetInfo(ctx).WorkflowExecution.ID, ".")
		if c := tenants[tenant]; c != nil {
			return c, nil
		}
		return nil, fmt.Errorf("%w: there is no tenant %q", sandbox.ErrInvalid, tenant)
	}
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "acme.job"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{Name: "box"})
		if err != nil {
			return err
		}
		cmd, err := sb.Start(ctx, "sleep", []string{"1000"}, nil)
		if err != nil {
			return err
		}
		done := sb.Follow(ctx, cmd)
		require.NoError(t, sb.Kill(ctx, cmd, sandbox.SIGKILL))
		_, err = sb.Result(ctx, cmd, done)
		_, renewErr := sb.Renew(ctx)
		_, adoptErr := sb.Adopt(ctx)
		_, snapshotErr := sb.Snapshot(ctx)
		err = errors.Join(err, renewErr, adoptErr, snapshotErr, sb.Refresh(ctx), sb.Close(ctx))
		for tenant, want := range map[string]int{"acme": 1, "other": 0} {
			page, err := tenants[tenant].ListPage(t.Context(), nil)
			require.NoError(t, err)
			assert.Len(t, page.Items, want, tenant)
		}
		return errors.Join(err, sb.Delete(ctx))
	})
	require.NoError(t, env.GetWorkflowError())
	_, err := env.Worker.Sweep(t.Context(), nil)
	require.ErrorContains(t, err, "of whom?")

	other := durabletest.New(t, nil)
	other.Worker.ClientFor = env.Worker.ClientFor
	other.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "nobody.job"})
	other.ExecuteWorkflow(func(ctx workflow.Context) error {
		_, err := durable.Open(ctx, nil)
		return err
	})
	require.ErrorContains(t, other.GetWorkflowError(), `there is no tenant "nobody"`)
}
