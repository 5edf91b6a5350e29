package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// statuses is a namespace whose workflows have these statuses, by their IDs.
type statuses struct {
	client.Client
	of map[string]enums.WorkflowExecutionStatus
}

func (s statuses) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	status, ok := s.of[id]
	if !ok {
		return nil, serviceerror.NewNotFound("none")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Status: status}}, nil
}

// TestSweepDeletes: what is left of workflows that nobody has ended properly is stopped
// at once and deleted after a while, also that of a database that is lost; what a
// workflow has kept, and what is no fleet's, stays.
func TestSweepDeletes(t *testing.T) {
	of := map[string]enums.WorkflowExecutionStatus{
		"runs": enums.WORKFLOW_EXECUTION_STATUS_RUNNING, "completed": enums.WORKFLOW_EXECUTION_STATUS_COMPLETED,
		"failed": enums.WORKFLOW_EXECUTION_STATUS_FAILED, "canceled": enums.WORKFLOW_EXECUTION_STATUS_CANCELED,
		"terminated": enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, "timed-out": enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
	}
	left := map[string]bool{"terminated": true, "timed-out": true, "unknown": true, "lost": true}
	srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(-90 * 24 * time.Hour)})
	c := srv.Client()
	for _, id := range []string{"runs", "completed", "failed", "canceled", "terminated", "timed-out", "unknown", "lost", "others", "nobodys"} {
		tags := map[string]string{"durable": "f", "durable-workflow": id + ".abc"}
		switch id {
		case "lost":
			tags["durable"] = "old"
		case "others":
			tags["durable"] = "another"
		case "nobodys":
			tags = nil
		}
		_, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: id, Tags: tags, SnapshotExpiration: sandbox.Forever})
		require.NoError(t, err)
	}
	there := func() map[string]sandbox.Status {
		all := map[string]sandbox.Status{}
		for info, err := range c.List(t.Context(), nil) {
			require.NoError(t, err)
			all[info.Name] = info.Status
		}
		return all
	}
	w := &durable.Worker{Client: c, Fleet: "f", OldFleets: []string{"old"}}
	n, err := w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Equal(t, 7, n)
	for id, status := range there() {
		want := sandbox.StatusStopped
		if id == "runs" || id == "others" || id == "nobodys" {
			want = sandbox.StatusRunning
		}
		assert.Equal(t, want, status, id)
	}
	n, err = w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Zero(t, n, "nothing is deleted unless that is asked for")
	assert.Len(t, there(), 10)

	w.DeleteAfter = 100 * 24 * time.Hour
	n, err = w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Zero(t, n, "it is not long enough")
	w.DeleteAfter = 60 * 24 * time.Hour
	n, err = w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Equal(t, len(left), n)
	all := there()
	assert.Len(t, all, 10-len(left))
	for id := range left {
		assert.NotContains(t, all, id)
	}
}
