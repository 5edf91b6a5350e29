package screen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/terminal"
)

// Hinted is an error with advice for the user.
type Hinted struct {
	error
	hint string
}

func (e *Hinted) Unwrap() error { return e.error }

// WithHint adds a hint to an error. The hint says what to do.
func WithHint(err error, format string, args ...any) error {
	return &Hinted{err, fmt.Sprintf(format, args...)}
}

// During adds the name of the operation to an error, because the API's messages don't
// contain it.
func During(err error, what string) error { return &duringError{err, what} }

type duringError struct {
	error
	what string
}

func (e *duringError) Error() string { return e.what + ": " + e.error.Error() }
func (e *duringError) Unwrap() error { return e.error }

// failure is an error as the program prints it.
type failure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Status    int    `json:"status,omitempty"`
	RequestID string `json:"requestId,omitempty"`
	Hint      string `json:"hint,omitempty"`

	Exit int `json:"-"`
	body []byte
}

// fieldOptions maps the SDK's fields to the options that set them.
var fieldOptions = map[string]string{
	"Ports": "publish-port", "Env": "env", "Tags": "tag",
	"Region": "region", "FailoverRegions": "failover-regions", "NetworkID": "network-id", "Mounts": "mount", "Credentials": "credentials", "NetworkPolicy": "network-policy",
	"Image": "image", "Runtime": "runtime", "Architecture": "architecture", "MaxSizeBytes": "max-size", "Source.URL": "git", "Limit": "limit", "Exclude": "exclude",
}

// tooShort matches a duration that was probably meant as seconds.
var tooShort = regexp.MustCompile(`\b(\d+)ms is outside`)

// withOptionNames replaces the names of the SDK's fields by those of options.
func withOptionNames(message string) string {
	field, rest, ok := strings.Cut(message, ": ")
	switch option := fieldOptions[field]; {
	case ok && option != "":
		return "--" + option + ": " + strings.ReplaceAll(rest, "Forever", "none")
	case strings.HasPrefix(field, "NetworkPolicy."):
		return rest
	case field == "args":
		return "an argument of the command " + rest
	}
	return message
}

// copyDetails copies the details of an API error.
func (f *failure) copyDetails(api *sandbox.APIError) {
	f.Status, f.RequestID, f.body = api.Status, api.RequestID, api.Body
	f.Code, f.Message = cmp.Or(api.Code, f.Code), cmp.Or(api.Message, f.Message)
}

// Explain returns what to print about an error, and the exit code.
func (s *Screen) Explain(err error) failure {
	f := failure{Code: "failure", Message: err.Error(), Exit: ExitFailure}
	var api *sandbox.APIError
	if errors.As(err, &api) {
		f.copyDetails(api)
		if d, ok := errors.AsType[*duringError](err); ok && api.Message != "" {
			f.Message = d.what + ": " + api.Message
		}
		s.explainAPI(&f, api)
	}
	f.explain(err, api)
	if found := tooShort.FindStringSubmatch(f.Message); found != nil && f.Exit == ExitUsage {
		f.Hint = "a number without a unit is milliseconds; did you mean " + found[1] + "s?"
	}
	if f.Exit == ExitTerminal && len(s.Names) == 1 {
		f.Hint += "; " + Try("connect %s", s.Names[0]) + " opens a new terminal"
	}
	if f.Code == "interrupted" && s.Signal() != 0 {
		f.Exit = 128 + int(s.Signal())
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		f.Exit = exit.Code
	}
	if code := exitCodes[f.Exit]; f.Code == "failure" && code != "" {
		f.Code = code
	}
	if advice, ok := errors.AsType[*Hinted](err); ok {
		f.Hint = advice.hint
	}
	f.Message, f.Hint = s.Filled(strings.TrimPrefix(f.Message, "sandbox: ")), s.Filled(f.Hint)
	return f
}

// explain sets code, exit code and hint by the kind of the error. api is nil unless the
// error comes from the API.
func (f *failure) explain(err error, api *sandbox.APIError) {
	var usage *line.UsageError
	var missing *exec.Error
	var shell *terminal.ShellError
	var stream *sandbox.StreamError
	var refused *oidc.OAuthError
	var changed *sandbox.ChangedError
	switch {
	case errors.As(err, &usage):
		f.Code, f.Exit, f.Hint = "usage", ExitUsage, usage.Hint
	case errors.Is(err, sandbox.ErrInvalid):
		f.Code, f.Exit = "usage", ExitUsage
		if _, said, ok := strings.Cut(f.Message, sandbox.ErrInvalid.Error()+": "); ok {
			f.Message = withOptionNames(said)
		}
	case errors.Is(err, sandbox.ErrOutcomeUnknown):
		f.Code, f.Exit = "outcome_unknown", exitUnknown
		f.Hint = "it may have been done: look with " + Try("ls --all")
	case errors.As(err, &changed):
		f.Code, f.Exit = "files_changed", exitChanged
		f.Hint = "copy again once the programs that write there have ended"
		if len(changed.Unreadable) > 0 {
			f.Hint = "files that can't be read were not copied; --exclude leaves them out without an error"
		} else if len(changed.Unwritable) > 0 {
			f.Hint = "remove what is in the way at the destination, or change its permissions, and copy again"
		}
	case errors.Is(err, auth.ErrNoCredentials):
		f.Code, f.Exit = "no_credentials", ExitLogin
		f.Hint = "run " + Try("login") + ", or set VERCEL_AUTH_TOKEN, or use --local, which needs no account"
	case errors.As(err, &refused):
		f.Code, f.Exit = "login_refused", ExitLogin
		f.Hint = "log in again with: " + Try("login")
	case errors.As(err, &missing):
		f.Code, f.Exit = "executable_not_found", ExitNoProgram
	case errors.As(err, &shell):
		f.Code, f.Exit = "terminal_lost", ExitTerminal
		f.Hint = "the program in it got SIGHUP"
	case errors.As(err, &stream) && stream.CommandID != "":
		f.Code = "stream_broken"
	case errors.Is(err, context.DeadlineExceeded):
		f.Code, f.Exit = "timeout", ExitTimeout
	case errors.Is(err, context.Canceled):
		f.Code, f.Exit, f.Message = "interrupted", ExitInterrupted, "interrupted"
	case api == nil && errors.Is(err, fs.ErrNotExist):
		f.Code, f.Exit = "not_found", ExitNotFound
	case errors.Is(err, syscall.ECONNREFUSED):
		f.Code, f.Hint = "connection_refused", "nothing answers at that address; "+Try("doctor")+" shows what is wrong"
	case errors.Is(err, sandbox.ErrNoRoute):
		f.Exit = ExitNotFound
		f.Message, _, _ = strings.Cut(f.Message, " (CreateOptions") // the rest is advice for Go programs
	case errors.Is(err, sandbox.ErrNotFound):
		f.Exit = ExitNotFound
	}
}

// Lines escapes everything in a text that could control a terminal.
func Lines(text string) string {
	parts := strings.Split(text, "\n")
	for i, p := range parts {
		parts[i] = redact.Printable(p)
	}
	return strings.Join(parts, "\n")
}

// commandsHint says where to look for a missing command.
func (s *Screen) commandsHint() string {
	if len(s.Names) != 1 {
		return ""
	}
	return "run " + Try("ps --all %s", s.Names[0]) + " to see the commands of its session"
}

// missingHint says how to list the kind of object that is missing. The kind is in the
// message or else in the operation.
func (s *Screen) missingHint(err *sandbox.APIError) string {
	message := strings.ToLower(err.Message)
	switch {
	case strings.Contains(message, "no snapshot available"):
		return "its files were never saved and are lost; rm removes it"
	case strings.Contains(message, "image"):
		return "an image is the team's, or one of the service's, such as vercel/sandbox/node:24"
	}
	for _, text := range []string{message, err.Operation} {
		switch {
		case strings.Contains(text, "command"):
			return s.commandsHint()
		case strings.Contains(text, "drive"):
			return "run " + Try("drives ls") + " to see the drives in this project"
		case strings.Contains(text, "snapshot"):
			return "run " + Try("snapshots ls") + " to see the snapshots in this project"
		}
	}
	return "run " + Try("ls --all") + " to see the sandboxes in this project"
}

// explainAPI sets the exit code and the hint for an error of the API.
func (s *Screen) explainAPI(f *failure, err *sandbox.APIError) {
	switch {
	case errors.Is(err, os.ErrProcessDone):
		f.Exit = ExitNotFound
		f.Hint = s.commandsHint()
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrSnapshotNotFound):
		f.Exit = ExitNotFound
		f.Hint = s.missingHint(err)
	case errors.Is(err, sandbox.ErrUnauthorized):
		f.Exit = ExitLogin
		f.Hint = s.credentialHint()
	case errors.Is(err, sandbox.ErrConflict):
		f.Exit = ExitConflict
	case errors.Is(err, sandbox.ErrQuotaExceeded):
		f.Hint = "the plan of the team does not allow it; see vercel.com/docs/vercel-sandbox/pricing"
	case errors.Is(err, sandbox.ErrRateLimited):
		f.Exit = ExitRateLimit
		f.Hint = "too many requests"
		if err.RetryAfter > 0 {
			f.Hint += "; try again in " + err.RetryAfter.String()
		}
	case errors.Is(err, exec.ErrNotFound):
		f.Exit = ExitNoProgram
	case strings.Contains(err.Message, "maxSizeBytes"):
		f.Hint = "a size without a unit is in bytes; give it as 10GiB"
	}
}

// asksForJSON reports whether the raw arguments contain --json. It is for errors of a
// command line that could not be read.
func (s *Screen) asksForJSON() bool {
	for _, w := range s.Args {
		if w == "--" || s.Started {
			return false
		}
		if w == "--json" {
			return true
		}
	}
	return false
}

// wantsJSONErrors reports whether errors are printed as JSON.
func (s *Screen) wantsJSONErrors() bool { return s.Opts.JSON || s.asksForJSON() }

// reportJSON prints an error as JSON.
func (s *Screen) reportJSON(f failure) {
	text := &strings.Builder{}
	_ = WriteJSON(text, errorView{f}, false)
	fmt.Fprint(s.Err, Lines(text.String()))
}

// Failed prints one of several errors; what says which object failed.
func (s *Screen) Failed(what string, err error) {
	f := s.Explain(err)
	f.Message = what + f.Message
	s.printFailure(f)
}

// Report prints an error to standard error and returns the exit code.
func (s *Screen) Report(err error) int {
	var exit *ExitError
	if errors.As(err, &exit) && exit.Err == nil {
		return exit.Code
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitBrokenPipe // print nothing, as if SIGPIPE had ended the program
	}
	f := s.Explain(err)
	s.printFailure(f)
	return f.Exit
}

// printFailure prints an error: the message, the details of the API's response, and the
// hint.
func (s *Screen) printFailure(f failure) {
	if s.wantsJSONErrors() {
		s.reportJSON(f)
		return
	}
	message := Lines(f.Message)
	if s.Err.Terminal && !strings.Contains(message, "\n") {
		message = Wrapped(message, len("error: "), s.Err.Width())
	}
	fmt.Fprintf(s.Err, "%s %s\n", s.Err.Paint(console.Red, "error:"), message)
	var more []string
	if f.Status != 0 {
		more = append(more, fmt.Sprintf("status code: %d %s", f.Status, http.StatusText(f.Status)))
	}
	if f.RequestID != "" {
		more = append(more, "request id: "+f.RequestID)
	}
	if f.Hint != "" {
		more = append(more, "hint: "+f.Hint)
	}
	for i, l := range more {
		mark := "├▶ "
		if i == len(more)-1 {
			mark = "╰▶ "
		}
		fmt.Fprintf(s.Err, "%s%s\n", s.Err.Paint(console.Dim, mark), Lines(l))
	}
	if s.Opts.Debug != "" && len(f.body) > 0 {
		fmt.Fprintf(s.Err, "%s\n", Lines(string(f.body)))
	}
}

func (s *Screen) credentialHint() string {
	if s.Source == "" {
		return "run " + Try("login") + ", or set VERCEL_AUTH_TOKEN"
	}
	return "the token comes from " + s.Source + "; " + Try("doctor") + " shows more, " + Try("login") + " gets a new one"
}

// errorView is the JSON document of an error on standard error with --json.
type errorView struct {
	Error failure `json:"error"`
}

// FailAfter returns the error of a command that has already printed errs. It has the exit
// code of the first of them, and prints nothing.
func (s *Screen) FailAfter(errs []error) error {
	var first error
	for _, err := range errs {
		if err != nil && first == nil {
			first = err
		}
	}
	if first == nil {
		return nil
	}
	if errors.Is(first, context.Canceled) {
		return first
	}
	return ExitWith(s.Explain(first).Exit)
}
