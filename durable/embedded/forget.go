package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
)

// Runs of sessions that have continued as new are deleted forgetAfter: what a session is
// goes on in the next one, and who was reading them has asked again by then.
const (
	forgetAfter = time.Minute
	forgetEvery = time.Minute
)

// forgetting deletes such runs until stop is called.
func (s *Server) forgetting(log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.stop = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		tick := time.NewTicker(forgetEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if _, err := s.forget(ctx, time.Now().Add(-forgetAfter)); err != nil && ctx.Err() == nil && log != nil { // it costs room, no more
				log.Warn("could not delete runs of sessions that have continued as new", "error", err)
			}
		}
	}()
}

// forget deletes runs of sessions that continued as new before a time, and returns how
// many.
func (s *Server) forget(ctx context.Context, before time.Time) (n int, err error) {
	c, err := s.Dial(ctx, client.Options{Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	req := &workflowservice.ListWorkflowExecutionsRequest{Query: fmt.Sprintf(
		"WorkflowType = 'sandbox.Session' AND ExecutionStatus = 'ContinuedAsNew' AND CloseTime < '%s'", before.UTC().Format(time.RFC3339Nano),
	)}
	for {
		list, err := c.ListWorkflow(ctx, req)
		if err != nil {
			return n, err
		}
		for _, run := range list.GetExecutions() {
			if _, err := c.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: s.namespace, WorkflowExecution: run.GetExecution(),
			}); err != nil {
				return n, err
			}
			n++
		}
		if req.NextPageToken = list.GetNextPageToken(); len(req.NextPageToken) == 0 {
			return n, nil
		}
	}
}
