package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/redact"
)

// FSError is the error that the sandbox reported for a file operation. It is
// wrapped by an [*fs.PathError] or [*os.LinkError]. With [errors.Is] it matches
// its cause, such as [syscall.ENOTEMPTY], if the message was recognized, and with
// [errors.As] it is an [*APIError] if the API refused.
type FSError struct {
	// Message is what a program wrote to standard error, or the API's message,
	// unchanged. Error quotes it where it is not printable.
	Message string

	errno syscall.Errno // 0 if the message was not recognized
	err   error         // the API's; nil if a program failed
	// command is the program that failed, and exitCode how.
	command  string
	exitCode int
}

// Error returns the text of the cause, or else the sandbox's message.
func (e *FSError) Error() string {
	msg := strings.TrimSpace(e.Message)
	switch {
	case e.errno == syscall.ENOTSUP && coreutils.Foreign(msg):
		line, _, _ := strings.Cut(msg, "\n")
		return "a program of the sandbox is not GNU's: " + redact.Printable(line)
	case e.errno != 0:
		return e.errno.Error()
	case e.err != nil:
		return e.err.Error()
	case msg != "":
		return redact.Printable(msg)
	default:
		return fmt.Sprintf("%s ended with exit code %d", e.command, e.exitCode)
	}
}

// Unwrap returns the causes.
func (e *FSError) Unwrap() []error {
	var errs []error
	if e.errno != 0 {
		errs = append(errs, e.errno)
	}
	if e.err != nil {
		errs = append(errs, e.err)
	}
	return errs
}

// errnoOfAPI returns the errno that an API error about a file corresponds to.
func errnoOfAPI(e *APIError) syscall.Errno {
	if errno := api.FileErrno(e.Code, e.Message); errno != 0 {
		return errno
	}
	return coreutils.Errno(e.Message)
}

// fileReason converts an API error about a file to an FSError that wraps it.
// Other errors are returned unchanged.
func fileReason(err error) error {
	if e, ok := errors.AsType[*APIError](err); ok {
		if errno := errnoOfAPI(e); errno != 0 {
			return &FSError{errno: errno, Message: e.Message, err: err}
		}
	}
	return err
}

// reason converts the failure of a program to an *FSError. Other errors are
// returned unchanged.
func reason(err error) error {
	if e, ok := errors.AsType[*coreutils.Error](err); ok {
		return &FSError{errno: e.Errno, command: e.Command, exitCode: e.ExitCode, Message: e.Message}
	}
	return err
}
