// Package reply writes the emulator's responses: JSON, and the errors of the API.
package reply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"syscall"
)

// Error is an error response of the API.
type Error struct {
	Status  int
	Code    string
	Message string
	// Extra has further fields of the error object.
	Extra map[string]any
}

func (e *Error) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message) }

// Fail returns an error with a status and a code.
func Fail(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Internal returns a failure of the emulator or its machine: 507 if the disk is full, 503
// if it may open no more files, otherwise 500.
func Internal(err error, format string, args ...any) *Error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return Fail(http.StatusInsufficientStorage, "insufficient_storage", format, args...)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return Fail(http.StatusServiceUnavailable, "service_unavailable", format, args...)
	}
	return Fail(http.StatusInternalServerError, "internal_server_error", format, args...)
}

// BadRequest returns the error for bad input.
func BadRequest(format string, args ...any) *Error {
	return Fail(http.StatusBadRequest, "bad_request", format, args...)
}

// Invalid returns the error for bad input in a body or a query.
func Invalid(format string, args ...any) *Error {
	return BadRequest("Invalid request: "+format, args...)
}

// NotFound returns the error for an object that does not exist.
func NotFound(format string, args ...any) *Error {
	return Fail(http.StatusNotFound, "not_found", format, args...)
}

// SandboxNotFound returns the error for a sandbox that does not exist.
func SandboxNotFound(name string) *Error {
	return NotFound("Named sandbox '%s' not found for this project.", name)
}

// FileError returns an error of the sandbox's file system.
func FileError(format string, args ...any) *Error {
	return Fail(http.StatusBadRequest, "file_error", format, args...)
}

const noSnapshot = "Cannot resume sandbox: no snapshot available."

var (
	ErrSessionNotFound  = NotFound("Vercel Sandbox not found")
	ErrSnapshotNotFound = NotFound("Snapshot not found.")
	ErrCommandNotFound  = NotFound("Command not found.")
	ErrCommandGone      = Fail(http.StatusNotFound, "command_not_found_or_exited", "Command not found or has exited.")
	ErrStopped          = Fail(http.StatusGone, "sandbox_stopped", "Sandbox has stopped execution and is no longer available")
	ErrStopping         = Fail(http.StatusUnprocessableEntity, "sandbox_stopping", "Sandbox is stopping and is no longer available")
	ErrSnapshotting     = Fail(http.StatusUnprocessableEntity, "sandbox_snapshotting", "Sandbox is creating a snapshot and will be stopped shortly")
	// The three observed errors for resuming a sandbox without files: one that keeps
	// none, one that has none yet, and one whose snapshot was deleted or has expired.
	ErrNothingKept  = Fail(http.StatusBadRequest, "snapshot_not_found", noSnapshot)
	ErrNothingYet   = BadRequest(noSnapshot)
	ErrSnapshotGone = Fail(http.StatusGone, "snapshot_not_found", noSnapshot)
	// ErrNotKept is the emulator's own error: the service does not run out of space.
	ErrNotKept = Fail(http.StatusInsufficientStorage, "insufficient_storage",
		"The emulator could not save the change, for example because the disk is full. It is forgotten when the emulator ends, unless a later one is saved.")
	// ErrSourceGone is the error for creating a sandbox from a deleted snapshot.
	ErrSourceGone = Fail(http.StatusGone, "snapshot_not_found", "Snapshot not found.")
	ErrMediaType  = Fail(http.StatusUnsupportedMediaType, "unsupported_media_type", "Unsupported Media Type")
	ErrNoVersion1 = NotFound("The emulator does not have version 1 of the API, only later ones: use @vercel/sandbox 2 or later, or a release of your library that does.")
	ErrTooLarge   = Fail(http.StatusRequestEntityTooLarge, "payload_too_large", "The request body is too large.")
	ErrSlowBody   = Fail(http.StatusRequestTimeout, "request_timeout", "The request body did not arrive in time.")
	ErrClosing    = Fail(http.StatusServiceUnavailable, "service_unavailable", "The emulator is closing.")
)

// WriteError responds with e.
func WriteError(w http.ResponseWriter, e *Error) {
	body := map[string]any{"code": e.Code, "message": e.Message}
	maps.Copy(body, e.Extra)
	WriteJSON(w, e.Status, map[string]any{"error": body})
}

// WriteJSON responds with v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := Encode(v)
	if err != nil { // our own types always encode
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal_server_error","message":"the response can't be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	// If this fails, the client has gone.
	_, _ = w.Write(data)
}

// Encode writes JSON as the service does, without escaping <, > and &.
func Encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

// WriteEdgeError responds with an error of the edge. It also names the error in a header,
// as the platform does.
func WriteEdgeError(w http.ResponseWriter, e *Error) {
	w.Header().Set("X-Vercel-Error", e.Code)
	WriteError(w, e)
}
