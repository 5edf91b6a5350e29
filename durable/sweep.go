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
	"github.com/go-vercel/sandbox/internal/entry"
)

// Sweep stops the sandboxes of this fleet that run although their workflow has ended or no
// longer exists. It also deletes sandboxes whose workflow was terminated, timed out or is
// unknown, after they were stopped for DeleteAfter. It returns how many it has stopped and
// deleted.
//
// c is a client of the workflows' namespace. Outside an activity, Fleet has to be set.
// After the loss of its database, a namespace has a new ID: set Fleet to the old ID to
// sweep the old sandboxes. Sweep costs a request for every 50 sandboxes of the fleet, and
// a request to Temporal for each that runs or may be deleted.
func (w *Worker) Sweep(ctx context.Context, c client.Client) (swept int, err error) {
	if err := entry.Check(ctx, w != nil && w.Client != nil, "durable", "the Worker, or its Client,"); err != nil {
		return 0, err
	}
	fleet, err := w.fleet(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for info, err := range w.Client.List(ctx, &sandbox.ListOptions{Tags: map[string]string{tagFleet: fleet}, Limit: 50}) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		done, err := w.sweepOne(ctx, c, info)
		if err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", info.Name, err))
		}
		if done {
			swept++
		}
	}
	return swept, errors.Join(errs...)
}

// sweepOne stops or deletes an abandoned sandbox, and reports whether it did.
func (w *Worker) sweepOne(ctx context.Context, c client.Client, info sandbox.Info) (done bool, err error) {
	id := workflowOf(info.Tags[tagWorkflow])
	runs := info.Status == sandbox.StatusRunning
	old := w.DeleteAfter > 0 && info.Status == sandbox.StatusStopped && w.Client.Age(info.StatusUpdatedAt) > w.DeleteAfter
	if id == "" || !runs && !old {
		return false, nil
	}
	status, err := latestStatus(ctx, c, id)
	if err != nil || status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return false, err
	}
	switch status {
	case enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
	default:
		if !runs { // the workflow has ended normally and kept its sandbox
			return false, nil
		}
	}
	sb, err := w.get(ctx, info.Name)
	switch {
	case err != nil:
	case !sameSandbox(sb.Info(), info): // another sandbox has the name now
	case runs && sb.Status() == sandbox.StatusRunning:
		_, err = sb.Stop(ctx, nil)
		done = err == nil
	case old && sb.Status() == sandbox.StatusStopped && sb.Info().StatusUpdatedAt.Equal(info.StatusUpdatedAt):
		err = sb.Delete(ctx, nil)
		done = err == nil
	}
	if hasEnded(err) {
		err = nil
	}
	return done, err
}

// sameSandbox reports whether a and b are one sandbox of one workflow.
func sameSandbox(a, b sandbox.Info) bool {
	return a.CreatedAt.Equal(b.CreatedAt) && a.Tags[tagFleet] == b.Tags[tagFleet] && a.Tags[tagWorkflow] == b.Tags[tagWorkflow]
}

// fleet returns the tag of this worker's sandboxes. Another Temporal server must not use
// the same tag: it does not know their workflows, and would stop them.
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

// latestStatus returns the status of a workflow's last run, or unspecified if there is none.
func latestStatus(ctx context.Context, c client.Client, id string) (enums.WorkflowExecutionStatus, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		err = nil
	}
	return d.GetWorkflowExecutionInfo().GetStatus(), err
}

func (w *Worker) sweep(ctx context.Context) (int, error) {
	ctx, stop := heartbeat(ctx)
	defer stop()
	n, err := w.Sweep(ctx, activity.GetClient(ctx))
	return n, classify(ctx, err)
}

// SweepWorkflow runs [Worker.Sweep] once and returns its result. Run it by a Temporal
// Schedule, for example every 15 minutes.
func SweepWorkflow(ctx workflow.Context) (int, error) {
	if err := entry.Check(ctx, true, "durable", ""); err != nil {
		return 0, err
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Minute, HeartbeatTimeout: 30 * time.Second, RetryPolicy: retries(followPause),
	})
	var n int
	err := workflow.ExecuteActivity(ctx, activitySweep).Get(ctx, &n)
	return n, err
}
