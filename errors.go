package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Errors to be matched with [errors.Is].
var (
	// ErrNotFound matches an [APIError] that reports that the sandbox, session, command,
	// snapshot or drive does not exist. Like all of these errors it matches only
	// responses of the API itself, which have a code, and never a gateway's page. Missing
	// files are reported as an [*fs.PathError] that wraps [fs.ErrNotExist] instead.
	ErrNotFound = errors.New("not found")
	// ErrStopped matches the error of a call if its session is stopped or stopping, or
	// ends during the call. Most methods of [Sandbox] resume the sandbox instead. They
	// return ErrStopped only if the session ends during a call that can't be repeated.
	ErrStopped = errors.New("session is stopped")
	// ErrSnapshotNotFound matches an [APIError] that reports that a sandbox
	// can't be resumed because the snapshot with its files is gone: it expired
	// or was deleted, or the sandbox is not persistent. [GetOrCreate] creates
	// such a sandbox again.
	ErrSnapshotNotFound = errors.New("snapshot not found")
	// ErrNotSaved matches the error of [Client.Fork] if the source was never saved,
	// unless [ForkOptions].AllowEmpty is set.
	ErrNotSaved = errors.New("the source of the fork is not saved")
	// ErrRateLimited matches an [APIError] with status 429, whose RetryAfter says
	// how long to wait, and a [RequestError] of a request that was not sent because
	// of a limit; see [ClientOptions.MaxRateLimitWait].
	ErrRateLimited = errors.New("rate limited")
	// ErrQuotaExceeded matches an [APIError] with status 402: the plan's usage
	// is exhausted, and the team is paused until the next period or until it
	// pays.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrUnavailable matches an [APIError] that says that the API can't do this now, or
	// that came from a gateway instead of the API, and a [RequestError] of a failed
	// connection. Neither the caller nor the plan is the cause, and the same call may
	// succeed later. Calls that are safe to retry have been retried. ErrUnavailable does
	// not match after the context has ended, and does not say whether the operation took
	// place; see [ErrOutcomeUnknown].
	ErrUnavailable = errors.New("unavailable")
	// ErrImageNotReady matches an [APIError] that reports that an image was
	// pushed but is still being prepared; see [CreateOptions.WaitForImage].
	ErrImageNotReady = errors.New("image is not ready")
	// ErrUnauthorized matches an [APIError] with status 401 or 403.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrOutcomeUnknown matches the error of an operation that is not safe to
	// retry, if the request may have reached the API but its response was lost.
	// Whether a command runs or a snapshot was taken is then unknown; the
	// caller decides what to do.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrConflict matches an [APIError] that reports a conflict with something that
	// exists: a sandbox, drive or command of that name or ID. It also matches the error of
	// [Sandbox.CreateUser] if the name is taken, and of [Sandbox.EnsureCommand] if another
	// program has the ID.
	ErrConflict = errors.New("conflict")
	// ErrCommandIDs matches an [APIError] that reports that the service does not let clients
	// choose the IDs of commands; see [CommandOptions.ID]. The command was not started.
	ErrCommandIDs = errors.New("IDs of commands are not supported")
	// ErrNoRoute matches the error of [Sandbox.URL] and others if the sandbox does
	// not expose the port. Ports are exposed by [CreateOptions] and
	// [UpdateOptions].
	ErrNoRoute = errors.New("no route")
	// ErrReplaced matches the error of [Sandbox.Delete] if it has deleted another sandbox
	// of that name, which another client had just created. [Client.GetOrCreate] returns
	// it too, since it deletes a sandbox whose files are gone.
	ErrReplaced = errors.New("another sandbox of that name was deleted")
	// ErrRefused matches an [APIError] that says that the API refuses the request and
	// would refuse it again. The request had no effect. A refusal that has an error value
	// of its own does not match ErrRefused, except for ErrCommandIDs and for a missing
	// program, directory or file.
	ErrRefused = errors.New("refused")
	// ErrDeleted matches the error of a method of a [Sandbox] after its Delete method
	// succeeded, or if another sandbox has the name now.
	ErrDeleted = errors.New("sandbox is deleted")
	// ErrInvalid matches the error of an argument that no server could accept, and of a
	// nil handle or context. It is returned before any request. Its text names the
	// argument and the allowed values.
	ErrInvalid = errors.New("invalid argument")
)

// APIError is an unsuccessful response of the API, or one that can't be used.
// Use [errors.As] to access it, and [errors.Is] with this package's Err values
// to recognize common ones.
type APIError struct {
	// Operation is the operation in words, such as "create sandbox".
	Operation string
	// Status is the HTTP status of the response. It is 2xx if the operation
	// succeeded but its response can't be used; Err then says why.
	Status int
	// Code and Message are the server's, or empty. Error quotes them where they
	// are not printable.
	Code, Message string
	// RequestID identifies the request to Vercel's support; empty if not
	// reported.
	RequestID string
	// RetryAfter is how long the server asks to wait; zero if not reported.
	RetryAfter time.Duration
	// SandboxName and SessionID identify the object of the request. Either may be empty.
	SandboxName, SessionID string
	// ContentType is the media type of the response.
	ContentType string
	// Body is the response body, truncated to 64 KiB.
	Body []byte
	// Err is the cause if the response broke off or could not be decoded.
	Err error

	command string // what the request was about
	object  string // a snapshot or a drive
	kind    api.Kind
	unknown bool
	limited bool // the response reports a rate limit
	// refused is set if the request was refused before it had any effect,
	// because the session does not run. It is set only where the response to
	// that very request is known.
	refused bool
	// hint adds information that the server's message lacks.
	hint string
}

// Error returns a description in one line of printable text.
func (e *APIError) Error() string {
	var b strings.Builder
	b.WriteString("sandbox: ")
	b.WriteString(e.Operation)
	if about := cmp.Or(e.SandboxName, e.object); about != "" {
		fmt.Fprintf(&b, " %q", about)
	}
	b.WriteString(": ")
	switch {
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	case e.Message != "":
		b.WriteString(e.Message)
	default:
		b.WriteString(strings.ToLower(http.StatusText(e.Status)))
	}
	b.WriteString(" (status " + strconv.Itoa(e.Status))
	if e.Code != "" {
		b.WriteString(", code " + e.Code)
	}
	writeObject(&b, e.SessionID, e.command)
	if e.RequestID != "" {
		b.WriteString(", request " + e.RequestID)
	}
	if e.RetryAfter > 0 {
		b.WriteString(", retry after " + e.RetryAfter.String())
	}
	b.WriteByte(')')
	if e.hint != "" {
		b.WriteString("; " + e.hint)
	}
	if e.unknown {
		b.WriteString("; " + unknownNote)
	}
	return redact.Printable(b.String())
}

// writeObject adds the session and the command to an error.
func writeObject(b *strings.Builder, session, command string) {
	for _, part := range [][2]string{{"session", session}, {"command", command}} {
		if part[1] != "" {
			b.WriteString(", " + part[0] + " " + part[1])
		}
	}
}

const unknownNote = "whether it took place is unknown, so it was not retried"

// Unwrap returns Err.
func (e *APIError) Unwrap() error { return e.Err }

// Is reports whether target is the Err value of this package that describes e. It also
// matches
//
//   - [os.ErrProcessDone] if a command had already ended when it was signaled;
//   - [errors.ErrUnsupported] if running commands get no standard input;
//   - [exec.ErrNotFound] if the sandbox does not have the program;
//   - [fs.ErrNotExist] if the sandbox does not have the working directory;
//   - the cause of a failed file operation, such as [fs.ErrNotExist], [fs.ErrExist] or
//     [fs.ErrPermission], if the message names it.
func (e *APIError) Is(target error) bool {
	switch target {
	case ErrOutcomeUnknown:
		return e.unknown
	case ErrRefused:
		return e.errorKind().Final()
	case ErrUnavailable:
		return e.errorKind().Passing() && e.errorKind() != api.RateLimited
	}
	switch e.errorKind() {
	case api.NotFound:
		return target == ErrNotFound
	case api.SnapshotGone:
		return target == ErrSnapshotNotFound || target == ErrNotFound
	case api.FilesGone:
		return target == ErrSnapshotNotFound // the sandbox still exists
	case api.CommandEnded:
		return target == os.ErrProcessDone
	case api.Stopped, api.Stopping:
		return target == ErrStopped && !e.unknown
	case api.ImageNotReady:
		return target == ErrImageNotReady
	case api.RateLimited:
		return target == ErrRateLimited
	case api.QuotaExceeded:
		return target == ErrQuotaExceeded
	case api.Unauthorized, api.NoDrives:
		return target == ErrUnauthorized
	case api.NameTaken, api.Conflict:
		return target == ErrConflict
	case api.IDsRefused:
		return target == ErrCommandIDs
	case api.InputRefused:
		return target == errors.ErrUnsupported
	case api.NoProgram:
		return target == exec.ErrNotFound
	case api.NoDirectory:
		return target == fs.ErrNotExist
	case api.FileError:
		return errors.Is(coreutils.Errno(e.Message), target)
	}
	return false
}

// errorKind returns the kind of the error. It determines the kind if the error does not
// have one.
func (e *APIError) errorKind() api.Kind {
	if e.kind == api.Unjudged { // made outside of this package, for example by a test
		return api.KindOf(e.Operation, e.Status, cmp.Or(e.Code, "unknown"), e.Message)
	}
	return e.kind
}

// RequestError reports an operation that received no response: the connection
// could not be made or broke, or the context ended. It unwraps to the cause, so
// that [errors.Is] works with [context.Canceled] and
// [context.DeadlineExceeded].
type RequestError struct {
	// Err is the cause.
	Err error

	operation                         string
	sandbox, session, command, object string // what the request was about
	unknown                           bool
}

// Error returns a description in one line.
func (e *RequestError) Error() string {
	s := "sandbox: " + e.operation
	if about := cmp.Or(e.sandbox, e.object); about != "" {
		s += fmt.Sprintf(" %q", about)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	var about strings.Builder
	if writeObject(&about, e.session, e.command); about.Len() > 0 {
		s += " (" + about.String()[2:] + ")"
	}
	if refusedLocally(e.Err) {
		s += "; is the emulator running?"
	}
	if e.unknown {
		s += "; " + unknownNote
	}
	return redact.Printable(s)
}

// refusedLocally reports whether a port of this machine refused the connection.
func refusedLocally(err error) bool {
	sent, ok := errors.AsType[*url.Error](err)
	if !ok || !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	u, err := url.Parse(sent.URL)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.Unmap().IsLoopback() || u.Hostname() == "localhost"
}

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// Is reports whether target describes e: [ErrOutcomeUnknown] if the outcome of the
// operation is unknown, [ErrRateLimited] if a rate limit kept the request from being sent,
// or [ErrUnavailable] if the connection failed.
func (e *RequestError) Is(target error) bool {
	switch target {
	case ErrOutcomeUnknown:
		return e.unknown
	case ErrRateLimited:
		_, ok := errors.AsType[*api.LimitError](e.Err)
		return ok
	case ErrUnavailable:
		// Once the context has ended, the cause is the context's.
		_, network := errors.AsType[*url.Error](e.Err)
		return network
	}
	return false
}

// StreamError reports that a command's output stream failed and could not be
// resumed. If the command had started, any process can find it with
// [Sandbox.GetCommand] and CommandID.
type StreamError struct {
	// Code is the server's code, or "stream_ended_early" if the stream ended
	// before the command was known to have started.
	Code string
	// Message is the server's message, or describes what happened.
	Message string
	// SessionID and CommandID identify the command; CommandID is empty if the
	// stream ended before it was known.
	SessionID, CommandID string
	// Err is the cause of a broken stream; nil if the server reported the
	// error.
	Err error

	sandbox string // its name, if known
}

// Error returns a description in one line.
func (e *StreamError) Error() string {
	s := "sandbox: command output"
	if e.CommandID != "" {
		s += " of " + e.CommandID
	}
	if e.sandbox != "" {
		s += fmt.Sprintf(" in %q", e.sandbox)
	}
	s += ": "
	if errors.Is(e.Err, ErrStopped) {
		s += "its session is stopped or stopping, and the command ends with it: "
	}
	s += e.Message
	if e.Code != "" {
		s += " (" + e.Code + ")"
	}
	if e.Err != nil {
		s += ": " + strings.TrimPrefix(e.Err.Error(), "sandbox: ")
	}
	return redact.Printable(s)
}

// Unwrap returns Err.
func (e *StreamError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrOutcomeUnknown] and the stream ended before the command
// was known. It also matches [ErrStopped] if the server closed the stream because the
// session is ending.
func (e *StreamError) Is(target error) bool {
	return target == ErrOutcomeUnknown && e.CommandID == "" || target == ErrStopped && api.StreamClosed(e.Code) && e.CommandID != ""
}

// isUnknown reports whether the operation may or may not have taken place.
func isUnknown(err error) bool { return errors.Is(err, ErrOutcomeUnknown) }

// publicError converts an error of package api to the one that users see.
func publicError(err error) error {
	f, ok := err.(*api.Failure)
	if !ok {
		return err
	}
	if f.Status == 0 {
		return &RequestError{
			operation: f.Op.Name, sandbox: f.Sandbox, session: f.Session, command: f.Command, object: f.Object,
			Err: f.Err, unknown: f.OutcomeUnknown(),
		}
	}
	e := &APIError{
		Operation: f.Op.Name, Status: f.Status, Code: f.Code, Message: f.Message,
		RequestID: f.Header.Get("X-Vercel-Id"), RetryAfter: f.RetryAfter,
		SandboxName: f.Sandbox, SessionID: f.Session, ContentType: f.Header.Get("Content-Type"),
		command: f.Command, object: f.Object, Body: f.Body, Err: f.Err, kind: f.Kind, unknown: f.OutcomeUnknown(),
		// A refusal to return a log says nothing about the start of its command.
		refused: f.Refused() && f.Op != api.CommandLogs,
	}
	_, e.limited = api.ReadRateLimit(f.Header)
	// For a policy with a mistake in one of its rules, the service was seen to report
	// that allow is not accepted at all, which is wrong.
	if f.Status == http.StatusBadRequest && strings.Contains(f.Message, "additional property `allow`") {
		e.hint = "the service may say so of a network policy in which it does not accept a rule: look at the rules of its hosts"
	}
	if strings.Contains(f.Message, "Invalid CIDR") {
		e.hint = "NetworkPolicy.AllowSubnets and DenySubnets need a mask, as in 10.0.0.1/32 for one address"
	}
	switch f.Kind {
	case api.InputRefused:
		e.hint = "commands get no input here while they run: a Cmd may have one of known length, such as a bytes.Reader or a file"
	case api.NoDrives:
		e.hint = "drives are not enabled for this project; they may need another plan or access to a beta"
	case api.QuotaExceeded:
		e.hint = "the plan's usage is exhausted: the team is paused until the next period, or until it pays for more"
	case api.NameTaken:
		e.hint = "GetOrCreate takes the sandbox that has the name"
		if f.Op == api.ForkSandbox {
			e.hint = "the fork needs another ForkOptions.Name"
		}
	case api.Unauthorized:
		if f.As != "" {
			e.hint = "the request used " + f.As
		}
	case api.FilesGone:
		if f.Op == api.CreateSandbox {
			break // the snapshot of the source is gone
		}
		e.hint = "its files were never saved, as by an ephemeral sandbox or a session that failed before a stop, or their snapshot is gone"
		if f.Op != api.ForkSandbox {
			e.hint += ": GetOrCreate makes it anew, Delete removes it"
		}
	}
	return e
}

// noRoute returns the error of a port that is not exposed.
func noRoute(port int, exposed ...int) error {
	if port < wire.MinPort || port > wire.MaxPort {
		return fmt.Errorf("sandbox: %w for port %d; only ports from %d to %d can be exposed", ErrNoRoute, port, wire.MinPort, wire.MaxPort)
	}
	others := "none"
	if len(exposed) > 0 {
		others = strings.Trim(strings.ReplaceAll(fmt.Sprint(exposed), " ", ", "), "[]")
	}
	return fmt.Errorf("sandbox: %w for port %d; exposed: %s (CreateOptions.Ports or Update expose others)", ErrNoRoute, port, others)
}

// invalidError is an argument that is refused before any request.
type invalidError struct{ field, message string }

func (e *invalidError) Error() string {
	return fmt.Sprintf("sandbox: %v: %s: %s", ErrInvalid, e.field, e.message)
}

func (e *invalidError) Unwrap() error { return ErrInvalid }

func invalid(field, format string, args ...any) error {
	return &invalidError{field, fmt.Sprintf(format, args...)}
}

// excerpt returns the beginning of a text, to be appended to an error.
func excerpt(text []byte) string {
	s := strings.ToValidUTF8(strings.Join(strings.Fields(string(text)), " "), "")
	if s == "" {
		return ""
	}
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return ": " + redact.Printable(s)
}
