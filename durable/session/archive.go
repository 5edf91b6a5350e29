package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// Register registers the session's workflow and activities, and those of w.
func Register(r durable.Registry, w *durable.Worker) {
	w.Register(r)
	RegisterOnly(r, w)
}

// RegisterOnly is like [Register], but does not register the activities of w, because r
// already has them.
func RegisterOnly(r durable.Registry, w *durable.Worker) {
	r.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{Name: workflowName})
	a := archive{w.Output}
	r.RegisterActivityWithOptions(a.put, activity.RegisterOptions{Name: activityArchive})
	r.RegisterActivityWithOptions(a.clear, activity.RegisterOptions{Name: activityClear})
}

// archive stores the events that a workflow no longer keeps.
type archive struct{ store durable.OutputStore }

func eventsKey(dir string, base int) string {
	return fmt.Sprintf("%s%s/events/%09d.ndjson", durable.NeededPrefix, dir, base)
}

// put stores a page of events; base is the number of the first one. It returns false if
// there is no store. Viewers then get a truncated event.
func (a archive) put(ctx context.Context, dir string, base int, events []stored) (kept bool, err error) {
	if a.store == nil {
		return false, nil
	}
	w, err := a.store.Create(ctx, eventsKey(dir, base))
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

// get reads the page that begins at base, from the event with the number seq on. The
// result is empty if the store does not have that event.
func (a archive) get(ctx context.Context, dir string, base, seq int) (events []stored, err error) {
	if a.store == nil || base < 0 {
		return nil, nil
	}
	r, err := a.store.Open(ctx, eventsKey(dir, base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for dec := json.NewDecoder(r); ; {
		var e stored
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return events[min(seq-base, len(events)):], nil
		case err != nil:
			return nil, err
		}
		events = append(events, e)
	}
}

func textKey(id, text string) string { return durable.NeededPrefix + id + "/commands/" + text }

// textName returns the name of a command's text in the store. A command that is sent twice
// is stored once.
func textName(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

func (a archive) putText(ctx context.Context, id, text, command string) error {
	w, err := a.store.Create(ctx, textKey(id, text))
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := io.WriteString(w, command); err != nil {
		return err
	}
	return w.Commit()
}

// event returns an event as viewers see it, with the command's text if the store has it.
func (a archive) event(ctx context.Context, id string, e stored) (Event, error) {
	if e.Text == "" {
		return e.Event, nil
	}
	err := fs.ErrNotExist
	var r io.ReadCloser
	if a.store != nil {
		r, err = a.store.Open(ctx, textKey(id, e.Text))
	}
	if errors.Is(err, fs.ErrNotExist) {
		e.Event.Truncated = true
		return e.Event, nil
	}
	if err != nil {
		return Event{}, err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	e.Event.Command = string(text)
	return e.Event, err
}

func (a archive) clear(ctx context.Context, id string) error {
	if a.store == nil {
		return nil
	}
	return errors.Join(a.store.Remove(ctx, id+"/"), a.store.Remove(ctx, durable.NeededPrefix+id+"/"))
}
