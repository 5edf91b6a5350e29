package session_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/session"
)

// starts is a cluster that records the IDs of started sessions, and never responds.
type starts struct {
	client.Client
	ids []string
}

func (s *starts) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewNotFound("none")
}

func (s *starts) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	s.ids = append(s.ids, o.ID)
	return nil, serviceerror.NewUnavailable("the response is lost")
}

// TestStartKey: starts with the same key are one session, and each start without a key is
// another. A key that could be guessed would give away the session, so it is refused.
func TestStartKey(t *testing.T) {
	c := &starts{}
	h := session.New(c, nil).Handler(nil)
	const key = "0123456789abcdef012345"
	for _, body := range []string{`{"key":"` + key + `"}`, `{"key":"` + key + `"}`, `{"key":"` + key + `6"}`, `{}`, `{}`} {
		assert.Equal(t, http.StatusServiceUnavailable, serve(h, "POST", "/start", body).Code)
	}
	if assert.Len(t, c.ids, 5) {
		assert.Equal(t, c.ids[0], c.ids[1])
		assert.NotContains(t, c.ids[0], key)
		seen := map[string]bool{}
		for _, id := range c.ids[1:] {
			assert.False(t, seen[id])
			seen[id] = true
		}
	}
	assert.Equal(t, http.StatusBadRequest, serve(h, "POST", "/start", `{"key":"1"}`).Code)
	assert.Len(t, c.ids, 5)
}
