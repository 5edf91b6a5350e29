package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable/session"
)

// failingQueries is a cluster that answers the first queries with these errors, and later
// ones with an empty state.
type failingQueries struct {
	client.Client
	errs  []error
	asked int
}

func (q *failingQueries) QueryWorkflowWithOptions(context.Context, *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	q.asked++
	if q.asked <= len(q.errs) {
		return nil, q.errs[q.asked-1]
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(session.State{})
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (*failingQueries) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return executionOf("sandbox.Session"), nil
}

// executionOf returns the description of a workflow of a type.
func executionOf(workflowType string) *workflowservice.DescribeWorkflowExecutionResponse {
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Type: &common.WorkflowType{Name: workflowType}},
	}
}

// TestOutgrownQuery: a query that fails because the history grew is sent again. Any other
// failure is not.
func TestOutgrownQuery(t *testing.T) {
	outgrown := serviceerror.NewQueryFailed("[TMPRL1100] lookup failed for scheduledEventID to activityID")
	for name, c := range map[string]struct {
		errs  []error
		asked int
		fails bool
	}{
		"never":     {nil, 1, false},
		"twice":     {[]error{outgrown, outgrown}, 3, false},
		"always":    {[]error{outgrown, outgrown, outgrown, outgrown, outgrown, outgrown}, 5, true},
		"otherwise": {[]error{serviceerror.NewQueryFailed("unknown queryType state")}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &failingQueries{errs: c.errs}
				_, err := session.New(q, nil).State(t.Context(), "a")
				assert.Equal(t, c.fails, err != nil, "%v", err)
				assert.Equal(t, c.asked, q.asked)
			})
		})
	}
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := session.New(&failingQueries{errs: []error{outgrown, outgrown}}, nil).State(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestStartRefuses: invalid options are refused before any request.
func TestStartRefuses(t *testing.T) {
	for name, o := range map[string]*session.StartOptions{
		"an ID with a slash":       {ID: "a/b"},
		"a margin above the cap":   {Policy: &session.Policy{MaxLifetime: 4 * time.Minute}},
		"a margin of the cap":      {Policy: &session.Policy{MaxLifetime: time.Hour, RefreshMargin: time.Hour}},
		"a negative time":          {Policy: &session.Policy{IdleAfter: -time.Second}},
		"a negative limit":         {Policy: &session.Policy{QueueLimit: -1}},
		"histories without end":    {Policy: &session.Policy{HistoryLimit: 2}},
		"a negative history limit": {Policy: &session.Policy{HistoryLimit: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := session.New(nil, nil).Start(t.Context(), o)
			require.ErrorIs(t, err, sandbox.ErrInvalid)
		})
	}
}

// TestSessionIDs: an invalid ID is refused before any request.
func TestSessionIDs(t *testing.T) {
	c, ctx := session.New(nil, nil), t.Context()
	for _, id := range []string{"", "a/b", "../a", "a b", "a\n", "ä", "a\x00", "%2e", strings.Repeat("a", 101)} {
		_, err := c.Command(ctx, id, session.Command{Command: "true"})
		assert.ErrorIs(t, err, session.ErrNoSession, "Command %q", id)
		_, err = c.State(ctx, id)
		assert.ErrorIs(t, err, session.ErrNoSession, "State %q", id)
		assert.ErrorIs(t, c.Interrupt(ctx, id, "", sandbox.SIGINT), session.ErrNoSession, "Interrupt %q", id)
		assert.ErrorIs(t, c.Destroy(ctx, id, nil), session.ErrNoSession, "Destroy %q", id)
		for _, err := range c.Events(ctx, id, session.Cursor{}) {
			assert.ErrorIs(t, err, session.ErrNoSession, "Events %q", id)
			break
		}
	}
}
