package session

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
)

// watch tells the viewers of one session when it may have new events, and which of
// them are true: a long poll of the workflow's history, which adds nothing to it
// and needs no worker. All viewers of a process share one, and what they ask.
type watch struct {
	c       *Client
	id      string
	cancel  context.CancelFunc
	viewers int
	ctx     context.Context // ends with the last viewer

	// Guarded by the client's mutex. changed is closed and replaced at each change,
	// which also forgets what was asked.
	changed chan struct{}
	asked   map[int]*question
	// at is how far the history was followed, and committed when the decisions of its
	// run began that are in it, by the number of the event with which each did; begun is
	// when the last one did, which need not be committed.
	at        place
	committed map[int]Millis
	begun     Millis
	// over is how the last run ended.
	over enums.WorkflowExecutionStatus
}

// place is one in a session's history: a run, and the last of its decisions that is
// committed.
type place struct {
	run      string
	decision int
}

func (p place) has(run string, decision int) bool { return p.run == run && decision <= p.decision }

// question is a query that viewers share.
type question struct {
	answered chan struct{}
	page     page
	err      error
}

// watch joins the watch of a session. The caller calls leave.
func (c *Client) watch(id string) (w *watch, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w = c.watches[id]
	if w == nil {
		ctx, cancel := context.WithCancel(context.Background())
		w = &watch{c: c, id: id, ctx: ctx, cancel: cancel, changed: make(chan struct{}), asked: map[int]*question{}}
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

// next returns the channel that is closed at the next change. It is taken before
// looking.
func (w *watch) next() <-chan struct{} {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.changed
}

// reached returns those of events of a page that the history has reached. A worker
// answers queries from what it has in memory, which may be of a decision that is
// never committed: then another one is made in its place, with other events.
func (w *watch) reached(p page, events []stored) (reached []stored, all bool) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if p.Run == "" { // Temporal's test environment has no run IDs, and commits everything
		return events, true
	}
	if p.Run != w.at.run {
		return nil, false
	}
	for i, e := range events {
		// A worker that replays the history for a query makes the decision that has just
		// begun as well, without the updates that only the one that began it knows. If it
		// is asked after that was committed, it replays that too.
		//
		// Attempts of a decision that are lost leave no trace but for the first, so that
		// the one that is committed has their number, but is later. What a workflow
		// takes for the time never goes back, and may be later still.
		if at, ok := w.committed[e.Decision]; e.Decision > 0 && (!ok || p.Replayed > 0 && !p.asked.has(p.Run, e.Decision) || e.Event.At < at) {
			return events[:i], false
		}
	}
	return events, true
}

// ended returns how the workflow has ended, zero if it has not.
func (w *watch) ended() enums.WorkflowExecutionStatus {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.over
}

// ask asks the workflow for the events from a number on. Viewers that ask for the
// same since the last change get the same answer.
func (w *watch) ask(ctx context.Context, from int) (page, error) {
	w.c.mu.Lock()
	q := w.asked[from]
	if q == nil {
		q = &question{answered: make(chan struct{}), page: page{asked: w.at}}
		w.asked[from] = q
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

// noteQueryTime notes how long a query took, of which pause is the mean.
func (c *Client) noteQueryTime(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cost += (d - c.cost) / 8
}

// pause is how long viewers wait after a change, for others that come with it: as
// long as a query takes, so that viewers do not keep workers from their work.
func (c *Client) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.cost, maxPause)
}

const maxPause = 2 * time.Second

// note takes an event of the history.
func (w *watch) note(e *history.HistoryEvent) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	switch e.EventType {
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		w.at, w.committed = place{run: e.GetWorkflowExecutionStartedEventAttributes().GetOriginalExecutionRunId()}, map[int]Millis{}
	case enums.EVENT_TYPE_WORKFLOW_TASK_STARTED:
		w.begun = millis(e.GetEventTime().AsTime())
		return
	case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
		w.at.decision = int(e.GetWorkflowTaskCompletedEventAttributes().GetStartedEventId())
		w.committed[w.at.decision] = w.begun
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		w.over = enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		w.over = enums.WORKFLOW_EXECUTION_STATUS_FAILED
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		w.over = enums.WORKFLOW_EXECUTION_STATUS_CANCELED
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		w.over = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		w.over = enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT
	default:
		return
	}
	w.change()
}

// change wakes the viewers. The mutex is held.
func (w *watch) change() {
	close(w.changed)
	w.changed, w.asked = make(chan struct{}), map[int]*question{}
}

// poll follows the history, and that of the runs that continue it.
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
			if w.note(e); e.EventType == enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW {
				wait = 0
			}
		}
		if w.ended() != enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED {
			return
		}
		// The run is over, or the engine away for a moment.
		select {
		case <-time.After(wait):
			wait = min(max(2*wait, first), last)
			w.c.mu.Lock()
			w.change()
			w.c.mu.Unlock()
		case <-w.ctx.Done():
		}
	}
}
