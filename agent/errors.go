package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// modelError is an error that the model can fix.
type modelError struct{ text string }

func (e *modelError) Error() string { return e.text }

// sessionError means that the sandbox that the program chose can't be found or started. The
// model can't fix its cause, such as invalid options.
type sessionError struct{ err error }

func (e *sessionError) Error() string { return e.err.Error() }
func (e *sessionError) Unwrap() error { return e.err }

// beforeError is an error of Options.Before, which is for the program whatever it matches: the
// call was not made.
type beforeError struct{ err error }

func (e *beforeError) Error() string { return e.err.Error() }
func (e *beforeError) Unwrap() error { return e.err }

// modelErrorf returns an error whose text is shown to the model.
func modelErrorf(format string, args ...any) error { return &modelError{fmt.Sprintf(format, args...)} }

// Refuse returns an error for [Options].Before to return. The call is then not made,
// and the model reads the reason. Any other error of Before is an error for the
// program.
func Refuse(reason string) error { return modelErrorf("Refused: %s", oneLine(reason)) }

// programErrors are the errors that the model can't fix. The model gets the text instead of
// the error.
var programErrors = []struct {
	err  error
	text string
}{
	{ErrLimit, "The budget for these tools is used up. Finish with what you have, and say so."},
	{auth.ErrNoCredentials, "This program has no credentials for the sandbox service. Tell the user: nothing that you call can change it."},
	{sandbox.ErrUnauthorized, "The sandbox service refuses the credentials of this program. Tell the user: nothing that you call can change it."},
	{sandbox.ErrQuotaExceeded, "The quota of the sandbox service is used up. Tell the user: nothing that you call can change it."},
	{sandbox.ErrRateLimited, rateLimited + " It does not say for how long. Wait a minute before the next call."},
	{sandbox.ErrSnapshotNotFound, "The sandbox has lost its files: the snapshot that had them is gone. Tell the user."},
	{sandbox.ErrDeleted, "The sandbox was deleted, with its files. Tell the user."},
	{sandbox.ErrNotFound, "The sandbox, or what was looked for in it, no longer exists. Tell the user."},
	{sandbox.ErrStopped, "The sandbox is stopped. Try once more, then tell the user."},
	{context.Canceled, "The call was canceled."},
}

const rateLimited = "The sandbox service limits the rate of requests."

const unreachable = "The sandbox can't be used at the moment. Try once more, then tell the user."

// textForModel returns the text about an error for the model, and whether the program gets the
// error too.
func textForModel(err error) (text string, program bool) {
	if m, ok := errors.AsType[*modelError](err); ok {
		return m.text, false
	}
	_, session := errors.AsType[*sessionError](err)
	_, before := errors.AsType[*beforeError](err)
	program = session || before
	if session && errors.Is(err, sandbox.ErrInvalid) {
		return "The settings of this program for its sandbox are not valid. Tell the user: nothing that you call can change it.", true
	}
	if !program && errors.Is(err, sandbox.ErrInvalid) {
		return "Not possible: " + oneLine(err.Error()), false
	}
	// The API reports a missing program, so this error is a *sandbox.APIError too.
	if !program && errors.Is(err, exec.ErrNotFound) {
		return "The sandbox lacks a program that this tool needs.", false
	}
	if wait := retryAfter(err); wait > 0 {
		return fmt.Sprintf("%s The next call can be made in %v. Wait for that long, or tell the user.", rateLimited, wait), true
	}
	for _, e := range programErrors {
		if errors.Is(err, e.err) {
			return e.text, true
		}
	}
	if !program && errors.Is(err, sandbox.ErrOutcomeUnknown) {
		return "The connection to the sandbox broke. It is unknown whether this was done: check before you repeat it.", false
	}
	if !program && errors.Is(err, context.DeadlineExceeded) {
		return "The call took too long and was canceled. What it has started may still be running. Ask for less at once.", false
	}
	if program {
		return unreachable, true
	}
	for _, known := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.ENOTDIR, syscall.EISDIR, syscall.ENOSPC, syscall.EROFS, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if errors.Is(err, known) {
			if p, ok := errors.AsType[*fs.PathError](err); ok {
				return fmt.Sprintf("%s: %v.", oneLine(p.Path), known), false
			}
			return fmt.Sprintf("Not possible: %v.", known), false
		}
	}
	_, api := errors.AsType[*sandbox.APIError](err)
	if f, ok := errors.AsType[*sandbox.FSError](err); ok && !api {
		if f.Message == "" {
			return fmt.Sprintf("Not possible: %s.", oneLine(f.Error())), false
		}
		return "Not possible. The sandbox says:\n" + wrapData(oneLine(f.Message)), false
	}
	return unreachable, true
}

// retryAfter returns how long the service asks to wait before the next request. It returns
// zero if the service does not say.
func retryAfter(err error) time.Duration {
	api, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || !errors.Is(err, sandbox.ErrRateLimited) {
		return 0
	}
	return api.RetryAfter.Round(time.Second)
}

// refusalText returns the API's message if the API refuses a value that the model chose, such
// as a name, an image or a size. It returns "" for any other error.
func refusalText(err error) string {
	api, ok := errors.AsType[*sandbox.APIError](err)
	if !ok || api.Code == "" {
		return ""
	}
	switch api.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		return api.Error() // contains no secrets
	}
	return ""
}
