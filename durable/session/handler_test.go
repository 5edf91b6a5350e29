package session_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/go-vercel/sandbox/durable/session"
)

// failing is a cluster whose every response is an error.
type failing struct {
	client.Client
	err error
}

func (f failing) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	return nil, f.err
}

func (f failing) UpdateWorkflow(context.Context, client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	return nil, f.err
}

func (f failing) SignalWorkflow(context.Context, string, string, string, any) error { return f.err }

func (f failing) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	return nil, f.err
}

// routes are requests that the handler serves.
var routes = []struct{ method, path, body string }{
	{"POST", "/start", ""},
	{"POST", "/start", `{"runId":"a"}`},
	{"POST", "/command", `{"runId":"a","command":"true"}`},
	{"GET", "/events?runId=a", ""},
	{"GET", "/session?runId=a", ""},
	{"POST", "/interrupt", `{"runId":"a"}`},
	{"POST", "/touch", `{"runId":"a"}`},
	{"POST", "/destroy", `{"runId":"a"}`},
}

func serve(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

// TestAuthorize: a request that is not allowed gets 403 on every route, and the
// cluster, which is not there, is not asked.
func TestAuthorize(t *testing.T) {
	var asked []string
	h := session.New(nil, nil).Handler(&session.HandlerOptions{Authorize: func(_ *http.Request, id string) error {
		asked = append(asked, id)
		return errors.New("who are you?")
	}})
	for _, r := range routes {
		w := serve(h, r.method, r.path, r.body)
		assert.Equal(t, http.StatusForbidden, w.Code, "%s %s", r.method, r.path)
		assert.Contains(t, w.Body.String(), "who are you?")
	}
	assert.Equal(t, []string{"", "a", "a", "a", "a", "a", "a", "a"}, asked)
}

// TestEngineAway: while the engine does not respond, every route says so and when
// to ask again. A stream does not begin.
func TestEngineAway(t *testing.T) {
	h := session.New(failing{err: serviceerror.NewUnavailable("nobody listens")}, nil).Handler(nil)
	for _, r := range routes {
		w := serve(h, r.method, r.path, r.body)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, "%s %s", r.method, r.path)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.NotContains(t, w.Body.String(), "nobody listens", "that is for the log")
	}
}

// TestRefusedCommand: a queue that is full is one to try again, a session that was
// destroyed is not.
func TestRefusedCommand(t *testing.T) {
	for kind, status := range map[string]int{"QueueFull": http.StatusTooManyRequests, "Destroyed": http.StatusGone} {
		h := session.New(failing{err: temporal.NewApplicationError("no", kind)}, nil).Handler(nil)
		assert.Equal(t, status, serve(h, "POST", "/command", `{"runId":"a","command":"true"}`).Code, kind)
	}
}

// TestStartIndex: the guide's client asks for the start; another index means
// nothing here, and is refused instead of repeating what was seen.
func TestStartIndex(t *testing.T) {
	h := session.New(failing{err: serviceerror.NewUnavailable("nobody listens")}, nil).Handler(nil)
	for index, status := range map[string]int{"0": http.StatusServiceUnavailable, "7": http.StatusBadRequest, "-1": http.StatusBadRequest} {
		w := serve(h, "POST", "/start", `{"runId":"a","startIndex":`+index+`}`)
		assert.Equal(t, status, w.Code, index)
	}
}
