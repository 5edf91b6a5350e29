package durable_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// statuses is a namespace of workflows with these statuses, by their IDs.
type statuses struct {
	client.Client
	of     map[string]enums.WorkflowExecutionStatus
	before func() // is called before each response, if not nil
}

func (s statuses) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if s.before != nil {
		s.before()
	}
	status, ok := s.of[id]
	if !ok {
		return nil, serviceerror.NewNotFound("none")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: status}}, nil
}

// TestSweepDeletes: Sweep stops the machines of workflows that did not end normally, and
// later deletes their sandboxes. It does not touch sandboxes that a workflow has kept, or
// those of another fleet or of none.
func TestSweepDeletes(t *testing.T) {
	of := map[string]enums.WorkflowExecutionStatus{
		"runs": enums.WORKFLOW_EXECUTION_STATUS_RUNNING, "completed": enums.WORKFLOW_EXECUTION_STATUS_COMPLETED,
		"failed": enums.WORKFLOW_EXECUTION_STATUS_FAILED, "canceled": enums.WORKFLOW_EXECUTION_STATUS_CANCELED,
		"terminated": enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, "timed-out": enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
	}
	left := map[string]bool{"terminated": true, "timed-out": true, "unknown": true}
	srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(-90 * 24 * time.Hour)})
	c := srv.Client()
	for _, id := range []string{"runs", "completed", "failed", "canceled", "terminated", "timed-out", "unknown", "others", "nobodys"} {
		tags := map[string]string{"durable": "f", "durable-workflow": id + ".abc"}
		switch id {
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
	w := &durable.Worker{Client: c, Fleet: "f"}
	n, err := w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Equal(t, 6, n)
	for id, status := range there() {
		want := sandbox.StatusStopped
		if id == "runs" || id == "others" || id == "nobodys" {
			want = sandbox.StatusRunning
		}
		assert.Equal(t, want, status, id)
	}
	n, err = w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Zero(t, n, "nothing is deleted without DeleteAfter")
	assert.Len(t, there(), 9)

	srv.Advance(90 * 24 * time.Hour)
	w.DeleteAfter = 100 * 24 * time.Hour
	n, err = w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Zero(t, n, "the sandbox was not stopped for long enough")
	w.DeleteAfter = 60 * 24 * time.Hour
	n, err = w.Sweep(t.Context(), statuses{of: of})
	require.NoError(t, err)
	assert.Equal(t, len(left), n)
	all := there()
	assert.Len(t, all, 9-len(left))
	for id := range left {
		assert.NotContains(t, all, id)
	}
}

// TestSweepWrongClock: neither a wrong Date of the service nor a wrong clock of this
// machine makes a sandbox old enough to be deleted.
func TestSweepWrongClock(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, wrong := range []time.Duration{8 * day, -8 * day, 48 * time.Hour, -48 * time.Hour} {
		for name, c := range map[string]struct{ service, date time.Duration }{
			"one response": {date: wrong}, "the service or this machine": {service: wrong},
		} {
			t.Run(fmt.Sprint(name, " by ", wrong), func(t *testing.T) {
				t.Parallel()
				srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(c.service)})
				created, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{
					Name: "left", Tags: map[string]string{"durable": "f", "durable-workflow": "gone.abc"},
				})
				require.NoError(t, err)
				_, err = created.Stop(t.Context(), nil)
				require.NoError(t, err)
				gate := &testkit.Gateway{Next: testkit.Transport(t)}
				if c.date != 0 {
					gate.Set(testkit.ShiftDate(c.date))
				}
				w := &durable.Worker{
					Client: testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}}),
					Fleet:  "f", DeleteAfter: 24 * time.Hour,
				}
				n, err := w.Sweep(t.Context(), statuses{})
				require.NoError(t, err)
				assert.Zero(t, n)
				_, err = srv.Client().Get(t.Context(), "left", &sandbox.GetOptions{NoResume: true})
				assert.NoError(t, err)
			})
		}
	}
}

// TestSweepReplaced: Sweep does not touch another sandbox that got the name in the
// meantime, or a sandbox that was used since the listing.
func TestSweepReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs    bool // whether the sandbox runs when Sweep lists it
		between func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox)
	}{
		"another one runs": {true, func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
			require.NoError(t, sb.Delete(t.Context(), nil))
			srv.Advance(time.Minute)
			_, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: sb.Name()})
			require.NoError(t, err)
		}},
		"another workflow has it": {true, func(t *testing.T, _ *sandboxtest.Server, sb *sandbox.Sandbox) {
			require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Tags: map[string]string{"durable": "f", "durable-workflow": "runs.abc"}}))
		}},
		"another one has stopped": {false, func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
			require.NoError(t, sb.Delete(t.Context(), nil))
			fresh, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: sb.Name()})
			require.NoError(t, err)
			_, err = fresh.Stop(t.Context(), nil)
			require.NoError(t, err)
		}},
		"it was used": {false, func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
			used, err := srv.Client().Get(t.Context(), sb.Name(), &sandbox.GetOptions{})
			require.NoError(t, err)
			_, err = used.Stop(t.Context(), nil)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(-48 * time.Hour)})
			sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{
				Name: "box", Tags: map[string]string{"durable": "f", "durable-workflow": "gone.abc"}, SnapshotExpiration: sandbox.Forever,
			})
			require.NoError(t, err)
			if !c.runs {
				_, err = sb.Stop(t.Context(), nil)
				require.NoError(t, err)
				srv.Advance(48 * time.Hour)
			}
			w := &durable.Worker{Client: srv.Client(), Fleet: "f", DeleteAfter: time.Hour}
			_, err = w.Sweep(t.Context(), statuses{before: func() { c.between(t, srv, sb) }})
			require.NoError(t, err)
			want := sandbox.StatusStopped
			if c.runs {
				want = sandbox.StatusRunning
			}
			now, err := srv.Client().Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
			require.NoError(t, err)
			assert.Equal(t, want, now.Status())
		})
	}
}
