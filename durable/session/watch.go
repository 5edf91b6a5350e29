package session

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
)

// watch tells the viewers of one session when it may have new events: a long poll
// of the workflow's history, which adds nothing to it and needs no worker. All
// viewers of a process share one.
type watch struct {
	cancel  context.CancelFunc
	viewers int
	// changed is closed and replaced at each change.
	changed chan struct{}
}

// watch joins the watch of a session. The caller calls leave. next returns the
// channel that is closed at the next change; take it before looking.
func (c *Client) watch(id string) (next func() <-chan struct{}, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watches[id]
	if w == nil {
		ctx, cancel := context.WithCancel(context.Background())
		w = &watch{cancel: cancel, changed: make(chan struct{})}
		c.watches[id] = w
		go c.poll(ctx, id, w)
	}
	w.viewers++
	next = func() <-chan struct{} {
		c.mu.Lock()
		defer c.mu.Unlock()
		return w.changed
	}
	return next, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.viewers--; w.viewers == 0 {
			w.cancel()
			delete(c.watches, id)
		}
	}
}

// poll follows the history, and that of the runs that continue it.
func (c *Client) poll(ctx context.Context, id string, w *watch) {
	change := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(w.changed)
		w.changed = make(chan struct{})
	}
	for ctx.Err() == nil {
		it := c.temporal.GetWorkflowHistory(ctx, id, "", true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for it.HasNext() {
			e, err := it.Next()
			if err != nil {
				break
			}
			switch e.EventType {
			case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
				enums.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
				enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
				change()
			}
		}
		// The run is over, or the engine away for a moment.
		select {
		case <-time.After(200 * time.Millisecond):
			change()
		case <-ctx.Done():
		}
	}
}
