package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// Register registers the session's workflow and activities, and those of w. A
// worker that has w's plugin has the latter already: give it [RegisterOnly].
func Register(r durable.Registry, w *durable.Worker) {
	w.Register(r)
	RegisterOnly(r, w)
}

// RegisterOnly registers the session's workflow and its own activities.
func RegisterOnly(r durable.Registry, w *durable.Worker) {
	r.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{Name: workflowName})
	a := archive{w.Output}
	r.RegisterActivityWithOptions(a.put, activity.RegisterOptions{Name: activityArchive})
	r.RegisterActivityWithOptions(a.clear, activity.RegisterOptions{Name: activityClear})
}

// archive keeps the events that a workflow no longer does.
type archive struct{ store durable.OutputStore }

func eventsKey(id string, base int) string { return fmt.Sprintf("%s/events/%09d.ndjson", id, base) }

// put writes a page of events, whose first has the number base, and reports
// whether it is kept: without a store it is not, and viewers get a truncated
// event.
func (a archive) put(ctx context.Context, id string, base int, events []stored) (kept bool, err error) {
	if a.store == nil {
		return false, nil
	}
	w, err := a.store.Create(ctx, eventsKey(id, base))
	if err != nil {
		return false, err
	}
	defer w.Close()
	enc := json.NewEncoder(w)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return false, err
		}
	}
	return true, w.Commit()
}

// get reads the page that begins at base, from the event with the number seq on.
// It is empty when it is not there.
func (a archive) get(ctx context.Context, id string, base, seq int) ([]stored, error) {
	if a.store == nil || base < 0 {
		return nil, nil
	}
	r, err := a.store.Open(ctx, eventsKey(id, base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var events []stored
	for dec := json.NewDecoder(r); ; {
		var e stored
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		if e.Event.Seq >= seq {
			events = append(events, e)
		}
	}
}

func (a archive) clear(ctx context.Context, id string) error {
	if a.store == nil {
		return nil
	}
	return a.store.Remove(ctx, id+"/")
}
