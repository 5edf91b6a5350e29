package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

type interrupt struct {
	ID     string
	Signal int
}

// commandUpdate is a command. If Text is set, it names the command's text in the store, and
// Command is empty.
type commandUpdate struct {
	Key, Command string
	Text         string `json:",omitempty"`
}

// setHandlers installs the handlers of messages.
func (s *run) setHandlers(ctx workflow.Context) error {
	set := func(name string, handler, validator any) error {
		return workflow.SetUpdateHandlerWithOptions(ctx, name, handler, workflow.UpdateHandlerOptions{Validator: validator})
	}
	return errors.Join(
		workflow.SetQueryHandler(ctx, queryEvents, func(from int) (page, error) { return s.page(from), nil }),
		workflow.SetQueryHandler(ctx, queryState, func() (decided, error) { return s.decided, nil }),
		set(updateCommand, s.enqueue, s.acceptCommand),
		set(updateInterrupt, s.interrupt, s.acceptInterrupt),
		set(updateDestroy, func(_ workflow.Context, o DestroyOptions) error { s.destroy = &o; return nil },
			func(workflow.Context, DestroyOptions) error { return s.checkOpen() }),
		set(updateHold, s.hold, s.acceptHold),
		set(updateRelease, s.release, s.acceptRelease),
	)
}

// checkOpen refuses messages that come too late for the session, or for this run of it.
func (s *run) checkOpen() error {
	switch {
	case s.destroy != nil || s.closed:
		return temporal.NewApplicationError("the session is destroyed", errDestroyedType)
	case s.rolling:
		return temporal.NewApplicationError("the session is continuing as new", errRollingType)
	}
	return nil
}

// acceptInterrupt is the validator of an interrupt.
func (s *run) acceptInterrupt(_ workflow.Context, i interrupt) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscanf(i.ID, "cmd-%d", &n); i.ID != "" && (err != nil || n < 1 || n > s.Counter) {
		return temporal.NewApplicationError("the session has no such command", errNoCommandType)
	}
	if s.interruptTarget(i.ID) == "" {
		return temporal.NewApplicationError("there is nothing to interrupt", errNothingType)
	}
	if len(s.interrupts) >= maxInterrupts || s.calls >= maxInterruptCalls {
		return temporal.NewApplicationError("too many interrupts wait", errQueueFullType)
	}
	return nil
}

// interrupt accepts an interrupt for a command, or for the running one if it names none. It
// reports whether there was one. An interrupt never reaches the next command.
func (s *run) interrupt(_ workflow.Context, i interrupt) (taken bool, err error) {
	s.calls++
	if i.ID = s.interruptTarget(i.ID); i.ID == "" {
		return false, nil
	}
	s.interrupts = append(s.interrupts, i)
	return true, nil
}

// interruptTarget returns the command of an interrupt, or the running one if id is empty.
// It returns "" if the command has ended.
func (s *run) interruptTarget(id string) string {
	if id == "" || id == s.begun || slices.ContainsFunc(s.Queue, func(q queued) bool { return q.ID == id }) {
		return cmp.Or(id, s.begun)
	}
	return ""
}

// acceptCommand is the validator of a command. The history does not contain refused
// commands.
func (s *run) acceptCommand(_ workflow.Context, c commandUpdate) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	switch {
	case s.checkCalls() != nil:
		return s.checkCalls()
	case s.commandOfKey(c.Key) != "":
	case s.queueIsFull(c):
		return temporal.NewApplicationError("the session's queue is full", errQueueFullType)
	}
	return nil
}

// queueIsFull reports whether the queue has no room for a command.
func (s *run) queueIsFull(c commandUpdate) bool {
	return len(s.Queue) >= s.in.Policy.QueueLimit || len(s.Queue) > 0 && s.queueSize()+queued{Command: c.Command, Text: c.Text}.size() > queueBytes
}

func (s *run) commandOfKey(key string) string {
	short := shortenKey(key)
	if i := slices.IndexFunc(s.Keys, func(k keyed) bool { return k.Key == short }); key != "" && i >= 0 {
		return s.Keys[i].ID
	}
	return ""
}

// enqueue puts a command into the queue, once for each key.
func (s *run) enqueue(ctx workflow.Context, c commandUpdate) (string, error) {
	s.calls++
	if id := s.commandOfKey(c.Key); id != "" {
		return id, nil
	}
	s.Counter++
	id := fmt.Sprintf("cmd-%d", s.Counter)
	if c.Key != "" {
		s.Keys = append(s.Keys[max(len(s.Keys)+1-keepKeys, 0):], keyed{shortenKey(c.Key), id})
	}
	s.Queue = append(s.Queue, queued{ID: id, Command: c.Command, Text: c.Text})
	s.refused.hurry = true
	s.appendEvent(ctx, stored{Event: Event{Type: TypeCommandQueued, ID: id, Command: c.Command}, Text: c.Text})
	return id, nil
}
