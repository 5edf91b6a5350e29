// Package observe defines the events that a client reports: HTTP requests and longer
// operations.
package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Observer receives the events of a client of package sandbox and of its handles. Its
// methods are called by the goroutines that do the work, possibly at the same time, and
// must not block. If an Observer uses a handle of the same client, that is observed as
// well.
//
// Without an Observer a client does no work for events.
type Observer interface {
	// Begin is called when an event begins. The context that it returns is used for the
	// HTTP requests of the event and for events that are part of it, such as the requests
	// of a command. It must be ctx or derived from it; nil means ctx.
	Begin(ctx context.Context, e Event) context.Context
	// End is called once for each Begin, with the context that Begin has returned and the
	// complete event. The context may have ended.
	End(ctx context.Context, e Event)
}

// Kind is a kind of event. Later versions may have others.
type Kind string

// The kinds of events.
const (
	// Request is one HTTP request. The request of a stream ends with the stream.
	Request Kind = "request"
	// Operation is an operation of the API with all of its requests. Attempt is the number
	// of requests. If there were several, Cause is that of the last one.
	Operation Kind = "operation"
	// Command is a command, from its start until its output has been delivered. Without
	// writers it ends once the command has started.
	Command Kind = "command"
	// Wait is a Command.Wait for a command that was started without
	// writers.
	Wait Kind = "wait"
	// Repair is the repair of an output stream that broke. It begins when the
	// connection is cut and ends when the rest of the output begins. Attempt counts
	// the cuts of the stream, and Received the bytes that were delivered before.
	Repair Kind = "repair"
	// Resume is the start of a session for a stopped sandbox, before OnResume. Cause is
	// the reason why the service refused a call, or "asked" for Sandbox.Resume, "get" for
	// a call that looked the sandbox up, and "hook" after OnResume has failed.
	Resume Kind = "resume"
	// Hook is a run of OnCreate or OnResume, which Operation names.
	Hook Kind = "hook"
	// Stop is a stop of a session, until the files are saved if the caller waits for that.
	Stop Kind = "stop"
	// Upload is an upload of files, until the last byte. Sent counts the compressed bytes.
	Upload Kind = "upload"
	// Download is a download of files, until the last byte. Received counts their bytes.
	Download Kind = "download"
	// Tool is a call of a tool of package agent, which Operation names.
	Tool Kind = "tool"
	// Take is a Take of package pool. Cause is "ready", or "made" if a sandbox was created
	// for it.
	Take Kind = "take"
	// Terminal is a terminal, from its opening to its end.
	Terminal Kind = "terminal"
	// Visit is a request to the server of a sandbox by package preview, until the
	// header of the response. Cause is why it waited: "stopped" or "not listening".
	Visit Kind = "visit"
	// Pool is an action of a pool of package pool on a sandbox. Operation is a word such
	// as "taken".
	Pool Kind = "pool"
)

// The outcomes that are not failures of the API.
const (
	OK       = "ok"
	Exit     = "exit"              // a command whose exit code is not zero
	Started  = "started"           // a command that is not waited for
	Found    = "found"             // a resume where another client was faster
	Canceled = "canceled"          // the context was canceled
	Deadline = "deadline_exceeded" // the context has ended by its deadline
	Failed   = "failed"            // something else than the API has failed, such as a writer
)

// Event is what an [Observer] receives. It contains no secrets, except those in Args,
// which are not printed or logged. Fields without a meaning for the kind of event, or
// without a known value yet, are zero. An event that begins in the context of another
// event is part of it: a request of an operation, an operation of a command, and so on.
type Event struct {
	// Kind is the kind of the event, such as [Request].
	Kind Kind
	// Operation is the operation in words, such as "run command". There are few different
	// ones.
	Operation string

	// The object of the event: the name of a sandbox or drive, and IDs.
	Sandbox, Session, Command, Drive, Snapshot string
	// Program is the name of a command's program, and Args are its arguments.
	Program string
	Args    []string

	// Attempt counts from one.
	Attempt int
	// Cause is the reason for the event, from a small set of words. For a request it is the
	// outcome of the previous attempt. CauseErr is the error that Cause classifies, if any.
	Cause    string
	CauseErr error

	// Method and Path describe an HTTP request. Path is a template, such as
	// "/v2/sandboxes/{sandbox}". Host is the host of the API.
	Method, Path, Host string

	// Start is when the event began. The fields from Duration on are set at its end.
	Start    time.Time
	Duration time.Duration
	// Latency is how long the header of the response took.
	Latency time.Duration
	// Lived is how long a stopped session has run, and CPU the CPU time that it used. They
	// are zero if the service has not reported them.
	Lived, CPU time.Duration

	// Outcome is one of the constants above, or another word from a small set that says how
	// the event failed. Err is the error, if any.
	Outcome string
	Err     error
	// Status and RequestID are those of the last response.
	Status    int
	RequestID string
	// RateLimit is the number of requests per period that the response's rate limit
	// allows, and RateRemaining the number left; zero if not reported.
	RateLimit, RateRemaining int
	// Sent and Received count the bytes of the bodies of requests and responses, and of
	// the delivered output of a command.
	Sent, Received int64
	// ExitCode is the exit code of a command that has ended.
	ExitCode int
}

// attrs returns the fields that are set, without Args, in the order in which they are
// shown.
func (e *Event) attrs() []slog.Attr {
	var list []slog.Attr
	text := func(key, value string) {
		if value != "" {
			list = append(list, slog.String(key, redact.Printable(value)))
		}
	}
	number := func(key string, value int64) {
		if value != 0 {
			list = append(list, slog.Int64(key, value))
		}
	}
	length := func(key string, d time.Duration) {
		if d != 0 {
			list = append(list, slog.Duration(key, d))
		}
	}
	failure := func(key string, err error) {
		if err != nil {
			list = append(list, slog.String(key, redact.Printable(err.Error())))
		}
	}
	text("operation", e.Operation)
	text("sandbox", e.Sandbox)
	text("session", e.Session)
	text("command", e.Command)
	text("drive", e.Drive)
	text("snapshot", e.Snapshot)
	text("program", e.Program)
	text("method", e.Method)
	text("path", e.Path)
	number("attempt", int64(e.Attempt))
	text("cause", e.Cause)
	failure("causeError", e.CauseErr)
	text("outcome", e.Outcome)
	number("status", int64(e.Status))
	number("exitCode", int64(e.ExitCode))
	number("sent", e.Sent)
	number("received", e.Received)
	length("duration", e.Duration)
	length("lived", e.Lived)
	length("cpu", e.CPU)
	if e.RateLimit != 0 || e.RateRemaining != 0 {
		list = append(list, slog.Int("rateRemaining", e.RateRemaining), slog.Int("rateLimit", e.RateLimit))
	}
	text("requestID", e.RequestID)
	failure("error", e.Err)
	return list
}

// text describes the event in one line of printable text, without the arguments
// of a command.
func (e Event) text() string {
	var b strings.Builder
	b.WriteString(string(e.Kind))
	for _, a := range e.attrs() {
		value := a.Value.String()
		if a.Value.Kind() == slog.KindDuration {
			value = a.Value.Duration().Round(10 * time.Microsecond).String()
		}
		if strings.ContainsAny(value, " \"=") {
			value = strconv.Quote(value)
		}
		b.WriteString(" " + a.Key + "=" + value)
	}
	return b.String()
}

// Format prints the event in one line of printable text, without the arguments of
// a command, for every verb.
func (e Event) Format(f fmt.State, verb rune) { redact.String(f, verb, e.text()) }

// LogValue implements [slog.LogValuer], without the arguments of a command.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("kind", string(e.Kind))}, e.attrs()...)...)
}

// Start reports to o, which may be nil, that an event begins. The caller calls end when the
// event ends, with its error. The function known, if not nil, sets the fields
// that are available only at the end.
func Start(ctx context.Context, o Observer, e Event) (_ context.Context, end func(err error, known func(e *Event))) {
	if o == nil {
		return ctx, func(error, func(*Event)) {}
	}
	e.Start = time.Now()
	if inner := o.Begin(ctx, e); inner != nil {
		ctx = inner
	}
	return ctx, func(err error, known func(*Event)) {
		e.Duration, e.Outcome, e.Err = time.Since(e.Start), OK, err
		switch {
		case err == nil:
		case ctx.Err() == nil:
			e.Outcome = Failed
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			e.Outcome = Deadline
		default:
			e.Outcome = Canceled
		}
		if known != nil {
			known(&e)
		}
		o.End(ctx, e)
	}
}

// Multi returns an Observer that passes events to all of the given ones. It calls Begin in
// their order and End in the reverse order. It ignores nil Observers, and returns nil if
// there are no others.
func Multi(observers ...Observer) Observer {
	var all multiObserver
	for _, o := range observers {
		if o != nil {
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type multiObserver []Observer

func (m multiObserver) Begin(ctx context.Context, e Event) context.Context {
	for _, o := range m {
		if next := o.Begin(ctx, e); next != nil {
			ctx = next
		}
	}
	return ctx
}

func (m multiObserver) End(ctx context.Context, e Event) {
	for _, o := range slices.Backward(m) {
		o.End(ctx, e)
	}
}
