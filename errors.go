package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Errors that calls match with [errors.Is].
var (
	// ErrNotFound matches an [APIError] with status 404: the sandbox, session,
	// snapshot or command does not exist. Missing files are reported
	// as a [*fs.PathError] that wraps [fs.ErrNotExist] instead.
	ErrNotFound = errors.New("not found")
	// ErrStopped matches an [APIError] that says that the session is stopped or
	// on its way there. Methods of [Sandbox] resume the sandbox instead of
	// returning it; those of [Session] return it.
	ErrStopped = errors.New("session is stopped")
	// ErrSnapshotNotFound matches an [APIError] that says that a sandbox can't
	// be resumed because the snapshot that holds its files is gone: it expired
	// or was deleted, or the sandbox is not persistent. [GetOrCreate] makes it
	// anew.
	ErrSnapshotNotFound = errors.New("snapshot not found")
	// ErrRateLimited matches an [APIError] with status 429. Its RetryAfter and
	// RateLimit say how long to wait.
	ErrRateLimited = errors.New("rate limited")
	// ErrQuotaExceeded matches an [APIError] with status 402: what the plan
	// includes is used up, and the team is paused until it begins anew or is
	// paid for.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrImageNotReady matches an [APIError] that says that an image was pushed
	// but is still being prepared; see [CreateOptions.WaitForImage].
	ErrImageNotReady = errors.New("image is not ready")
	// ErrUnauthorized matches an [APIError] with status 401 or 403.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrOutcomeUnknown matches the error of an operation that must not be done
	// twice, when the request may have reached the API but its answer did not
	// come back. Nobody can know then whether a command runs or a snapshot is
	// made; the SDK does not retry it, and the caller decides.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrDeleted is returned by a [Sandbox] after its Delete method succeeded.
	ErrDeleted = errors.New("sandbox is deleted")
	// ErrUserExists matches the error of [Sandbox.CreateUser] for a name that is
	// taken.
	ErrUserExists = errors.New("user already exists")
	// ErrInvalid matches the error of an argument that no server could accept.
	// It is returned before any request is made, and names the argument and
	// what is allowed.
	ErrInvalid = errors.New("invalid argument")
	// ErrNoCredentials matches the error of every call when no credentials are
	// found. It is [auth.ErrNoCredentials].
	ErrNoCredentials = auth.ErrNoCredentials
)

// Codes of [APIError] that programs may want to tell apart and that no Err value
// stands for, or not alone. The API has others too.
const (
	CodeConflict            = "conflict"                    // a drive exists with other properties, or the name of a fork is taken
	CodeDriveNotInitialized = "drive_not_initialized"       // the drive was never written to
	CodeSnapshotNotFound    = "snapshot_not_found"          // see ErrSnapshotNotFound
	CodeRegionMismatch      = "snapshot_region_mismatch"    // the snapshot is not in the sandbox's region
	CodeImageNotReady       = "image_not_ready"             // see ErrImageNotReady
	CodeSandboxStopped      = "sandbox_stopped"             // see ErrStopped, as the next two
	CodeSandboxStopping     = "sandbox_stopping"            // the session is on its way out
	CodeSandboxSnapshotting = "sandbox_snapshotting"        // so it is, and its files are being saved
	CodeCommandEnded        = "command_not_found_or_exited" // there is no such command any more
	CodeExecutableNotFound  = "executable_not_found"        // the sandbox has no such program
	CodeFileError           = "file_error"                  // the message says what is wrong with the file
	CodeStdinUnavailable    = "command_stdin_unavailable"   // the command reads no standard input
	CodeStreamClosed        = "sandbox_stream_closed"       // of a StreamError: the session ended, or its stream broke
	CodeRateLimited         = "rate_limited"                // see ErrRateLimited
	CodeForbidden           = "forbidden"                   // see ErrUnauthorized
	CodeBadRequest          = "bad_request"                 // the message says what is wrong with the request
)

// RateLimit is what an answer said of the budget that its request was counted
// against. Creating, deleting and everything else have budgets of their own.
type RateLimit struct {
	// Limit is how many requests a period has, 0 when not told, and Remaining
	// how many of them are left.
	Limit, Remaining int
	// Reset is when the next period begins; zero when not told.
	Reset time.Time
}

// APIError is an answer of the API that is not a success, or one that can't be
// used. Use [errors.As] to get at it and [errors.Is] with the package's Err
// values to tell the common ones apart.
type APIError struct {
	// Operation is what was asked, in words: "create sandbox".
	Operation string
	// Status is the HTTP status of the answer. It is 2xx when the operation
	// succeeded but its answer can't be used; Err then says why.
	Status int
	// Code and Message are the server's own words, which Error quotes where they
	// are not printable. They are empty when the answer had none.
	Code, Message string
	// RequestID identifies the request to Vercel's support, when the answer
	// carried such an ID.
	RequestID string
	// RetryAfter is how long the server asks to wait; 0 when it did not say.
	RetryAfter time.Duration
	// RateLimit is the budget that the request was counted against; nil when the
	// answer did not tell.
	RateLimit *RateLimit
	// SandboxName and SessionID are what the request was about; either may be
	// empty.
	SandboxName, SessionID string
	// ContentType is the media type of the answer.
	ContentType string
	// Body is the answer's body, of which at most 64 KiB are kept.
	Body []byte
	// Err is the cause when the answer broke off or could not be decoded.
	Err error

	unknown bool
	// refused: the request was refused before it acted, since the session is not
	// one that runs. Only those set it who have the answer to that very request.
	refused bool
	// hint tells what the server's words leave out.
	hint string
}

// Error describes the failure in one line of printable text.
func (e *APIError) Error() string {
	var b strings.Builder
	b.WriteString("sandbox: ")
	b.WriteString(e.Operation)
	if e.SandboxName != "" {
		fmt.Fprintf(&b, " %q", e.SandboxName)
	}
	b.WriteString(": ")
	switch {
	case e.Err != nil && e.Status >= 300 && !json.Valid(e.Body):
		// A gateway's page, as a rule: its status says more than its first byte.
		b.WriteString(strings.ToLower(http.StatusText(e.Status)))
		if e.ContentType != "" {
			b.WriteString(", answered as " + e.ContentType)
		}
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

const unknownNote = "whether it took place is unknown, so it was not retried"

// Unwrap returns Err.
func (e *APIError) Unwrap() error { return e.Err }

// Is reports whether target is the Err value of this package that describes e,
// [os.ErrProcessDone] for a command that had ended before it was signalled,
// [exec.ErrNotFound] for one whose program the sandbox does not have, or
// [fs.ErrNotExist] for one whose directory it does not have.
func (e *APIError) Is(target error) bool {
	switch target {
	case ErrNotFound:
		// A sandbox whose files are gone is there.
		return e.Status == http.StatusNotFound && !e.processDone() && !(e.failure().SnapshotGone() && e.SandboxName != "")
	case os.ErrProcessDone:
		return e.processDone()
	case ErrStopped:
		return e.failure().Refused()
	case ErrSnapshotNotFound:
		return e.failure().SnapshotGone()
	case ErrImageNotReady:
		return e.client() && e.Code == CodeImageNotReady
	case ErrRateLimited:
		return e.Status == http.StatusTooManyRequests || e.client() && e.Code == CodeRateLimited
	case ErrQuotaExceeded:
		return e.Status == http.StatusPaymentRequired
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrOutcomeUnknown:
		return e.unknown
	case exec.ErrNotFound:
		return e.noProgram()
	case fs.ErrNotExist:
		return e.noDirectory()
	}
	return false
}

// client reports whether the server refused the request and did nothing.
func (e *APIError) client() bool { return e.Status >= 400 && e.Status < 500 }

// processDone reports whether a command had ended before a signal or its input
// could reach it.
func (e *APIError) processDone() bool {
	return e.Status == http.StatusNotFound && e.Code == CodeCommandEnded ||
		e.Status == http.StatusBadRequest && e.Code == "command_finished"
}

// failure is the answer as package api knows it.
func (e *APIError) failure() *api.Failure {
	return &api.Failure{Op: api.GetSession, Status: e.Status, Code: e.Code, Message: e.Message}
}

// refusal gives the answer by which the API refused a call on this session
// before it acted. It has to be the error of the call's own request: not one
// that some other error wraps, as that of a hook, or of a stream that broke
// after the call had acted.
func refusal(session *Session, err error) (*APIError, bool) {
	e, ok := err.(*APIError)
	return e, ok && e.refused && e.SessionID == session.ID()
}

// noProgram reports whether a command was refused because the sandbox does not
// have its program.
func (e *APIError) noProgram() bool {
	return e.Status == http.StatusBadRequest && e.startsCommand() &&
		(e.Code == "executable_not_found" || strings.Contains(e.Message, exec.ErrNotFound.Error()))
}

// noDirectory reports whether a command was refused because there is no
// directory to start it in. The code that goes with that is not known.
func (e *APIError) noDirectory() bool {
	message := strings.ToLower(e.Message)
	return e.Status == http.StatusBadRequest && e.startsCommand() &&
		(strings.Contains(message, "no such directory") || strings.Contains(message, "no such file or directory"))
}

func (e *APIError) startsCommand() bool {
	return e.Operation == api.RunCommand.Name || e.Operation == api.StartCommand.Name
}

// RequestError reports an operation that got no answer: the connection could
// not be made or broke, or the context ended. It unwraps to the cause, so that
// [errors.Is] with [context.Canceled] and [context.DeadlineExceeded] works.
type RequestError struct {
	// Operation is what was asked, in words.
	Operation string
	// SandboxName and SessionID are what the request was about; either may be
	// empty.
	SandboxName, SessionID string
	// Err is the cause.
	Err error

	unknown bool
}

// Error describes the failure in one line.
func (e *RequestError) Error() string {
	s := "sandbox: " + e.Operation
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.unknown {
		s += "; " + unknownNote
	}
	return redact.Printable(s)
}

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrOutcomeUnknown] and e has that outcome.
func (e *RequestError) Is(target error) bool { return target == ErrOutcomeUnknown && e.unknown }

// StreamError reports a command's output stream that failed and could not be
// repaired. CommandID, when the command had started, lets any process pick it
// up again with [Sandbox.GetCommand].
type StreamError struct {
	// Code is the server's code, or "stream_ended_early" when the stream ended
	// before the command was known to have started.
	Code string
	// Message is the server's message, or describes what happened.
	Message string
	// SessionID and CommandID say which command it was; CommandID is empty when
	// the stream ended before it was known.
	SessionID, CommandID string
	// Err is the cause of a broken stream; nil when the server reported it.
	Err error
}

// Error describes the failure in one line.
func (e *StreamError) Error() string {
	s := "sandbox: command output"
	if e.CommandID != "" {
		s += " of " + e.CommandID
	}
	s += ": " + e.Message
	if e.Code != "" {
		s += " (" + e.Code + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return redact.Printable(s)
}

// Unwrap returns Err.
func (e *StreamError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrOutcomeUnknown] and the stream ended before
// the command was known.
func (e *StreamError) Is(target error) bool {
	return target == ErrOutcomeUnknown && e.CommandID == ""
}

// isUnknown reports whether nobody can know if the operation took place.
func isUnknown(err error) bool { return errors.Is(err, ErrOutcomeUnknown) }

// publicError turns a failure of the transport into the error that users see.
func publicError(err error) error {
	f, ok := err.(*api.Failure)
	if !ok {
		return err
	}
	if f.Status == 0 {
		return &RequestError{
			Operation: f.Op.Name, SandboxName: f.Sandbox, SessionID: f.Session,
			Err: f.Err, unknown: f.OutcomeUnknown(),
		}
	}
	e := &APIError{
		Operation: f.Op.Name, Status: f.Status, Code: f.Code, Message: f.Message,
		RequestID: f.Header.Get("X-Vercel-Id"), RetryAfter: f.RetryAfter,
		SandboxName: f.Sandbox, SessionID: f.Session, ContentType: f.Header.Get("Content-Type"),
		Body: f.Body, Err: f.Err, unknown: f.OutcomeUnknown(), refused: f.Refused(),
	}
	if r, ok := api.ReadRateLimit(f.Header); ok {
		e.RateLimit = new(RateLimit(r))
	}
	if f.Status == http.StatusForbidden && (f.Op.Drive || strings.Contains(f.Message, "Drives are")) {
		e.hint = "drives have to be enabled for the project, which its team's plan or a beta may not be"
	}
	return e
}

// invalid makes the error of an argument that is refused before any request.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("sandbox: %w: %s: %s", ErrInvalid, field, fmt.Sprintf(format, args...))
}

// NoRouteError reports a port that the sandbox does not expose. Ports are
// exposed by [CreateOptions] and [UpdateOptions].
type NoRouteError struct{ Port int }

// Error names the port.
func (e *NoRouteError) Error() string { return "sandbox: no route for port " + strconv.Itoa(e.Port) }
