package session

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/query/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// queryServer acts as Temporal for a worker that does not have the queried session in
// memory.
type queryServer struct {
	workflowservice.UnimplementedWorkflowServiceServer
	tasks   chan *workflowservice.PollWorkflowTaskQueueResponse
	answers chan *workflowservice.RespondQueryTaskCompletedRequest
}

func (a *queryServer) PollWorkflowTaskQueue(ctx context.Context, _ *workflowservice.PollWorkflowTaskQueueRequest) (*workflowservice.PollWorkflowTaskQueueResponse, error) {
	select {
	case task := <-a.tasks:
		return task, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *queryServer) RespondQueryTaskCompleted(_ context.Context, answer *workflowservice.RespondQueryTaskCompletedRequest) (*workflowservice.RespondQueryTaskCompletedResponse, error) {
	a.answers <- answer
	return &workflowservice.RespondQueryTaskCompletedResponse{}, nil
}

// newQueryServer returns a queryServer with a worker.
func newQueryServer(t *testing.T) *queryServer {
	a := &queryServer{tasks: make(chan *workflowservice.PollWorkflowTaskQueueResponse), answers: make(chan *workflowservice.RespondQueryTaskCompletedRequest, 1)}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(srv, a)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	c, err := client.Dial(client.Options{HostPort: l.Addr().String(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := worker.New(c, "sandbox", worker.Options{LocalActivityWorkerOnly: true, DeadlockDetectionTimeout: testkit.Patience})
	w.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{Name: workflowName})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return a
}

// query sends a query to a session with a history. The events up to at are committed.
func (a *queryServer) query(t *testing.T, h []*history.HistoryEvent, at position, answer any, name string, args ...any) {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(args...)
	require.NoError(t, err)
	a.tasks <- &workflowservice.PollWorkflowTaskQueueResponse{
		TaskToken: []byte("task"), WorkflowExecution: &common.WorkflowExecution{WorkflowId: "ses-1", RunId: at.run},
		WorkflowType: &common.WorkflowType{Name: workflowName}, PreviousStartedEventId: int64(at.decision),
		History: &history.History{Events: h}, Query: &query.WorkflowQuery{QueryType: name, QueryArgs: payloads},
	}
	got := <-a.answers
	require.Empty(t, got.ErrorMessage)
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(got.QueryResult, answer))
}

// events queries all events.
func (a *queryServer) events(t *testing.T, h []*history.HistoryEvent, at position) page {
	all := page{Base: -1}
	for {
		p := page{askedAt: at}
		a.query(t, h, at, &p, queryEvents, all.Base+len(all.Events))
		more := len(p.Events) > 0
		p.Events = append(all.Events, p.Events...)
		if all = p; !more {
			return all
		}
	}
}

// answerChecks checks the answer to each query: it must contain the decided events from a
// number on, for a viewer who has followed the history so far.
var answerChecks = map[string]func(t *testing.T, a *queryServer, h []*history.HistoryEvent, w *watch, want []stored, from int){
	queryEvents: func(t *testing.T, a *queryServer, h []*history.HistoryEvent, w *watch, want []stored, from int) {
		p := a.events(t, h, w.at)
		got, _ := w.committedEvents(p, p.Events)
		got = slices.DeleteFunc(append([]stored{}, got...), func(e stored) bool { return e.Event.Seq < from })
		assert.Equal(t, want, got)
	},
	queryState: func(t *testing.T, a *queryServer, h []*history.HistoryEvent, w *watch, want []stored, from int) {
		var got decided
		a.query(t, h, w.at, &got, queryState)
		got = got.committed(h[len(h)-1].EventId)
		if len(want) > 0 {
			assert.Equal(t, from+len(want), got.Events)
		}
		for _, e := range slices.Backward(want) {
			if e.Event.Type == TypeStatus {
				assert.Equal(t, e.Event.State, got.State.State)
				break
			}
		}
	},
}

// TestOnlyDecided cuts each recorded history before and after the start of each decision.
// A worker that replays it for a query must report the results of the earlier decisions
// only. The next one is still open: an update could change it.
func TestOnlyDecided(t *testing.T) {
	a := newQueryServer(t)
	for _, file := range histories(t) {
		if !needs.Slow() && !strings.HasSuffix(file, "-1.json.gz") && !strings.HasSuffix(file, "/stored-2.json.gz") {
			continue // of the later runs of a session, only stored-2 is tested
		}
		h := readHistory(t, file).Events
		whole := &watch{c: New(nil, nil), changed: make(chan struct{})}
		for _, e := range h {
			whole.noteEvent(e)
		}
		truth := a.events(t, h, whole.at)
		l := &eventReader{}
		require.NoError(t, replayHistory(&history.History{Events: h}, l))
		require.Len(t, truth.Events, len(l.events), file)
		require.ElementsMatch(t, slices.Collect(maps.Keys(answerChecks)), l.queries, "answerChecks lacks a query, or has one that does not exist")
		w := &watch{c: New(nil, nil), changed: make(chan struct{})}
		for i, e := range h {
			if begins := enums.EVENT_TYPE_WORKFLOW_TASK_STARTED; w.at.decision > 0 && (e.EventType == begins || h[i-1].EventType == begins) {
				want := []stored{}
				for _, e := range truth.Events {
					if e.Decision <= w.at.decision {
						want = append(want, e)
					}
				}
				for query, tells := range answerChecks {
					t.Run(fmt.Sprintf("%s of %s to %d", query, filepath.Base(file), h[i-1].EventId), func(t *testing.T) {
						tells(t, a, h[:i], w, want, truth.Base)
					})
				}
			}
			w.noteEvent(e)
		}
	}
}
