package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
)

// Sweep stops the sandboxes of this fleet that run although their workflow has
// ended or is gone, as after a termination or the loss of the database, and
// returns how many. c has to be a client of the namespace of their workflows;
// outside of an activity Fleet has to be set. It costs a request for every 50
// sandboxes of the fleet and one to Temporal for each that runs.
func (w *Worker) Sweep(ctx context.Context, c client.Client) (stopped int, err error) {
	fleet, err := w.fleet(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for info, err := range w.Client.List(ctx, &sandbox.ListOptions{Tags: map[string]string{tagFleet: fleet}, Limit: 50}) {
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
		sb, err := w.Client.Get(ctx, info.Name, &sandbox.GetOptions{NoResume: true})
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

// fleet is what the sandboxes of this worker are tagged with: what they are found
// by must not be that of another Temporal, which does not know their workflows.
func (w *Worker) fleet(ctx context.Context) (string, error) {
	if w.Fleet != "" {
		return w.Fleet, nil
	}
	if !activity.IsActivity(ctx) {
		return "", fmt.Errorf("%w: Worker.Fleet is empty, and only an activity knows its namespace: execute SweepWorkflow", sandbox.ErrInvalid)
	}
	name := activity.GetInfo(ctx).Namespace
	if id, ok := w.namespaces.Load(name); ok {
		return id.(string), nil
	}
	got, err := activity.GetClient(ctx).WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if err != nil {
		return "", fmt.Errorf("the ID of namespace %q: %w", name, err)
	}
	id := got.GetNamespaceInfo().GetId()
	if id == "" {
		return "", fmt.Errorf("%w: namespace %q has no ID: set Worker.Fleet", sandbox.ErrInvalid, name)
	}
	w.namespaces.Store(name, id)
	return id, nil
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
