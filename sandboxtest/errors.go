package sandboxtest

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

// apiError is an error response of the API.
type apiError struct {
	status  int
	code    string
	message string
	// extra are further fields of the error object.
	extra map[string]any
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.code, e.message) }

func fail(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// internal is a failure of the emulator or its machine: 507 if the disk is full, 503
// if it may open no more files.
func internal(err error, format string, args ...any) *apiError {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fail(http.StatusInsufficientStorage, "insufficient_storage", format, args...)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fail(http.StatusServiceUnavailable, "service_unavailable", format, args...)
	}
	return fail(http.StatusInternalServerError, "internal_server_error", format, args...)
}

// badRequest is bad input; the message says what.
func badRequest(format string, args ...any) *apiError {
	return fail(http.StatusBadRequest, "bad_request", format, args...)
}

// invalid is bad input in a body or a query.
func invalid(format string, args ...any) *apiError {
	return badRequest("Invalid request: "+format, args...)
}

func notFound(format string, args ...any) *apiError {
	return fail(http.StatusNotFound, "not_found", format, args...)
}

func sandboxNotFound(name string) *apiError {
	return notFound("Named sandbox '%s' not found for this project.", name)
}

// fileError is what the file system of the sandbox has refused.
func fileError(format string, args ...any) *apiError {
	return fail(http.StatusBadRequest, "file_error", format, args...)
}

const noSnapshot = "Cannot resume sandbox: no snapshot available."

var (
	errSessionNotFound  = notFound("Vercel Sandbox not found")
	errSnapshotNotFound = notFound("Snapshot not found.")
	errCommandNotFound  = notFound("Command not found.")
	errCommandGone      = fail(http.StatusNotFound, "command_not_found_or_exited", "Command not found or has exited.")
	errStopped          = fail(http.StatusGone, "sandbox_stopped", "Sandbox has stopped execution and is no longer available")
	errStopping         = fail(http.StatusUnprocessableEntity, "sandbox_stopping", "Sandbox is stopping and is no longer available")
	errSnapshotting     = fail(http.StatusUnprocessableEntity, "sandbox_snapshotting", "Sandbox is creating a snapshot and will be stopped shortly")
	// The three errors for resuming a sandbox without files that were observed:
	// for one that keeps none, for one that has none yet, and for one whose
	// snapshot was deleted or has expired.
	errNothingKept  = fail(http.StatusBadRequest, "snapshot_not_found", noSnapshot)
	errNothingYet   = badRequest(noSnapshot)
	errSnapshotGone = fail(http.StatusGone, "snapshot_not_found", noSnapshot)
	// errNotKept is the emulator's own: the service has room.
	errNotKept = fail(http.StatusInsufficientStorage, "insufficient_storage",
		"The emulator could not save the change, for example because the disk is full. It is forgotten when the emulator ends, unless a later one is saved.")
	// errSourceGone is for a new sandbox from a deleted snapshot.
	errSourceGone = fail(http.StatusGone, "snapshot_not_found", "Snapshot not found.")
	errMediaType  = fail(http.StatusUnsupportedMediaType, "unsupported_media_type", "Unsupported Media Type")
	errNoVersion1 = notFound("The emulator does not have version 1 of the API, only later ones: use @vercel/sandbox 2 or later, or a release of your library that does.")
	errTooLarge   = fail(http.StatusRequestEntityTooLarge, "payload_too_large", "The request body is too large.")
	errSlowBody   = fail(http.StatusRequestTimeout, "request_timeout", "The request body did not arrive in time.")
	errClosing    = fail(http.StatusServiceUnavailable, "service_unavailable", "The emulator is closing.")
)

// writeError responds with e.
func writeError(w http.ResponseWriter, e *apiError) {
	body := map[string]any{"code": e.code, "message": e.message}
	maps.Copy(body, e.extra)
	writeJSON(w, e.status, map[string]any{"error": body})
}

// writeJSON responds with v.
func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := encode(v)
	if err != nil { // our own types always encode
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal_server_error","message":"the response can't be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	// A failed write means that the client has gone.
	_, _ = w.Write(data)
}

// encode writes JSON as the service does, with <, > and & as they are.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}
