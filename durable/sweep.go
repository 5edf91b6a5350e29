package durable

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
)

// Sweep stops the sandboxes of this fleet that run although their workflow has
// ended or is gone, as after a termination or the loss of the database, and
// returns how many. c has to be a client of the namespace of their workflows. It
// costs a request for every 50 sandboxes of the fleet and one to Temporal for
// each that runs.
func (w *Worker) Sweep(ctx context.Context, c client.Client) (stopped int, err error) {
	var errs []error
	for info, err := range w.Client.List(ctx, &sandbox.ListOptions{Tags: map[string]string{tagFleet: w.fleet()}, Limit: 50}) {
		if err != nil {
			return stopped, errors.Join(append(errs, err)...)
		}
		id := info.Tags[tagWorkflow]
		if info.Status != sandbox.StatusRunning || id == "" {
			continue
		}
		switch lives, err := lives(ctx, c, id); {
		case err != nil:
			errs = append(errs, err)
			continue
		case lives:
			continue
		}
		sb, err := w.Client.Get(ctx, info.Name, &sandbox.GetOptions{Resume: new(false)})
		if err == nil && sb.Status() == sandbox.StatusRunning {
			_, err = sb.Stop(ctx, nil)
			if err == nil {
				stopped++
			}
		}
		if err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	return stopped, errors.Join(errs...)
}

// lives reports whether a workflow runs.
func lives(ctx context.Context, c client.Client, id string) (bool, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return d.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}

func (w *Worker) sweep(ctx context.Context) (int, error) {
	ctx, stop := alive(ctx)
	defer stop()
	n, err := w.Sweep(ctx, activity.GetClient(ctx))
	return n, classify(err)
}

// SweepWorkflow runs [Worker.Sweep] once and returns how many sandboxes it
// stopped. It is meant for a Temporal Schedule, every 15 minutes for example.
func SweepWorkflow(ctx workflow.Context) (int, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Minute, HeartbeatTimeout: 30 * time.Second, RetryPolicy: retries(),
	})
	var n int
	err := workflow.ExecuteActivity(ctx, activitySweep).Get(ctx, &n)
	return n, err
}
