// Package observe is where the client tells an observer what it does. It has the
// form that events have inside of the module: the root package documents the
// public one, which has the same fields.
package observe

import (
	"context"
	"errors"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
)

// The kinds of events.
const (
	Request        = "request"
	Operation      = "operation"
	Command        = "command"
	Wait           = "wait"
	Repair         = "repair"
	Resume         = "resume"
	Hook           = "hook"
	Stop           = "stop"
	Upload         = "upload"
	Download       = "download"
	Progress       = "progress"
	Pace           = "pace"
	Extension      = "extension"
	CommandIDs     = "command ids"
	EmptyFork      = "empty fork"
	ReplacedOutput = "replaced output"
	Pool           = "pool"
)

// Outcomes that are not failures of the API.
const (
	OK       = "ok"
	Canceled = "canceled"
	Deadline = "deadline_exceeded"
	Failed   = "failed"
	Exit     = "exit"
	Found    = "found"
	Started  = "started"
)

// Ended returns the outcome of what ended because ctx has.
func Ended(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Deadline
	}
	return Canceled
}

// Event is what an observer receives. The root package has a type with the same
// fields, to which this one is converted.
type Event struct {
	Kind      string
	Operation string

	Sandbox, Session, Command, Drive, Snapshot string
	Program                                    string
	Args                                       []string

	Attempt  int
	Cause    string
	CauseErr error

	Method, Path, Host string

	Start    time.Time
	Duration time.Duration
	Latency  time.Duration
	Extended time.Duration
	Lived    time.Duration
	CPU      time.Duration

	Outcome                  string
	Err                      error
	Status                   int
	RequestID                string
	RateLimit, RateRemaining int
	Sent, Received           int64
	ExitCode                 int
}

// Observer learns what happens; see the Observer of the root package.
type Observer interface {
	Begin(ctx context.Context, e Event) context.Context
	End(ctx context.Context, e Event)
}

// Seam passes events on to an observer. A nil Seam passes on nothing, and costs
// nothing. It is safe for concurrent use.
type Seam struct {
	observer Observer
	host     string
	secrets  *redact.Known
	owner    func(session string) string
}

// New returns a Seam for the API of a host, nil for a nil observer. No event has
// any of the secrets.
func New(o Observer, host string, secrets *redact.Known) *Seam {
	if o == nil {
		return nil
	}
	return &Seam{observer: o, host: host, secrets: secrets, owner: func(string) string { return "" }}
}

// Owners sets what finds the sandbox of a session, since most requests have only
// the session. It is called before the Seam is used.
func (s *Seam) Owners(find func(session string) string) {
	if s != nil {
		s.owner = find
	}
}

// Begin tells that something begins. It returns the context of all that is part
// of it, and the event to be completed and passed to End with that context.
func (s *Seam) Begin(ctx context.Context, e Event) (context.Context, Event) {
	if s == nil {
		return ctx, e
	}
	if e.Start.IsZero() {
		e.Start = time.Now()
	}
	s.complete(&e)
	if next := s.observer.Begin(ctx, e); next != nil {
		ctx = next
	}
	return ctx, e
}

// End reports that what Begin reported is over. The observer is called after the
// context has ended, too.
func (s *Seam) End(ctx context.Context, e Event) {
	if s == nil {
		return
	}
	e.Duration = time.Since(e.Start)
	s.complete(&e)
	s.observer.End(ctx, e)
}

// complete is the only place that events leave: what others have written is
// redacted here.
func (s *Seam) complete(e *Event) {
	if e.Err != nil {
		e.Err = s.secrets.Error(e.Err)
	}
	if e.CauseErr != nil {
		e.CauseErr = s.secrets.Error(e.CauseErr)
	}
	e.RequestID = redact.Printable(s.secrets.Text(e.RequestID))
	e.Host = s.host
	if e.Sandbox == "" && e.Session != "" {
		e.Sandbox = s.owner(e.Session)
	}
}
