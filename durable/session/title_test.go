package session_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
)

// memoRecorder is a cluster that records the memos of the sessions that are started. Its
// responses are lost.
type memoRecorder struct {
	client.Client
	memos []map[string]any
}

func (s *memoRecorder) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	s.memos = append(s.memos, o.Memo)
	return nil, serviceerror.NewUnavailable("the response is lost")
}

// TestTitle: a session's memo, which Temporal's lists show, has its title and sandbox.
func TestTitle(t *testing.T) {
	s := &memoRecorder{}
	c := session.New(s, nil)
	for _, o := range []session.StartOptions{{ID: "a", Title: "nightly build"}, {ID: "b", Sandbox: &durable.Options{Name: "mine"}}} {
		_, err := c.Start(t.Context(), &o)
		require.Error(t, err)
	}
	assert.Equal(t, []map[string]any{{"SandboxTitle": "nightly build", "SandboxName": "durable-a"}, {"SandboxName": "mine"}}, s.memos)
	_, err := c.Start(t.Context(), &session.StartOptions{Title: strings.Repeat("x", 201)})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}
