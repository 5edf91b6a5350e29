package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// engineTimeout is how long a route waits for Temporal.
const engineTimeout = 10 * time.Second

// historyGrew reports whether a query failed because the history grew while the worker read
// it. Temporal's SDK takes that for a workflow that is not deterministic. It is safe to
// repeat a query.
func historyGrew(err error) bool {
	failed, ok := errors.AsType[*serviceerror.QueryFailed](err)
	return ok && strings.Contains(failed.Error(), "[TMPRL1100]")
}

// query sends a query to a run of a session, or to the last one if run is empty.
func (c *Client) query(ctx context.Context, id, run string, out any, name string, args ...any) error {
	req := &client.QueryWorkflowWithOptionsRequest{WorkflowID: id, RunID: run, QueryType: name, Args: args}
	resp, err := c.temporal.QueryWorkflowWithOptions(ctx, req)
	for again := 1; again < queryAttempts && historyGrew(err); again++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(queryPause):
		}
		resp, err = c.temporal.QueryWorkflowWithOptions(ctx, req)
	}
	if err != nil {
		return noSession(id, err)
	}
	return resp.QueryResult.Get(out)
}

// How often, and after which pause, a query is repeated if the history has grown.
const (
	queryAttempts = 5
	queryPause    = 200 * time.Millisecond
)
