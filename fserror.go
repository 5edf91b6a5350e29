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
// wrapped by an [*fs.PathError] or [*os.LinkError].
type FSError struct {
	// Errno is the cause, such as [syscall.ENOTEMPTY], for [errors.Is]. It is
	// zero if the sandbox's message was not recognized.
	Errno syscall.Errno
	// Command is the program that failed and ExitCode its exit code. They are
	// zero if the API itself refused.
	Command  string
	ExitCode int
	// Message is what the program wrote to standard error, or the API's
	// message, unchanged. Error quotes it where it is not printable.
	Message string
	// Err is the API's error, if the API refused.
	Err error
}

// Error returns the text of Errno, or else the sandbox's message.
func (e *FSError) Error() string {
	msg := strings.TrimSpace(e.Message)
	switch {
	case e.Errno != 0:
		return e.Errno.Error()
	case e.Err != nil:
		return e.Err.Error()
	case msg != "":
		return redact.Printable(msg)
	default:
		return fmt.Sprintf("%s ended with exit code %d", e.Command, e.ExitCode)
	}
}

// Unwrap returns Errno and Err, if set.
func (e *FSError) Unwrap() []error {
	var errs []error
	if e.Errno != 0 {
		errs = append(errs, e.Errno)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
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
			return &FSError{Errno: errno, Message: e.Message, Err: err}
		}
	}
	return err
}

// reason converts the failure of a program to an *FSError. Other errors are
// returned unchanged.
func reason(err error) error {
	if e, ok := errors.AsType[*coreutils.Error](err); ok {
		return &FSError{Errno: e.Errno, Command: e.Command, ExitCode: e.ExitCode, Message: e.Message}
	}
	return err
}
