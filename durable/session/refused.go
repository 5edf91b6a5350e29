package session

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// refused is what a session knows of the platform's refusals.
type refused struct {
	reason string // the last one's kind; empty while nothing is refused
	before string // the state in which it began
	hurry  bool   // the session was used, which tries again at once
	// until is how long a session that is over waits for its machine's end.
	until time.Time
}

// deleteWithin is how long a session that is over tries to delete its sandbox.
const deleteWithin = 24 * time.Hour

// errGivenUp says that the session was destroyed while the platform refused what
// it was about to do.
var errGivenUp = errors.New("the session was destroyed meanwhile")

// onRefused waits while the platform refuses what the session needs: for pause, or
// until the session is used or destroyed. The events tell why, once for each
// reason.
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
