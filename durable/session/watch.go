package session

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
)

// watch tells the viewers of one session when there may be new events, and which of them
// are committed. It is a long poll of the workflow's history, which adds nothing to the
// history and needs no worker. All viewers in a process share it, and its queries.
type watch struct {
	c       *Client
	id      string
	cancel  context.CancelFunc
	viewers int
	ctx     context.Context // ends with the last viewer

	// The client's mutex guards the rest. Each change closes and replaces changed, and
	// clears queries.
	changed chan struct{}
	queries map[int]*sharedQuery
	// at is how far the watch has followed the history. committed maps each committed
	// decision of the run, by the number of the event that started it, to its start time.
	// begun is when the last decision started, which may not be committed.
	at        position
	committed map[int]Millis
	begun     Millis
	// over says that the last run has ended, and terminated that it was terminated.
	over, terminated bool
}

// position is a position in a session's history: a run and its last committed decision.
type position struct {
	run      string
	decision int
}

func (p position) includes(run string, decision int) bool {
	return p.run == run && decision <= p.decision
}

// sharedQuery is a query whose answer several viewers get.
type sharedQuery struct {
	answered chan struct{}
	page     page
	err      error
}

// watch joins the watch of a session until the caller calls leave.
func (c *Client) watch(id string) (w *watch, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w = c.watches[id]
	if w == nil {
		ctx, cancel := context.WithCancel(context.Background())
		w = &watch{c: c, id: id, ctx: ctx, cancel: cancel, changed: make(chan struct{}), queries: map[int]*sharedQuery{}}
		c.watches[id] = w
		go w.poll()
	}
	w.viewers++
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.viewers--; w.viewers == 0 {
			w.cancel()
			delete(c.watches, id)
		}
	}
}

// nextChange returns a channel that is closed at the next change. Call it before a query,
// so that no change is missed.
func (w *watch) nextChange() <-chan struct{} {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.changed
}

// committedEvents returns the events of a page that are committed, and whether these are
// all. A worker answers queries from memory, which may contain a decision that is never
// committed: another decision, with other events, then takes its place.
func (w *watch) committedEvents(p page, events []stored) (committed []stored, all bool) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if p.Run == "" { // Temporal's test environment has no run IDs, and commits everything
		return events, true
	}
	if p.Run != w.at.run {
		return nil, false
	}
	for i, e := range events {
		// A worker that replays the history for a query also makes the decision that has
		// just started, without the updates that only the deciding worker knows. A query
		// after the commit replays the committed decision.
		//
		// Only the first lost attempt of a decision leaves a trace in the history. The
		// committed attempt has the same number, but a later time. A workflow's time never
		// goes back, and may be later still.
		if at, ok := w.committed[e.Decision]; e.Decision > 0 && (!ok || p.Replayed > 0 && !p.askedAt.includes(p.Run, e.Decision) || e.Event.At < at) {
			return events[:i], false
		}
	}
	return events, true
}

// end reports whether the workflow has ended, and whether it was terminated.
func (w *watch) end() (over, terminated bool) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.over, w.terminated
}

// queryPage queries the workflow for the events from a number on. Viewers with the same
// query share the answer until the next change.
func (w *watch) queryPage(ctx context.Context, from int) (page, error) {
	w.c.mu.Lock()
	q := w.queries[from]
	if q == nil {
		q = &sharedQuery{answered: make(chan struct{}), page: page{askedAt: w.at}}
		w.queries[from] = q
		go func() {
			defer close(q.answered)
			began := time.Now()
			ctx, cancel := context.WithTimeout(w.ctx, engineTimeout)
			defer cancel()
			q.err = w.c.query(ctx, w.id, "", &q.page, queryEvents, from)
			w.c.noteQueryTime(time.Since(began))
		}()
	}
	w.c.mu.Unlock()
	select {
	case <-q.answered:
		return q.page, q.err
	case <-ctx.Done():
		return page{}, ctx.Err()
	}
}

// noteQueryTime updates the mean duration of a query.
func (c *Client) noteQueryTime(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queryTime += (d - c.queryTime) / 8
}

// pause returns how long viewers wait for further changes after a change. It is the
// duration of a query, so that queries take at most half of a worker's time.
func (c *Client) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.queryTime, maxPause)
}

const maxPause = 2 * time.Second

// noteEvent processes an event of the history.
func (w *watch) noteEvent(e *history.HistoryEvent) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	switch e.EventType {
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		w.at, w.committed = position{run: e.GetWorkflowExecutionStartedEventAttributes().GetOriginalExecutionRunId()}, map[int]Millis{}
	case enums.EVENT_TYPE_WORKFLOW_TASK_STARTED:
		w.begun = millis(e.GetEventTime().AsTime())
		return
	case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
		w.at.decision = int(e.GetWorkflowTaskCompletedEventAttributes().GetStartedEventId())
		w.committed[w.at.decision] = w.begun
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		w.over = true
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		w.over, w.terminated = true, true
	default:
		return
	}
	w.wake()
}

// wake tells the viewers about a change. The caller holds the mutex.
func (w *watch) wake() {
	close(w.changed)
	w.changed, w.queries = make(chan struct{}), map[int]*sharedQuery{}
}

// poll follows the history of the workflow and of the runs that continue it.
func (w *watch) poll() {
	const first, last = 200 * time.Millisecond, 5 * time.Second
	for wait := first; w.ctx.Err() == nil; {
		it := w.c.temporal.GetWorkflowHistory(w.ctx, w.id, "", true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for it.HasNext() {
			e, err := it.Next()
			if err != nil {
				break
			}
			wait = first
			if w.noteEvent(e); e.EventType == enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW {
				wait = 0
			}
		}
		if over, _ := w.end(); over {
			return
		}
		// The run has ended, or Temporal does not respond. Poll again after a pause.
		select {
		case <-time.After(wait):
			wait = min(max(2*wait, first), last)
			w.c.mu.Lock()
			w.wake()
			w.c.mu.Unlock()
		case <-w.ctx.Done():
		}
	}
}
