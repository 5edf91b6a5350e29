package session

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// refused is the state of a session while the platform refuses its requests.
type refused struct {
	reason string // type of the last refusal; empty while there is none
	before string // the session's state before the refusals
	hurry  bool   // the session was used: retry at once
	// until is when an ended session gives up its attempts to stop the machine.
	until time.Time
}

// deleteWithin is how long an ended session tries to delete its sandbox.
const deleteWithin = 24 * time.Hour

// errGivenUp means that the session was destroyed while the platform refused its requests.
var errGivenUp = errors.New("the session was destroyed while the platform refused its requests")

// onRefused waits for pause, or until the session is used or destroyed. It emits each
// reason of the refusals once.
func (s *run) onRefused(ctx workflow.Context, err error, pause time.Duration) error {
	ending := !s.refused.until.IsZero()
	if err == nil {
		s.refused.reason = ""
		if !ending {
			s.status(ctx, s.refused.before)
		}
		return nil
	}
	if ending && workflow.Now(ctx).After(s.refused.until) {
		return err
	}
	reason := "other"
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		reason = app.Type() // the text differs each time, by the request's ID
	}
	if reason != s.refused.reason {
		if s.refused.reason == "" {
			s.refused.before = s.describe().State
		}
		s.refused.reason = reason
		s.emit(ctx, Event{Type: TypeStatus, State: StateBlocked, Error: durable.Message(err)})
	}
	givenUp := func() bool { return s.destroy != nil && !ending }
	s.refused.hurry = false
	_, err = workflow.AwaitWithTimeout(ctx, pause, func() bool { return s.refused.hurry || givenUp() })
	if err == nil && givenUp() {
		return errGivenUp
	}
	return err
}
