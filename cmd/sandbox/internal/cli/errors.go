package cli

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
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/terminal"
)

// The exit codes of the program itself. exec, run, connect and wait give those of
// the remote command otherwise.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitLogin       = 4
	exitConflict    = 5
	exitTimeout     = 6
	exitRateLimit   = 7
	exitUnknown     = 8
	exitChanged     = 24 // as rsync's
	exitNotStarted  = 125
	exitNotRunnable = 126
	exitNoProgram   = 127
	exitInterrupted = 130
	exitBrokenPipe  = 141
	exitTerminated  = 143
	exitTerminal    = 255
)

// hinted is an error with advice on what to do next.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

func withHint(err error, format string, args ...any) error {
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// during adds to an error what was done, which the messages of the API don't say.
func during(err error, what string) error { return &duringError{err, what} }

type duringError struct {
	error
	what string
}

func (e *duringError) Error() string { return e.what + ": " + e.error.Error() }
func (e *duringError) Unwrap() error { return e.error }

// exitError ends the program with a code. Without an error everything was said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitWith ends the program with a code and no further word.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// failure is what the program says about an error.
type failure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Status    int    `json:"status,omitempty"`
	RequestID string `json:"requestId,omitempty"`
	Hint      string `json:"hint,omitempty"`

	exit int
	body []byte
}

// exitCodes are the codes of errors that have none of their own.
var exitCodes = map[int]string{
	exitNotFound: "not_found", exitLogin: "no_credentials", exitConflict: "conflict", exitTimeout: "timeout", exitRateLimit: "rate_limited",
	exitUnknown: "outcome_unknown",
}

// fieldOptions are the options that set the fields which the SDK names.
var fieldOptions = map[string]string{
	"Ports": "publish-port", "Env": "env", "Tags": "tag",
	"Region": "region", "FailoverRegions": "failover-regions", "NetworkID": "network-id", "Mounts": "mount", "Credentials": "credentials", "NetworkPolicy": "network-policy",
	"Image": "image", "Runtime": "runtime", "Architecture": "architecture", "MaxSizeBytes": "max-size", "Source.URL": "git", "Limit": "limit", "Exclude": "exclude",
}

// tooShort is a duration that was likely meant as seconds.
var tooShort = regexp.MustCompile(`\b(\d+)ms is outside`)

// inOptions names the option where the SDK names its field.
func inOptions(message string) string {
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

// take takes over what the API said.
func (f *failure) take(api *sandbox.APIError) {
	f.Status, f.RequestID, f.body = api.Status, api.RequestID, api.Body
	f.Code, f.Message = cmp.Or(api.Code, f.Code), cmp.Or(api.Message, f.Message)
}

// explain finds out what to tell about an error and how to end.
func (s *stdio) explain(err error) failure {
	f := failure{Code: "failure", Message: err.Error(), exit: exitFailure}
	var api *sandbox.APIError
	if errors.As(err, &api) {
		f.take(api)
		if d, ok := errors.AsType[*duringError](err); ok && api.Message != "" {
			f.Message = d.what + ": " + api.Message
		}
		s.explainAPI(&f, api)
	}
	f.explain(err, api)
	if found := tooShort.FindStringSubmatch(f.Message); found != nil && f.exit == exitUsage {
		f.Hint = "a number without a unit is milliseconds; did you mean " + found[1] + "s?"
	}
	if f.exit == exitTerminal && len(s.names) == 1 {
		f.Hint += "; " + try("connect %s", s.names[0]) + " opens a new terminal"
	}
	if f.Code == "interrupted" && s.signal() != 0 {
		f.exit = 128 + int(s.signal())
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		f.exit = exit.code
	}
	if code := exitCodes[f.exit]; f.Code == "failure" && code != "" {
		f.Code = code
	}
	if advice, ok := errors.AsType[*hinted](err); ok {
		f.Hint = advice.hint
	}
	f.Message, f.Hint = s.filled(strings.TrimPrefix(f.Message, "sandbox: ")), s.filled(f.Hint)
	return f
}

// explain says what the kind of an error says, whoever it is from; api is nil if
// not the API.
func (f *failure) explain(err error, api *sandbox.APIError) {
	var usage *usageError
	var missing *exec.Error
	var shell *terminal.ShellError
	var stream *sandbox.StreamError
	var refused *oidc.OAuthError
	var changed *sandbox.ChangedError
	switch {
	case errors.As(err, &usage):
		f.Code, f.exit, f.Hint = "usage", exitUsage, usage.hint
	case errors.Is(err, sandbox.ErrInvalid):
		f.Code, f.exit = "usage", exitUsage
		if _, said, ok := strings.Cut(f.Message, sandbox.ErrInvalid.Error()+": "); ok {
			f.Message = inOptions(said)
		}
	case errors.Is(err, sandbox.ErrOutcomeUnknown):
		f.Code, f.exit = "outcome_unknown", exitUnknown
		f.Hint = "whether it was done is not known: look with " + try("ls --all")
	case errors.As(err, &changed):
		f.Code, f.exit = "files_changed", exitChanged
		f.Hint = "copy again once the programs that write there have ended"
		if len(changed.Unreadable) > 0 {
			f.Hint = "the files that are not readable were not copied; --exclude leaves them out without an error"
		}
	case errors.Is(err, auth.ErrNoCredentials):
		f.Code, f.exit = "no_credentials", exitLogin
		f.Hint = "run " + try("login") + ", or set VERCEL_AUTH_TOKEN, or use --local, which needs no account"
	case errors.As(err, &refused):
		f.Code, f.exit = "login_refused", exitLogin
		f.Hint = "log in again with: " + try("login")
	case errors.As(err, &missing):
		f.Code, f.exit = "executable_not_found", exitNoProgram
	case errors.As(err, &shell):
		f.Code, f.exit = "terminal_lost", exitTerminal
		f.Hint = "the program in it was hung up"
	case errors.As(err, &stream) && stream.CommandID != "":
		f.Code = "stream_broken"
	case errors.Is(err, context.DeadlineExceeded):
		f.Code, f.exit = "timeout", exitTimeout
	case errors.Is(err, context.Canceled):
		f.Code, f.exit, f.Message = "interrupted", exitInterrupted, "interrupted"
	case api == nil && errors.Is(err, fs.ErrNotExist):
		f.Code, f.exit = "not_found", exitNotFound
	case errors.Is(err, syscall.ECONNREFUSED):
		f.Code, f.Hint = "connection_refused", "nothing answers there; "+try("doctor")+" looks what is wrong"
	case errors.Is(err, sandbox.ErrNoRoute):
		f.exit = exitNotFound
		f.Message, _, _ = strings.Cut(f.Message, " (CreateOptions") // what a program does
	case errors.Is(err, sandbox.ErrNotFound):
		f.exit = exitNotFound
	}
}

// lines is text of somebody else that does nothing but show on a terminal.
func lines(text string) string {
	parts := strings.Split(text, "\n")
	for i, p := range parts {
		parts[i] = redact.Printable(p)
	}
	return strings.Join(parts, "\n")
}

// commandsHint says where to look for a command that was not found.
func (s *stdio) commandsHint() string {
	if len(s.names) != 1 {
		return ""
	}
	return "run " + try("ps --all %s", s.names[0]) + " to see the commands of its session"
}

// missingHint says where to look for what is missing: what the message names, or
// else what the operation is about.
func (s *stdio) missingHint(err *sandbox.APIError) string {
	message := strings.ToLower(err.Message)
	switch {
	case strings.Contains(message, "no snapshot available"):
		return "it was never saved, so that nothing of it is left; rm removes it"
	case strings.Contains(message, "image"):
		return "an image is the team's, or one of the service's, such as vercel/sandbox/node:24"
	}
	for _, text := range []string{message, err.Operation} {
		switch {
		case strings.Contains(text, "command"):
			return s.commandsHint()
		case strings.Contains(text, "drive"):
			return "run " + try("drives ls") + " to see the drives in this project"
		case strings.Contains(text, "snapshot"):
			return "run " + try("snapshots ls") + " to see the snapshots in this project"
		}
	}
	return "run " + try("ls --all") + " to see the sandboxes in this project"
}

// explainAPI finds out how to end, and what to advise, for an error of the API.
func (s *stdio) explainAPI(f *failure, err *sandbox.APIError) {
	switch {
	case errors.Is(err, os.ErrProcessDone):
		f.exit = exitNotFound
		f.Hint = s.commandsHint()
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrSnapshotNotFound):
		f.exit = exitNotFound
		f.Hint = s.missingHint(err)
	case errors.Is(err, sandbox.ErrUnauthorized):
		f.exit = exitLogin
		f.Hint = s.credentialHint()
	case errors.Is(err, sandbox.ErrConflict):
		f.exit = exitConflict
	case errors.Is(err, sandbox.ErrQuotaExceeded):
		f.Hint = "the plan of the team does not allow it; see vercel.com/docs/vercel-sandbox/pricing"
	case errors.Is(err, sandbox.ErrRateLimited):
		f.exit = exitRateLimit
		f.Hint = "too many requests"
		if err.RetryAfter > 0 {
			f.Hint += "; try again in " + err.RetryAfter.String()
		}
	case errors.Is(err, exec.ErrNotFound):
		f.exit = exitNoProgram
	case strings.Contains(err.Message, "maxSizeBytes"):
		f.Hint = "a size without a unit is in bytes; give it as 10GiB"
	}
}

// asksForJSON looks at the command line itself, whose error may be that it could
// not be read.
func (s *stdio) asksForJSON() bool {
	for _, w := range s.args {
		if w == "--" || s.started {
			return false
		}
		if w == "--json" {
			return true
		}
	}
	return false
}

// wantsJSONErrors reports whether errors are told as JSON.
func (s *stdio) wantsJSONErrors() bool { return s.opts.json || s.asksForJSON() }

// reportJSON tells about an error as JSON.
func (s *stdio) reportJSON(f failure) {
	text := &strings.Builder{}
	_ = writeJSON(text, errorView{f}, false)
	fmt.Fprint(s.err, lines(text.String()))
}

// failed tells about one of several errors, and what failed.
func (s *stdio) failed(what string, err error) {
	f := s.explain(err)
	f.Message = what + f.Message
	s.show(f)
}

// report tells about an error on standard error and returns the exit code.
func (s *stdio) report(err error) int {
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return exit.code
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitBrokenPipe // as if the signal had ended the program, which says nothing either
	}
	f := s.explain(err)
	s.show(f)
	return f.exit
}

// show writes what there is to say about an error: what happened, what the API said
// of it, and what to do.
func (s *stdio) show(f failure) {
	if s.wantsJSONErrors() {
		s.reportJSON(f)
		return
	}
	fmt.Fprintf(s.err, "%s %s\n", s.err.Paint(console.Red, "error:"), lines(f.Message))
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
		fmt.Fprintf(s.err, "%s%s\n", s.err.Paint(console.Dim, mark), lines(l))
	}
	if s.opts.debug != "" && len(f.body) > 0 {
		fmt.Fprintf(s.err, "%s\n", lines(string(f.body)))
	}
}

func (s *stdio) credentialHint() string {
	if s.source == "" {
		return "run " + try("login") + ", or set VERCEL_AUTH_TOKEN"
	}
	return "the token comes from " + s.source + "; " + try("doctor") + " tells more, " + try("login") + " gets a new one"
}

// errorView is what goes to standard error with --json.
type errorView struct {
	Error failure `json:"error"`
}

// failAfter is the error of a command that has told about each failure.
func (s *stdio) failAfter(errs []error) error {
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
	return exitWith(s.explain(first).exit)
}
