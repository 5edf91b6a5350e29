package session

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// lists is a cluster that knows the started workflows.
type lists struct {
	client.Client
	started []client.StartWorkflowOptions
	infos   map[string]*workflow.WorkflowExecutionInfo // what it describes
}

func (l *lists) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	l.started = append(l.started, o)
	memo := &common.Memo{Fields: map[string]*common.Payload{}}
	for name, value := range o.Memo {
		memo.Fields[name], _ = converter.GetDefaultDataConverter().ToPayload(value)
	}
	l.infos[o.ID] = &workflow.WorkflowExecutionInfo{
		Execution: &common.WorkflowExecution{WorkflowId: o.ID}, Type: &common.WorkflowType{Name: workflowName}, Memo: memo,
		Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING,
	}
	return nil, nil //nolint:nilnil // which nobody looks at
}

func (l *lists) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if l.infos[id] == nil {
		return nil, serviceerror.NewNotFound("none")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: l.infos[id]}, nil
}

// TestTitle: a session's title and sandbox are in its memo, which Temporal's lists show.
func TestTitle(t *testing.T) {
	l := &lists{infos: map[string]*workflow.WorkflowExecutionInfo{}}
	c := New(l, nil)
	for _, o := range []StartOptions{{ID: "a", Title: "nightly build"}, {ID: "b", Sandbox: &durable.Options{Name: "mine"}}} {
		_, err := c.Start(t.Context(), &o)
		require.NoError(t, err)
	}
	assert.Equal(t, map[string]any{memoTitle: "nightly build", memoSandbox: "durable-a"}, l.started[0].Memo)
	assert.Equal(t, map[string]any{memoSandbox: "mine"}, l.started[1].Memo)
	assert.Equal(t, "mine", sandboxOf(l.infos["b"]))
	_, err := c.Start(t.Context(), &StartOptions{Title: strings.Repeat("x", 201)})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

// TestRemove: everything that an ended session has kept is removed, even after Temporal
// has forgotten the session. A running session, another session's sandbox and another
// kind of workflow are not touched.
func TestRemove(t *testing.T) {
	t.Parallel()
	p := newPlay(t, nil)
	p.send(time.Minute, "a", "echo kept")
	p.At(time.Hour, func() { p.tell(updateDestroy, DestroyOptions{}) })
	p.run(Policy{})
	l := &lists{infos: map[string]*workflow.WorkflowExecutionInfo{
		"ses-1": {Type: &common.WorkflowType{Name: workflowName}, Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING},
		"other": {Type: &common.WorkflowType{Name: "payment"}},
	}}
	c := New(l, &Options{Sandbox: p.Server.Client(), Output: p.Worker.Output})
	there := func() (n int) {
		for _, err := range p.Server.Client().List(t.Context(), nil) {
			require.NoError(t, err)
			n++
		}
		return n
	}
	require.ErrorIs(t, c.Remove(t.Context(), "ses-1"), sandbox.ErrInvalid)
	require.ErrorIs(t, c.Remove(t.Context(), "other"), ErrNoSession)
	delete(l.infos, "ses-1") // its retention is over
	_, err := p.Server.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "durable-ses-2"})
	require.NoError(t, err)
	require.NoError(t, c.Remove(t.Context(), "ses-2"))
	assert.Equal(t, 2, there())
	assert.Equal(t, "kept\n", p.output("cmd-1"))
	require.NoError(t, c.Remove(t.Context(), "ses-1"))
	assert.Equal(t, 1, there())
	_, err = p.Worker.Output.Open(t.Context(), outputOf(p.events(), "cmd-1"))
	require.Error(t, err)
	require.NoError(t, c.Remove(t.Context(), "ses-1"), "again")
	require.ErrorIs(t, New(l, nil).Remove(t.Context(), "ses-1"), sandbox.ErrInvalid)
}
