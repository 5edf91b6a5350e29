package session

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// lists is a cluster that lists the workflows that were started, one on a page.
type lists struct {
	client.Client
	queries []string
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

func (l *lists) ListWorkflow(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	l.queries = append(l.queries, r.Query)
	n := len(r.NextPageToken)
	page := &workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflow.WorkflowExecutionInfo{l.infos[l.started[n].ID]}}
	if n+1 < len(l.started) {
		page.NextPageToken = make([]byte, n+1)
	}
	return page, nil
}

func (l *lists) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if l.infos[id] == nil {
		return nil, serviceerror.NewNotFound("none")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: l.infos[id]}, nil
}

// TestList: sessions are listed with their owner and sandbox, and found by owner and state
// where the cluster has search attributes.
func TestList(t *testing.T) {
	l := &lists{infos: map[string]*workflow.WorkflowExecutionInfo{}}
	c := New(l, &Options{SearchAttributes: true})
	for _, o := range []StartOptions{{ID: "a", Owner: "ann"}, {ID: "b", Sandbox: &durable.Options{Name: "mine"}}} {
		_, err := c.Start(t.Context(), &o)
		require.NoError(t, err)
	}
	owner, _ := l.started[0].TypedSearchAttributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword(AttributeOwner))
	assert.Equal(t, "ann", owner)
	var got []Listed
	for s, err := range c.List(t.Context(), &ListOptions{Owner: "ann", State: StateBlocked}) {
		require.NoError(t, err)
		s.StartedAt = time.Time{}
		got = append(got, s)
	}
	assert.Equal(t, []Listed{{ID: "a", Owner: "ann", Sandbox: "durable-a"}, {ID: "b", Sandbox: "mine"}}, got)
	assert.Equal(t, "WorkflowType = 'sandbox.Session' AND ExecutionStatus = 'Running' AND SandboxOwner = 'ann' AND SandboxState = 'blocked'", l.queries[0])
	for range c.List(t.Context(), &ListOptions{Ended: true}) {
		break
	}
	assert.Contains(t, l.queries[2], "NOT IN ('Running', 'ContinuedAsNew')")

	refused := func(c *Client, o ListOptions) {
		for _, err := range c.List(t.Context(), &o) {
			require.ErrorIs(t, err, sandbox.ErrInvalid)
		}
	}
	refused(c, ListOptions{Owner: "' OR WorkflowType = 'payment"})
	refused(New(l, nil), ListOptions{Owner: "ann"})
	_, err := c.Start(t.Context(), &StartOptions{Owner: "a'b"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

// TestStateIsListed: what a cluster lists is the state of the session.
func TestStateIsListed(t *testing.T) {
	t.Parallel()
	p := newPlay(t, nil)
	var states []string
	p.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
		state, _ := args.Get(0).(temporal.SearchAttributes).GetKeyword(temporal.NewSearchAttributeKeyKeyword(AttributeState))
		states = append(states, state)
	}).Return(nil)
	p.At(time.Hour, func() { p.tell(updateDestroy, DestroyOptions{}) })
	p.ExecuteWorkflow(Workflow, input{SearchAttributes: true})
	require.NoError(t, p.GetWorkflowError())
	assert.Equal(t, []string{StateActive, StateHibernating, StateHibernated, StateDestroyed}, states)
}

// TestRemove: what a session has kept that has ended is removed, also once Temporal has
// forgotten it. One that lives, a sandbox of another and another kind of workflow are not
// touched.
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
