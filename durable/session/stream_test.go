package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/go-vercel/sandbox/durable"
)

// cluster acts as Temporal: it has a growing history, and workers that answer queries from
// memory.
type cluster struct {
	client.Client
	mu      sync.Mutex
	grown   chan struct{}
	history []*history.HistoryEvent
	events  []stored
	failing error // the error of queries
	status  enums.WorkflowExecutionStatus
	queries int
	gone    bool   // Temporal no longer has the history
	written int    // bytes that the command "p" has written
	again   string // the failure for which an activity is retried
}

func (c *cluster) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	var pending []*workflow.PendingActivityInfo
	for _, activity := range []string{"sandbox.Kill", "sandbox.Follow"} {
		for _, command := range []string{"o", "p"} {
			bytes := 1 << 20
			if activity == "sandbox.Follow" && command == "p" {
				bytes = c.written
			}
			details, err := converter.GetDefaultDataConverter().ToPayloads(map[string]any{"Command": command, "Bytes": bytes})
			if err != nil {
				return nil, err
			}
			pending = append(pending, &workflow.PendingActivityInfo{ActivityType: &common.ActivityType{Name: activity}, HeartbeatDetails: details})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil, c.failing
	}
	if c.again != "" {
		pending = append(pending, &workflow.PendingActivityInfo{Attempt: 2, LastFailure: &failure.Failure{Message: c.again}})
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{
		PendingActivities: pending, WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Type: &common.WorkflowType{Name: workflowName}, Status: c.status, HistoryLength: int64(len(c.history))},
	}, nil
}

func newCluster() *cluster {
	c := &cluster{grown: make(chan struct{})}
	c.happens(&history.HistoryEvent{
		EventType:  enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &history.HistoryEvent_WorkflowExecutionStartedEventAttributes{WorkflowExecutionStartedEventAttributes: &history.WorkflowExecutionStartedEventAttributes{OriginalExecutionRunId: "run"}},
	})
	return c
}

func (c *cluster) happens(e *history.HistoryEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, e)
	close(c.grown)
	c.grown = make(chan struct{})
}

// commits commits the decision that started with an event.
func (c *cluster) commits(started int64) {
	c.happens(&history.HistoryEvent{
		EventType:  enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
		Attributes: &history.HistoryEvent_WorkflowTaskCompletedEventAttributes{WorkflowTaskCompletedEventAttributes: &history.WorkflowTaskCompletedEventAttributes{StartedEventId: started}},
	})
}

// begins adds the start of a decision to the history.
func (c *cluster) begins(at time.Time) {
	c.happens(&history.HistoryEvent{EventType: enums.EVENT_TYPE_WORKFLOW_TASK_STARTED, EventTime: timestamppb.New(at)})
}

// knows sets the events in the worker's memory.
func (c *cluster) knows(events ...stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range events {
		events[i].Event.Seq = i
	}
	c.events = events
}

func (c *cluster) QueryWorkflowWithOptions(_ context.Context, req *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queries++
	if c.failing != nil {
		return nil, c.failing
	}
	var v any = State{State: StateActive, Running: "cmd-1", Events: len(c.events)}
	if req.QueryType == queryEvents {
		r := &run{run: "run", replayed: 1, state: &state{Events: c.events}}
		v = r.page(req.Args[0].(int))
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(v)
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (c *cluster) GetWorkflowHistory(ctx context.Context, _, _ string, _ bool, _ enums.HistoryEventFilterType) client.HistoryEventIterator {
	return &iterator{c: c, ctx: ctx}
}

type iterator struct {
	c   *cluster
	ctx context.Context
	at  int
}

func (i *iterator) HasNext() bool {
	i.c.mu.Lock()
	defer i.c.mu.Unlock()
	return i.at == 0 || i.at < len(i.c.history) || i.c.status == 0
}

func (i *iterator) Next() (*history.HistoryEvent, error) {
	for {
		i.c.mu.Lock()
		grown := i.c.grown
		if i.c.gone {
			i.c.mu.Unlock()
			return nil, i.c.failing
		}
		if i.at < len(i.c.history) {
			i.at++
			e := i.c.history[i.at-1]
			i.c.mu.Unlock()
			return e, nil
		}
		i.c.mu.Unlock()
		select {
		case <-grown:
		case <-i.ctx.Done():
			return nil, i.ctx.Err()
		}
	}
}

// watcher is a viewer in the background.
type watcher struct {
	mu    sync.Mutex
	words []string
	last  []Cursor // the cursor of each word
	err   error
	over  bool
	stop  context.CancelFunc
}

func watchFrom(c *Client, from Cursor) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{stop: cancel}
	go func() {
		for e, err := range c.Events(ctx, "a", from) {
			w.mu.Lock()
			word := strings.Join(strings.Fields(fmt.Sprint(e.Type, " ", e.ID, e.State, e.Data, e.Error)), " ")
			if w.err = err; err == nil {
				w.words, w.last = append(w.words, word), append(w.last, e.Cursor)
			}
			w.mu.Unlock()
		}
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
	}()
	return w
}

// ended reports whether the loop has ended, and its error.
func (w *watcher) ended() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over, w.err
}

// saw returns the new events once nothing more happens.
func (w *watcher) saw() []string {
	time.Sleep(5 * time.Second)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.words)
}

func of(decision int, e Event) stored { return stored{Event: e, Decision: decision} }

func queuedEvent(id string) Event { return Event{Type: TypeCommandQueued, ID: id} }

// TestOnlyCommitted: a viewer gets no event of an uncommitted decision, even if a worker
// keeps reporting it. It gets the events of the decision that took its place.
func TestOnlyCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		v := watchFrom(New(temporal, nil), Cursor{})
		defer v.stop()
		temporal.knows(of(3, Event{Type: TypeCreated}), of(9, Event{Type: TypeCommandQueued, ID: "lost"}))
		temporal.commits(3)
		assert.Equal(t, []string{"created"}, v.saw())
		temporal.commits(7) // commit another decision
		assert.Equal(t, []string{"created"}, v.saw())
		temporal.knows(of(3, Event{Type: TypeCreated}), of(13, queuedEvent("cmd-1")), of(13, queuedEvent("lost")), of(0, queuedEvent("carried")))
		temporal.commits(13)
		assert.Equal(t, []string{"created", "command_queued cmd-1", "command_queued lost", "command_queued carried"}, v.saw())
	})
}

// TestLostAttempt: a lost attempt of a decision may have the same number as the
// committed one, without a trace in the history. A viewer gets only the events of the
// committed one.
func TestLostAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		v := watchFrom(New(temporal, nil), Cursor{})
		defer v.stop()
		at := func(d time.Duration, e stored) stored {
			e.Event.At = millis(time.Unix(0, 0).Add(d))
			return e
		}
		lost, made := at(time.Second, of(3, queuedEvent("lost"))), at(time.Minute, of(3, Event{Type: TypeCreated}))
		temporal.knows(lost)
		temporal.begins(made.Event.At.Time())
		temporal.commits(3)
		assert.Empty(t, v.saw(), "the event is only in the memory of a worker that lost the decision")
		later := at(2*time.Minute, of(7, queuedEvent("cmd-1")))
		temporal.knows(made, later)
		temporal.begins(later.Event.At.Time().Add(-90 * time.Second)) // the clock has gone back
		temporal.commits(7)
		assert.Equal(t, []string{"created", "command_queued cmd-1"}, v.saw())
	})
}

// hooked is a cluster that calls the function meanwhile between a query and its answer.
type hooked struct {
	*cluster
	meanwhile func()
}

func (h *hooked) QueryWorkflowWithOptions(ctx context.Context, req *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	resp, err := h.cluster.QueryWorkflowWithOptions(ctx, req)
	if happens := h.meanwhile; happens != nil && req.Args[0] == 1 {
		h.meanwhile = nil
		happens()
		time.Sleep(time.Second)
	}
	return resp, err
}

// TestReplayedDecision: a worker that replays a decision that has just started does not
// know its updates. A viewer gets the events of the committed decision.
func TestReplayedDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := &hooked{cluster: newCluster()}
		temporal.knows(of(3, Event{Type: TypeCreated}))
		temporal.commits(3)
		v := watchFrom(New(temporal, nil), Cursor{})
		defer v.stop()
		assert.Equal(t, []string{"created"}, v.saw())
		temporal.meanwhile = func() {
			temporal.knows(of(3, Event{Type: TypeCreated}), of(11, queuedEvent("cmd-1")), of(11, Event{Type: TypeActivity}))
			temporal.commits(11)
		}
		temporal.knows(of(3, Event{Type: TypeCreated}), of(11, Event{Type: TypeActivity}))
		temporal.commits(7) // a change makes the viewer query again
		assert.Equal(t, []string{"created", "command_queued cmd-1", "activity"}, v.saw())
	})
}

// TestCursorInNoOutput: if a cursor points into the output of an event that has no output, the
// viewer gets that event.
func TestCursorInNoOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		temporal.knows(of(3, Event{Type: TypeCreated}), of(3, queuedEvent("cmd-1")))
		temporal.commits(3)
		v := watchFrom(New(temporal, nil), Cursor{Seq: 1, Byte: 7})
		defer v.stop()
		assert.Equal(t, []string{"command_queued cmd-1"}, v.saw())
	})
}

// pipes is a store whose outputs are still being written.
type pipes struct {
	durable.OutputStore
	content func() io.ReadCloser
}

func (p pipes) Open(context.Context, string) (io.ReadCloser, error) { return p.content(), nil }

// record returns a stored piece of output, with at bytes before it.
func record(at int64, data string) string {
	line, _ := json.Marshal(durable.Record{Stream: "stdout", Data: []byte(data), At: at})
	return string(line) + "\n"
}

// TestAheadOfOutput: events during a command are shown at once, and the command's end after
// all of its output. A viewer continues from any position.
func TestAheadOfOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		r, w := io.Pipe()
		v := watchFrom(New(temporal, &Options{Output: pipes{content: func() io.ReadCloser { return r }}}), Cursor{})
		at := int64(0)
		write := func(data string) {
			_, err := io.WriteString(w, record(at, data))
			require.NoError(t, err)
			at += int64(len(data))
		}
		all := []stored{of(3, Event{Type: TypeCreated}), of(3, Event{Type: TypeCommandStart, ID: "cmd-1", Output: "a/cmd-1"})}
		happens := func(decision int, e Event) {
			all = append(all, of(decision, e))
			temporal.knows(slices.Clone(all)...)
			temporal.commits(int64(decision))
		}
		temporal.knows(slices.Clone(all)...)
		temporal.commits(3)
		write("one")
		v.saw()
		happens(7, queuedEvent("cmd-2"))
		want := []string{"created", "command_start cmd-1", "command_output cmd-1one", "command_queued cmd-2"}
		assert.Equal(t, want, v.saw(), "while the command runs")
		write("two")
		v.saw()
		happens(11, Event{Type: TypeStatus, State: StateBlocked})
		assert.Len(t, v.saw(), 6)
		happens(15, Event{Type: TypeCommandEnd, ID: "cmd-1", Archived: true})
		assert.Len(t, v.saw(), 6, "the end of the command waits for its output")
		write("three")
		require.NoError(t, w.Close())
		happens(19, Event{Type: TypeActivity})
		words := v.saw()
		assert.Equal(t, []string{"command_output cmd-1three", "command_end cmd-1", "activity"}, words[6:])
		v.stop()

		// From each position, the same bytes and events follow.
		split := func(words []string) (events []string, bytes string) {
			for _, word := range words {
				if data, ok := strings.CutPrefix(word, "command_output cmd-1"); ok {
					bytes += data
				} else {
					events = append(events, word)
				}
			}
			return events, bytes
		}
		whole := record(0, "one") + record(3, "two") + record(6, "three")
		stored := New(temporal, &Options{Output: pipes{content: func() io.ReadCloser { return io.NopCloser(strings.NewReader(whole)) }}})
		for i, at := range v.last {
			text, err := ParseCursor(at.String())
			require.NoError(t, err)
			again := watchFrom(stored, text)
			events, bytes := split(again.saw())
			wantEvents, wantBytes := split(words[i+1:])
			assert.Equal(t, wantEvents, events, "after %s at %s", words[i], at)
			assert.Equal(t, wantBytes, bytes, "after %s at %s", words[i], at)
			again.stop()
		}
	})
}

// TestTerminated: viewers learn that the session's workflow was terminated, and make no
// request afterwards.
func TestTerminated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		c := New(temporal, nil)
		v := watchFrom(c, Cursor{})
		temporal.knows(of(3, Event{Type: TypeCreated}))
		temporal.commits(3)
		assert.Equal(t, []string{"created"}, v.saw())
		temporal.mu.Lock()
		temporal.status = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
		temporal.mu.Unlock()
		temporal.happens(&history.HistoryEvent{EventType: enums.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED})
		assert.Equal(t, []string{"created", "result the session's workflow was terminated"}, v.saw())
		assert.True(t, v.over)
		asked := temporal.queries
		assert.Less(t, asked, 6)
		late := watchFrom(c, Cursor{})
		assert.Len(t, late.saw(), 2)
		s, err := c.State(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, StateTerminated, s.State)
		time.Sleep(time.Hour)
		assert.LessOrEqual(t, temporal.queries-asked, 4)
	})
}

// TestStateSaysWhatFails: the state contains the error of an activity that is retried.
func TestStateSaysWhatFails(t *testing.T) {
	temporal := newCluster()
	for _, why := range []string{"", "no space left on device"} {
		temporal.again = why
		s, err := New(temporal, nil).State(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, why, s.Error)
		assert.Equal(t, StateActive, s.State)
	}
}

// TestLostInRetention: viewers learn that Temporal no longer has a session, and make no
// request afterwards.
func TestLostInRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		v := watchFrom(New(temporal, nil), Cursor{})
		temporal.knows(of(3, Event{Type: TypeCreated}))
		temporal.commits(3)
		assert.Equal(t, []string{"created"}, v.saw())
		temporal.mu.Lock()
		temporal.failing, temporal.gone = serviceerror.NewNotFound("no such workflow"), true
		temporal.mu.Unlock()
		temporal.happens(&history.HistoryEvent{EventType: enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED}) // this ends the poll
		time.Sleep(time.Minute)
		over, err := v.ended()
		assert.True(t, over)
		assert.ErrorIs(t, err, ErrNoSession)
		asked := temporal.queries
		time.Sleep(time.Hour)
		assert.Equal(t, asked, temporal.queries)
	})
}

// TestFutureCursor: a cursor beyond the last event is refused, because nothing would
// follow.
func TestFutureCursor(t *testing.T) {
	temporal := newCluster()
	temporal.knows(of(3, Event{Type: TypeCreated}), of(3, Event{Type: TypeStatus}))
	temporal.commits(3)
	h := New(temporal, nil).Handler(nil)
	for cursor, want := range map[string]int{
		"3.0": http.StatusBadRequest, "2.1": http.StatusBadRequest, "1.7.1": http.StatusBadRequest, "1000000.0": http.StatusBadRequest,
		"0.0": http.StatusOK, "2.0": http.StatusOK, "1.1": http.StatusOK, "0.5.1": http.StatusOK,
	} {
		for _, req := range []*http.Request{
			httptest.NewRequest("GET", "/events?runId=a&cursor="+cursor, nil),
			httptest.NewRequest("POST", "/start", strings.NewReader(`{"runId":"a","cursor":"`+cursor+`"}`)),
		} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // the viewer leaves at once
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req.WithContext(ctx))
			assert.Equal(t, want, w.Code, "%s %s", req.Method, cursor)
		}
	}
}

// TestLostFromHistory: a viewer whose last event a restored database has lost gets an
// error, in this process or another. It neither waits for the events that replace it nor
// continues after them.
func TestLostFromHistory(t *testing.T) {
	at := func(e Event, at Millis) stored { e.At = at; return of(3, e) }
	both := []stored{at(Event{Type: TypeCreated}, 1), at(queuedEvent("cmd-1"), 2)}
	seen := append(slices.Clone(both), at(queuedEvent("lost"), 3))
	for name, row := range map[string]struct {
		then []stored
		more []string // the expected words; nil if an error is expected
	}{
		"fewer":    {then: both},
		"as many":  {then: append(slices.Clone(both), at(queuedEvent("another"), 9))},
		"more":     {then: append(slices.Clone(both), at(queuedEvent("another"), 9), at(queuedEvent("more"), 10))},
		"the same": {then: append(slices.Clone(seen), at(queuedEvent("more"), 10)), more: []string{"command_queued more"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				temporal := newCluster()
				v := watchFrom(New(temporal, nil), Cursor{})
				defer v.stop()
				temporal.knows(seen...)
				temporal.commits(3)
				require.Len(t, v.saw(), 3)
				from, err := ParseCursor(v.last[2].String())
				require.NoError(t, err)
				temporal.knows(row.then...)
				temporal.commits(7) // a change makes the viewer query again
				late := watchFrom(New(temporal, nil), from)
				defer late.stop()
				assert.Equal(t, append([]string{}, row.more...), v.saw()[3:])
				assert.Equal(t, row.more, late.saw())
				for _, v := range []*watcher{v, late} {
					over, err := v.ended()
					assert.Equal(t, row.more == nil, over)
					if over {
						assert.ErrorIs(t, err, ErrCursor)
					}
				}
				// Over HTTP, the error becomes the status of the response, and no stream
				// begins. Otherwise the viewer would reconnect with the same cursor for
				// ever.
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				w := httptest.NewRecorder()
				New(temporal, nil).Handler(nil).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?runId=a&cursor="+from.String(), nil))
				assert.Equal(t, row.more == nil, w.Code == http.StatusBadRequest, "%d: %s", w.Code, w.Body)
			})
		})
	}
}

// TestFailingQueries: a query that keeps failing ends the stream with its error.
func TestFailingQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		temporal.failing = serviceerror.NewQueryFailed("[TMPRL1100] nondeterministic workflow")
		v := watchFrom(New(temporal, nil), Cursor{})
		defer v.stop()
		v.saw()
		over, _ := v.ended()
		assert.False(t, over, "the failures may be temporary")
		time.Sleep(2 * time.Minute)
		v.saw()
		over, err := v.ended()
		assert.True(t, over)
		assert.ErrorContains(t, err, "TMPRL1100")
	})
}

// TestSharedQueries: viewers of one session in a process share queries.
func TestSharedQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		c := New(temporal, nil)
		temporal.knows(of(3, Event{Type: TypeCreated}))
		temporal.commits(3)
		var all []*watcher
		for range 50 {
			all = append(all, watchFrom(c, Cursor{}))
		}
		for _, v := range all {
			assert.Equal(t, []string{"created"}, v.saw())
		}
		before := temporal.queries
		temporal.knows(of(3, Event{Type: TypeCreated}), of(7, queuedEvent("cmd-1")))
		temporal.commits(7)
		for _, v := range all {
			assert.Len(t, v.saw(), 2)
			v.stop()
		}
		assert.LessOrEqual(t, temporal.queries-before, 4, "50 viewers share queries")
	})
}

// silent is a cluster that does not respond.
type silent struct{ client.Client }

var errSilent = errors.New("no answer")

func (silent) QueryWorkflowWithOptions(ctx context.Context, _ *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	<-ctx.Done()
	return nil, errSilent
}

func (silent) DescribeWorkflowExecution(ctx context.Context, _, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	<-ctx.Done()
	return nil, errSilent
}

func (silent) UpdateWorkflow(ctx context.Context, _ client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	<-ctx.Done()
	return nil, errSilent
}

func (silent) ExecuteWorkflow(ctx context.Context, _ client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	<-ctx.Done()
	return nil, errSilent
}

// TestRoutesRespond: every route responds within ten seconds, whatever is unavailable.
func TestRoutesRespond(t *testing.T) {
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/start", ""}, {"POST", "/start", `{"runId":"a"}`}, {"POST", "/command", `{"runId":"a","command":"true"}`}, {"GET", "/events?runId=a", ""},
		{"GET", "/session?runId=a", ""}, {"POST", "/interrupt", `{"runId":"a"}`}, {"POST", "/destroy", `{"runId":"a"}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, began := httptest.NewRecorder(), time.Now()
			New(silent{}, nil).Handler(nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), r.method, r.path, strings.NewReader(r.body)))
			assert.Equal(t, http.StatusServiceUnavailable, w.Code, "%s %s", r.method, r.path)
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
			assert.LessOrEqual(t, time.Since(began), 10*time.Second)
		})
	}
}
