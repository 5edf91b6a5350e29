package session

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// TestSecret: a secret command runs, and the workflow never gets its text. Another command
// is sent whole, up to MaxCommand.
func TestSecret(t *testing.T) {
	u := &updateRecorder{}
	c := New(u, &Options{Output: durable.Dir(t.TempDir())})
	c.remember("ses-1")
	_, err := c.Command(t.Context(), "ses-1", Command{Command: "echo s3cret", Secret: true})
	require.NoError(t, err)
	assert.Equal(t, []any{commandUpdate{Text: textName("echo s3cret")}}, u.args)
	e, err := c.archive.event(t.Context(), "ses-1", stored{Text: textName("echo s3cret")})
	require.NoError(t, err)
	assert.Equal(t, "echo s3cret", e.Command)
	_, err = New(u, nil).Command(t.Context(), "ses-1", Command{Command: "echo s3cret", Secret: true})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	whole := strings.Repeat("x", MaxCommand)
	_, err = c.Command(t.Context(), "ses-1", Command{Command: whole})
	require.NoError(t, err)
	assert.Equal(t, commandUpdate{Command: whole}, u.args[1])
	_, err = c.Command(t.Context(), "ses-1", Command{Command: whole + "x"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.Len(t, u.args, 2)
}

// updateRecorder is a cluster that records the updates of a session.
type updateRecorder struct {
	client.Client
	args []any
}

func (u *updateRecorder) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Type: &common.WorkflowType{Name: workflowName}}}, nil
}

func (u *updateRecorder) QueryWorkflowWithOptions(context.Context, *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(decided{})
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (u *updateRecorder) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	u.args = append(u.args, o.Args...)
	return acceptedUpdate{}, nil
}

type acceptedUpdate struct{ client.WorkflowUpdateHandle }

func (acceptedUpdate) Get(context.Context, any) error { return nil }
