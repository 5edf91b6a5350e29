package session_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
)

// starts is a cluster that notes the sessions that are started, by their IDs and memos.
// Its responses are lost.
type starts struct {
	client.Client
	ids   []string
	memos []map[string]any
}

func (s *starts) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewNotFound("none")
}

func (s *starts) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	s.ids, s.memos = append(s.ids, o.ID), append(s.memos, o.Memo)
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

// TestTitle: a session's memo, which Temporal's lists show, has its title and sandbox.
func TestTitle(t *testing.T) {
	s := &starts{}
	c := session.New(s, nil)
	for _, o := range []session.StartOptions{{ID: "a", Title: "nightly build"}, {ID: "b", Sandbox: &durable.Options{Name: "mine"}}} {
		_, err := c.Start(t.Context(), &o)
		require.Error(t, err)
	}
	assert.Equal(t, []map[string]any{{"SandboxTitle": "nightly build", "SandboxName": "durable-a"}, {"SandboxName": "mine"}}, s.memos)
	_, err := c.Start(t.Context(), &session.StartOptions{Title: strings.Repeat("x", 201)})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}
