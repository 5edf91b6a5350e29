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
	// Base is the number of the first event that is kept here.
	Base   int      `json:"base"`
	Events []stored `json:"events"`
	// Pages are the numbers of the first events of the pages in the store.
	Pages   []int    `json:"pages,omitempty"`
	Counter int      `json:"counter"`
	Queue   []queued `json:"queue,omitempty"`
	// Keys are the last idempotency keys, with the command that each made.
	Keys []keyed `json:"keys,omitempty"`
	// Unsaved is how many commands were started since the files were saved.
	Unsaved int `json:"unsaved,omitempty"`
	// Holds keep the machine, and Lent says that there were some since the session
	// itself has last looked at it.
	Holds []hold `json:"holds,omitempty"`
	Lent  bool   `json:"lent,omitempty"`
	// Interrupts are those of commands in the queue.
	Interrupts []interrupt `json:"interrupts,omitempty"`
}

// stored is an event as the workflow keeps it, with the handle that its stream
// does not show.
type stored struct {
	Event  Event  `json:"event"`
	Handle []byte `json:"handle,omitempty"`
	// Text is the command's text in the store, if that is not in the event.
	Text string `json:"text,omitempty"`
	// Decision is the number of the event of Temporal's history with which the
	// decision began that made the event; 0 if it is of a run before.
	Decision int `json:"decision,omitempty"`
}

// queued is a command that waits for its turn, or a hold: of one with that ID, for
// that time.
type queued struct {
	ID, Command string
	Hold        time.Duration `json:",omitempty"`
	Text        string        `json:",omitempty"` // in the store, instead of Command
}

type keyed struct{ Key, ID string }

// keepKeys is how many idempotency keys are remembered.
const keepKeys = 1000

func (s *run) emit(ctx workflow.Context, e Event) { s.keep(ctx, stored{Event: e}) }

func (s *run) keep(ctx workflow.Context, e stored) {
	e.Event.Seq, e.Event.At = s.Base+len(s.Events), millis(workflow.Now(ctx))
	e.Decision = workflow.GetInfo(ctx).GetCurrentHistoryLength()
	s.Events = append(s.Events, e)
	countEvent(ctx, e.Event)
}

// eventsCounter counts the events of the sessions of a worker, for the
// MetricsHandler of its client.
const eventsCounter = "sandbox_session_events"

// countEvent counts an event that happens. One that is replayed counts no second
// time.
func countEvent(ctx workflow.Context, e Event) {
	outcome := e.State + e.Status + string(e.Outcome) // each type has one of them
	if e.Outcome == durable.Exited && e.ExitCode != nil {
		outcome = "ok"
		if *e.ExitCode != 0 {
			outcome = "failed"
		}
	}
	workflow.GetMetricsHandler(ctx).WithTags(map[string]string{"type": e.Type, "outcome": outcome}).Counter(eventsCounter).Inc(1)
}

// noteDecisions notes what each decision makes of the session. A worker that replays
// the history for a query goes on with what has happened since the last decision, as
// if it were another one: that is a guess, since the next decision may be a different
// one, because of the updates that come with it.
func (s *run) noteDecisions(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	_ = workflow.Await(ctx, func() bool { // looks at the end of each decision, too
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
		s.decided.State, s.decided.Full = s.describe(), s.noRoom(commandUpdate{})
		return false
	})
}

// status emits the state that the sandbox is in.
func (s *run) status(ctx workflow.Context, state string) {
	e := Event{Type: TypeStatus, State: state}
	if state == StateActive {
		e.SandboxID, e.SessionID, e.SandboxExpiresAt = s.Sandbox.Options.Name, s.Sandbox.VM, millis(s.Sandbox.ExpiresAt)
	}
	s.emit(ctx, e)
}

// page is the response to the query for events: those from a number on.
type page struct {
	Events []stored `json:"events"`
	// Base is the first event that the workflow has. Those before it are in the
	// store: Stored is where the page with the event that was asked for begins, or -1.
	Base   int `json:"base"`
	Stored int `json:"stored"`
	// Next is the number that the next event will have; 0 says nothing.
	Next   int  `json:"next,omitempty"`
	Closed bool `json:"closed,omitempty"` // and there will be no more
	// Before is the event before the first of those that were asked for, with its number,
	// time and decision alone, if the workflow has it.
	Before []stored `json:"before,omitempty"`
	// Run is the run of the workflow that answers, and Dir where its pages are stored.
	Run string `json:"run"`
	Dir string `json:"dir"`
	// Replayed is the last decision that the worker has replayed for what it has in
	// memory, 0 if it has made all of them.
	Replayed int `json:"replayed,omitempty"`
	// asked is how far its viewers had followed the history when they asked.
	asked place
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
	n := pageOf(events)
	p.Events, p.Closed = events[:n], s.closed && !s.guesses && n == len(events)
	return p
}

// State is what a session is at the moment.
type State struct {
	// State is that of the last status event, and Error its error, or that of what is
	// tried again at the moment.
	State            string `json:"state"`
	Error            string `json:"error,omitempty"`
	SandboxID        string `json:"sandboxId,omitempty"`
	SessionID        string `json:"sessionId,omitempty"`
	StartedAt        Millis `json:"startedAt"`
	LastUse          Millis `json:"lastUse"`
	SandboxExpiresAt Millis `json:"sandboxExpiresAt,omitempty"`
	// HibernatesAt is when it hibernates unless it is used; 0 while it does not
	// run, while a command does, or somebody holds it.
	HibernatesAt Millis `json:"hibernatesAt,omitempty"`
	// Running is the command that runs, Queued how many wait.
	Running string `json:"running,omitempty"`
	Queued  int    `json:"queued"`
	// Held is how many hold the machine: see [Client.Hold].
	Held   int `json:"held,omitempty"`
	Events int `json:"events"`
}

// decided is the response to the query for the state: that of the decision which began
// with an event of Temporal's history, and the one before. Viewers take the latter
// while the former is not committed.
type decided struct {
	State
	Decision int    `json:"decision,omitempty"`
	Before   *State `json:"before,omitempty"`
	// Full says that there is no room for a command whose text is stored.
	Full bool `json:"full,omitempty"`
}

// when is what was decided when the history had so many events. A decision that is
// over has one behind the event with which it began.
func (d decided) when(length int64) decided {
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
	switch { // what said so is in the store
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
