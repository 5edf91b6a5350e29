package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
)

// Sweep stops the sandboxes of this fleet that run although their workflow has ended or
// is gone, as after a termination or the loss of the database. After such a loss the
// namespace has another ID: a Worker whose Fleet is the old one sweeps what it has left.
// It deletes those that nobody can have meant to keep: whose workflow was terminated, has
// timed out or is unknown, or had given up the opening that has made them, once they have
// stood still for DeleteAfter by [sandbox.Client.Age]. It returns how many
// it has stopped and deleted. c has to be a client of the namespace of their workflows;
// outside of an activity Fleet has to be set. It costs a request for every 50 sandboxes
// of a fleet, and one to Temporal for each that runs or may be deleted.
func (w *Worker) Sweep(ctx context.Context, c client.Client) (swept int, err error) {
	if err := entry.Check(ctx, w != nil && (w.Client != nil || w.ClientFor != nil), "durable", "the Worker, or its Client,"); err != nil {
		return 0, err
	}
	project, err := w.client(ctx)
	if err != nil {
		return 0, err
	}
	fleet, err := w.fleet(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for info, err := range project.List(ctx, &sandbox.ListOptions{Tags: map[string]string{tagFleet: fleet}, Limit: 50}) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		done, err := w.sweepOne(ctx, c, project, info)
		if err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", info.Name, err))
		}
		if done {
			swept++
		}
	}
	return swept, errors.Join(errs...)
}

// sweepOne stops or deletes a sandbox if it is left, and reports whether it has.
func (w *Worker) sweepOne(ctx context.Context, c client.Client, project *sandbox.Client, info sandbox.Info) (done bool, err error) {
	id, epoch := madeIn(info.Tags[tagWorkflow])
	runs := info.Status == sandbox.StatusRunning
	old := w.DeleteAfter > 0 && info.Status == sandbox.StatusStopped && project.Age(info.StatusUpdatedAt) > w.DeleteAfter
	if id == "" || !runs && !old {
		return false, nil
	}
	run, err := latestRun(ctx, c, id)
	if err != nil || run.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return false, err
	}
	switch run.GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
	default:
		if _, abandoned := run.GetMemo().GetFields()[givenUp+epoch]; !runs && !abandoned { // its code has left it so
			return false, nil
		}
	}
	sb, err := w.get(ctx, info.Name)
	switch {
	case err != nil:
	case !sameSandbox(sb.Info(), info): // another one has the name by now
	case runs && sb.Status() == sandbox.StatusRunning:
		_, err = sb.Stop(ctx, nil)
		done = err == nil
	case old && sb.Status() == sandbox.StatusStopped && sb.Info().StatusUpdatedAt.Equal(info.StatusUpdatedAt):
		err = sb.Delete(ctx, nil)
		done = err == nil
	}
	if gone(err) {
		err = nil
	}
	return done, err
}

// sameSandbox reports whether two looks at a name found one sandbox, of one workflow.
func sameSandbox(a, b sandbox.Info) bool {
	return a.CreatedAt.Equal(b.CreatedAt) && a.Tags[tagFleet] == b.Tags[tagFleet] && a.Tags[tagWorkflow] == b.Tags[tagWorkflow]
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

// latestRun returns the last run of a workflow, nil if there is none.
func latestRun(ctx context.Context, c client.Client, id string) (*workflowpb.WorkflowExecutionInfo, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return nil, nil
	}
	return d.GetWorkflowExecutionInfo(), err
}

func (w *Worker) sweep(ctx context.Context) (int, error) {
	ctx, stop := alive(ctx)
	defer stop()
	n, err := w.Sweep(ctx, activity.GetClient(ctx))
	return n, classify(ctx, err)
}

// SweepWorkflow runs [Worker.Sweep] once and returns how many sandboxes it has
// stopped and deleted. It is meant for a Temporal Schedule, every 15 minutes for example.
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
