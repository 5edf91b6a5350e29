// Package edge distinguishes responses of the platform's edge from those of a server in
// the sandbox.
package edge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// The documented codes of the edge.
const (
	Stopped      = "SANDBOX_STOPPED"
	Stopping     = "SANDBOX_STOPPING"
	Snapshotting = "SANDBOX_SNAPSHOTTING"
	NotFound     = "SANDBOX_NOT_FOUND"
	NotListening = "SANDBOX_NOT_LISTENING"
)

// Error is a response of the platform's edge instead of the server's.
type Error struct {
	Status  int
	Code    string
	Message string // for people; empty if it repeats the code
	stopped error
}

func (e *Error) Error() string {
	if e.Message != "" {
		return fmt.Sprintf("status %d of the platform (%s): %s", e.Status, redact.Printable(e.Message), e.Code)
	}
	return fmt.Sprintf("status %d of the platform: %s", e.Status, e.Code)
}

// Is makes the error match the error for a stopped sandbox if the edge reports that. It
// never matches the error for a missing sandbox, because a server in the sandbox can send
// the same response. Only the API can tell a caller that a sandbox is gone.
func (e *Error) Is(target error) bool {
	return target == e.stopped && slices.Contains([]string{Stopped, Stopping, Snapshotting}, e.Code)
}

// May reports whether a response can be the edge's, by its status.
func May(resp *http.Response) bool {
	return slices.Contains([]int{http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity, http.StatusBadGateway}, resp.StatusCode)
}

// Said returns the edge's reason for a response whose body starts with text, or nil for a
// response of a server. A status alone proves nothing, because servers use the same ones.
// The reason is in the header, in the error's code if the body is JSON, or on a separate
// line. The error matches stopped if the sandbox has stopped.
func Said(resp *http.Response, text string, stopped error) *Error {
	if !May(resp) {
		return nil
	}
	said := resp.Header.Values("X-Vercel-Error")
	message := ""
	var body wire.ErrorResponse
	if json.Unmarshal([]byte(text), &body) == nil {
		message = body.Error.Message
		if len(said) == 0 {
			said = []string{body.Error.Code}
		}
	} else if len(said) == 0 {
		for line := range strings.Lines(text) {
			said = append(said, strings.TrimSpace(line))
			message = cmp.Or(message, said[0])
		}
	}
	for _, code := range []string{Stopped, Stopping, Snapshotting, NotFound, NotListening} {
		if slices.Contains(said, code) {
			if message == code {
				message = ""
			}
			return &Error{resp.StatusCode, code, message[:min(len(message), maxMessage)], stopped}
		}
	}
	return nil
}

// maxMessage is longer than the edge's messages.
const maxMessage = 300
