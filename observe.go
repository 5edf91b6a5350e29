package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// Observer returns an observer that forwards events to the client's Observer and Logger.
// Packages with events of their own, such as package pool, use it. It is nil if the client
// has neither.
func (c *Client) Observer() observe.Observer {
	if c == nil || !c.api.Observed() {
		return nil
	}
	return c.api.Observer()
}

// Observer returns the observer of the sandbox's client; see [Client.Observer].
func (s *Sandbox) Observer() observe.Observer {
	if c, err := s.client(); err == nil {
		return c.Observer()
	}
	return nil
}

// named is a sandbox or an object that belongs to one.
type named interface {
	// names returns its names for observers; either may be empty.
	names() (sandbox, session string)
}

// beginEvent reports the start of an operation on a sandbox; see [api.Client.Begin].
func (c *Client) beginEvent(ctx context.Context, on named, e observe.Event) (context.Context, api.Span) {
	if c.api.Observed() {
		e.Sandbox, e.Session = on.names()
	}
	return c.api.Begin(ctx, e)
}

// endEvent sets the event's outcome and reports its end.
func endEvent(e *api.Span, err error) {
	switch {
	case !e.Observed():
	case err != nil:
		e.Outcome = outcome(e.Context, err)
	case e.ExitCode != 0:
		e.Outcome = observe.Exit
	}
	e.End(err)
}

// outcome returns the outcome that events report for an error of this package.
func outcome(ctx context.Context, err error) string {
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.errorKind().String()
	}
	if _, ok := errors.AsType[*api.AuthError](err); ok {
		return api.NoCredentials
	}
	if ctx.Err() != nil {
		return api.Ended(ctx)
	}
	if _, ok := errors.AsType[*RequestError](err); ok {
		return api.Broken.String()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return api.NotFound.String()
	}
	return observe.Failed
}

// eventLog writes the records of [ClientOptions].Logger: one for each event that
// has ended, except those that the records of their operations cover.
type eventLog struct{ log *slog.Logger }

// Begin writes nothing.
func (l eventLog) Begin(ctx context.Context, _ observe.Event) context.Context { return ctx }

// End writes the record of the event, if it has one.
func (l eventLog) End(ctx context.Context, e observe.Event) {
	message, level := record(&e)
	if message != "" && l.log.Enabled(ctx, level) {
		l.log.LogAttrs(ctx, level, message, attrs(e)...)
	}
}

// attrs returns the attributes of the event without its kind, which the message names.
func attrs(e observe.Event) []slog.Attr { return e.LogValue().Group()[1:] }

// records are the messages of log records and their levels, by what an operator has to
// do. Debug: nothing, because all is well or the caller handles the response. Info:
// nothing now, but it costs or changes something that nobody has requested. Warning: look
// for the cause if there are many; the problem was repaired or may be retried. Error:
// act, because it does not repair itself. A request has no record: its operation's record
// contains everything about it.
var records = map[observe.Kind]struct {
	message string
	success slog.Level
	failure slog.Level // unless the API's response is the failure
}{
	observe.Operation: {"sandbox request", slog.LevelDebug, slog.LevelWarn},
	observe.Command:   {"sandbox command", slog.LevelDebug, slog.LevelError},
	observe.Wait:      {"sandbox command wait", slog.LevelDebug, slog.LevelError},
	observe.Repair:    {"sandbox output repair", slog.LevelWarn, slog.LevelError},
	observe.Resume:    {"sandbox resume", slog.LevelInfo, slog.LevelError},
	observe.Hook:      {"sandbox hook", slog.LevelInfo, slog.LevelError},
	observe.Stop:      {"sandbox stop", slog.LevelDebug, slog.LevelError},
	observe.Upload:    {"sandbox upload", slog.LevelDebug, slog.LevelWarn},
	observe.Download:  {"sandbox download", slog.LevelDebug, slog.LevelWarn},
	observe.Tool:      {"sandbox tool", slog.LevelDebug, slog.LevelWarn},
	observe.Take:      {"sandbox taken from a pool", slog.LevelDebug, slog.LevelWarn},
	observe.Terminal:  {"sandbox terminal", slog.LevelDebug, slog.LevelWarn},
	observe.Visit:     {"sandbox visit", slog.LevelDebug, slog.LevelWarn},
	observe.Pool:      {"sandbox pool", slog.LevelDebug, slog.LevelWarn},
}

// record returns the message and the level of an event's record; no message
// means none.
func record(e *observe.Event) (message string, level slog.Level) {
	r, recorded := records[e.Kind]
	if !recorded {
		return "", 0
	}
	switch e.Outcome {
	case observe.OK, observe.Exit, observe.Found, observe.Started:
		level = r.success
		if e.Kind == observe.Operation && e.Attempt > 1 {
			level = slog.LevelWarn
		}
		return r.message, level
	case observe.Canceled:
		level = slog.LevelDebug
	case api.Broken.String():
		if level = slog.LevelWarn; e.Status != 0 {
			// The stream broke after the response had started. Its repair or download is
			// logged separately.
			level = slog.LevelDebug
		}
	case observe.Failed:
		level = r.failure
	case api.Unauthorized.String(), api.NoCredentials, api.QuotaExceeded.String(), api.NoDrives.String():
		level = slog.LevelError
	case observe.Deadline, api.Foreign.String(), api.Busy.String(), api.TimedOut.String(), api.RateLimited.String():
		level = slog.LevelWarn
	default: // a response that the caller handles
		level = slog.LevelDebug
	}
	return r.message + ": " + strings.ReplaceAll(e.Outcome, "_", " "), level
}

// observers combines the observer and the logger of the options. It returns nil if
// neither is set.
func observers(o *ClientOptions) observe.Observer {
	if o.Logger == nil {
		return o.Observer
	}
	return observe.Multi(o.Observer, eventLog{o.Logger})
}
