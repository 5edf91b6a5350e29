package session

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

type state struct {
	Sandbox   *durable.Sandbox `json:"sandbox,omitempty"`
	StartedAt time.Time        `json:"startedAt"`
	LastUse   time.Time        `json:"lastUse"`
	// Base is the number of the first event in Events.
	Base   int      `json:"base"`
	Events []stored `json:"events"`
	// Pages are the numbers of the first events of the pages in the store.
	Pages   []int    `json:"pages,omitempty"`
	Counter int      `json:"counter"`
	Queue   []queued `json:"queue,omitempty"`
	// Keys are the last idempotency keys with their commands.
	Keys []keyed `json:"keys,omitempty"`
	// Unsaved counts the commands since the files were saved.
	Unsaved int `json:"unsaved,omitempty"`
	// Holds reserve the machine. Lent says that there was a hold since the session last
	// looked at the machine.
	Holds []hold `json:"holds,omitempty"`
	Lent  bool   `json:"lent,omitempty"`
	// Interrupts are for commands in the queue.
	Interrupts []interrupt `json:"interrupts,omitempty"`
}

// stored is an event as the workflow keeps it. Viewers do not see Handle and Text.
type stored struct {
	Event  Event  `json:"event"`
	Handle []byte `json:"handle,omitempty"`
	// Text names the command's text in the store, if the event lacks the text.
	Text string `json:"text,omitempty"`
	// Decision is the number of the history event that started the decision which made this
	// event. It is 0 for an event of an earlier run.
	Decision int `json:"decision,omitempty"`
}

// queued is a command that waits for its turn, or a hold with its ID and duration.
type queued struct {
	ID, Command string
	Hold        time.Duration `json:",omitempty"`
	Text        string        `json:",omitempty"` // the name of the text in the store, instead of Command
}

type keyed struct{ Key, ID string }

// keepKeys is how many idempotency keys are remembered.
const keepKeys = 1000

func (s *run) emit(ctx workflow.Context, e Event) { s.appendEvent(ctx, stored{Event: e}) }

func (s *run) appendEvent(ctx workflow.Context, e stored) {
	e.Event.Seq, e.Event.At = s.Base+len(s.Events), millis(workflow.Now(ctx))
	e.Decision = workflow.GetInfo(ctx).GetCurrentHistoryLength()
	s.Events = append(s.Events, e)
	countEvent(ctx, e.Event)
}

// eventsCounter counts the events of the sessions of a worker, for the
// MetricsHandler of its client.
const eventsCounter = "sandbox_session_events"

// countEvent counts an event. A replayed event does not count again.
func countEvent(ctx workflow.Context, e Event) {
	outcome := e.State + e.Status + string(e.Outcome) // an event has at most one of them
	if e.Outcome == durable.Exited && e.ExitCode != nil {
		outcome = "ok"
		if *e.ExitCode != 0 {
			outcome = "failed"
		}
	}
	workflow.GetMetricsHandler(ctx).WithTags(map[string]string{"type": e.Type, "outcome": outcome}).Counter(eventsCounter).Inc(1)
}

// noteDecisions records the state after each decision. When a worker replays the history for a
// query, it also processes the events after the last decision. The result is a guess: the
// next decision may differ, because updates come with it.
func (s *run) noteDecisions(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	_ = workflow.Await(ctx, func() bool { // the condition is evaluated after each decision
		decision, replays := workflow.GetInfo(ctx).GetCurrentHistoryLength(), workflow.IsReplaying(ctx)
		if s.guesses = !replays && decision > 0 && decision <= s.replayed; s.guesses {
			return false
		}
		if replays {
			s.replayed = decision
		}
		if decision != s.decided.Decision {
			before := s.decided.State
			s.decided.Decision, s.decided.Before = decision, &before
		}
		s.decided.State = s.describe()
		return false
	})
}

// status emits a status event.
func (s *run) status(ctx workflow.Context, state string) {
	e := Event{Type: TypeStatus, State: state}
	if state == StateActive {
		e.SandboxID, e.SessionID, e.SandboxExpiresAt = s.Sandbox.Options.Name, s.Sandbox.VM, millis(s.Sandbox.ExpiresAt)
	}
	s.emit(ctx, e)
}

// page is the response to the query for events from a number on.
type page struct {
	Events []stored `json:"events"`
	// Base is the number of the first event that the workflow keeps. Earlier events are in
	// the store. Stored is where the stored page with the requested event begins, or -1.
	Base   int `json:"base"`
	Stored int `json:"stored"`
	// Next is the number of the next event. 0 means unknown.
	Next   int  `json:"next,omitempty"`
	Closed bool `json:"closed,omitempty"` // these are the last events
	// Before is the event before the first requested one, if the workflow has it, with only
	// its number, time and decision.
	Before []stored `json:"before,omitempty"`
	// Run is the workflow's run, and Dir the folder of its pages in the store.
	Run string `json:"run"`
	Dir string `json:"dir"`
	// Replayed is the last decision that the worker has replayed. It is 0 if the worker made
	// all decisions itself.
	Replayed int `json:"replayed,omitempty"`
	// askedAt is how far the watch had followed the history at the query.
	askedAt position
}

func (s *run) page(from int) page {
	p := page{Base: s.Base, Stored: -1, Run: s.run, Dir: s.dir, Replayed: s.replayed}
	for _, base := range s.Pages {
		if base <= from && from < s.Base {
			p.Stored = base
		}
	}
	events := s.Events
	if s.guesses {
		events = events[:max(s.decided.Events-s.Base, 0)]
	}
	p.Next = s.Base + len(events)
	if i := from - 1 - s.Base; i >= 0 && i < len(events) {
		p.Before = []stored{{Event: Event{Seq: from - 1, At: events[i].Event.At}, Decision: events[i].Decision}}
	}
	events = events[min(max(from-s.Base, 0), len(events)):]
	n := pageLength(events)
	p.Events, p.Closed = events[:n], s.closed && !s.guesses && n == len(events)
	return p
}

// State is the current state of a session.
type State struct {
	// State is the state of the last status event. Error is its error, or the error of a
	// request that is being retried.
	State            string `json:"state"`
	Error            string `json:"error,omitempty"`
	SandboxID        string `json:"sandboxId,omitempty"`
	SessionID        string `json:"sessionId,omitempty"`
	StartedAt        Millis `json:"startedAt"`
	LastUse          Millis `json:"lastUse"`
	SandboxExpiresAt Millis `json:"sandboxExpiresAt,omitempty"`
	// HibernatesAt is when the machine hibernates unless it is used. It is 0 while the
	// machine does not run, while a command runs, or while somebody holds the machine.
	HibernatesAt Millis `json:"hibernatesAt,omitempty"`
	// Running is the running command. Queued counts those that wait.
	Running string `json:"running,omitempty"`
	Queued  int    `json:"queued"`
	// Held counts the holds of the machine; see [Client.Hold].
	Held   int `json:"held,omitempty"`
	Events int `json:"events"`
}

// decided is the response to the query for the state. It has the state after the last
// decision and the state before. Viewers use the latter until the decision is committed.
type decided struct {
	State
	Decision int    `json:"decision,omitempty"`
	Before   *State `json:"before,omitempty"`
}

// committed returns the state that a history of this length has committed. A committed
// decision is not the last event.
func (d decided) committed(length int64) decided {
	if d.Before != nil && length > 0 && int64(d.Decision) >= length {
		d.State = *d.Before
	}
	return d
}

func (s *run) describe() State {
	d := State{StartedAt: millis(s.StartedAt), LastUse: millis(s.LastUse), Running: s.current, Queued: len(s.Queue), Held: len(s.Holds), Events: s.Base + len(s.Events)}
	for _, e := range slices.Backward(s.Events) {
		if e.Event.Type == TypeStatus {
			d.State, d.Error = e.Event.State, e.Event.Error
			break
		}
	}
	switch { // the last status event may be in the store
	case d.State != "" || s.Sandbox == nil:
	case s.Sandbox.VM == "":
		d.State = StateHibernated
	default:
		d.State = StateActive
	}
	if s.Sandbox != nil {
		d.SandboxID, d.SessionID = s.Sandbox.Options.Name, s.Sandbox.VM
		if s.Sandbox.VM != "" {
			d.SandboxExpiresAt = millis(s.Sandbox.ExpiresAt)
			if s.current == "" && len(s.Holds) == 0 {
				d.HibernatesAt = millis(s.LastUse.Add(s.in.Policy.IdleAfter))
			}
		}
	}
	return d
}
