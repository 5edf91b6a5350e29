package durable_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// statuses is a namespace whose workflows have these statuses, by their IDs, and all
// of them this memo.
type statuses struct {
	client.Client
	of   map[string]enums.WorkflowExecutionStatus
	memo *common.Memo
}

func (s statuses) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	status, ok := s.of[id]
	if !ok {
		return nil, serviceerror.NewNotFound("none")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: status, Memo: s.memo}}, nil
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

// TestLateOpening: a request of an opening that was cancelled arrives when nobody looks
// for its sandbox any more. Its lease ends the machine, and Sweep deletes the sandbox,
// unless a later opening has taken it.
func TestLateOpening(t *testing.T) {
	for name, taken := range map[string]bool{"left": false, "taken later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(-24 * time.Hour)})
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestWorkflowEnvironment()
			env.SetTestTimeout(time.Minute)
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "late"})
			transport := http.DefaultTransport.(*http.Transport).Clone()
			t.Cleanup(transport.CloseIdleConnections)
			held := make(chan *http.Request, 1)
			deliver := func() {
				resp, err := transport.RoundTrip(<-held)
				require.NoError(t, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusOK, resp.StatusCode)
			}
			w := &durable.Worker{Fleet: "f", Client: clientThrough(t, srv, roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/v3/sandboxes") {
					return transport.RoundTrip(req)
				}
				late := req.Clone(context.WithoutCancel(req.Context()))
				late.Body, _ = req.GetBody()
				held <- late
				env.CancelWorkflow()
				<-req.Context().Done()
				return nil, req.Context().Err()
			}))}
			w.Register(env)
			var memo *common.Memo
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				_, err := durable.Open(ctx, &durable.Options{Name: "box", Lease: time.Hour, Heartbeat: time.Second})
				assert.True(t, temporal.IsCanceledError(err), "%v", err)
				memo = workflow.GetInfo(ctx).Memo
				deliver()
				if !taken {
					return err
				}
				ctx, cancel := workflow.NewDisconnectedContext(ctx)
				defer cancel()
				sb, err := durable.Open(ctx, &durable.Options{Name: "box", Lease: time.Hour})
				require.NoError(t, err)
				memo = workflow.GetInfo(ctx).Memo
				return sb.Close(ctx)
			})
			require.True(t, env.IsWorkflowCompleted())
			status := func() (all []sandbox.Status) {
				for info, err := range srv.Client().List(t.Context(), nil) {
					require.NoError(t, err)
					all = append(all, info.Status)
				}
				return all
			}
			if !taken {
				assert.Equal(t, []sandbox.Status{sandbox.StatusRunning}, status())
			}
			srv.Advance(59 * time.Minute)
			srv.Advance(2 * time.Minute)
			assert.Equal(t, []sandbox.Status{sandbox.StatusStopped}, status(), "after its lease")
			namespace := statuses{memo: memo, of: map[string]enums.WorkflowExecutionStatus{"late": enums.WORKFLOW_EXECUTION_STATUS_CANCELED}}
			_, err := w.Sweep(t.Context(), namespace)
			require.NoError(t, err)
			assert.Len(t, status(), 1, "nothing is deleted unless that is asked for")
			w.DeleteAfter = time.Nanosecond
			n, err := w.Sweep(t.Context(), namespace)
			require.NoError(t, err)
			if taken {
				assert.Zero(t, n, "it was kept on purpose")
				assert.Len(t, status(), 1)
			} else {
				assert.Equal(t, 1, n)
				assert.Empty(t, status())
			}
		})
	}
}
