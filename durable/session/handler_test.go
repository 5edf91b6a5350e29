package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable/session"
)

// failing is a cluster that responds with an error.
type failing struct {
	client.Client
	err error
}

func (f failing) QueryWorkflowWithOptions(context.Context, *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	return nil, f.err
}

func (f failing) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, f.err
}

func (f failing) UpdateWorkflow(context.Context, client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	return nil, f.err
}

func (f failing) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	return nil, f.err
}

func (f failing) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	return &client.CheckHealthResponse{}, f.err
}

// refusing is a cluster whose session refuses everything.
type refusing struct{ failing }

func (refusing) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return executionOf("sandbox.Session"), nil
}

// routes are requests that the handler serves.
var routes = []struct{ method, path, body string }{
	{"POST", "/start", ""},
	{"POST", "/start", `{"runId":"a"}`},
	{"POST", "/command", `{"runId":"a","command":"true"}`},
	{"GET", "/events?runId=a", ""},
	{"GET", "/session?runId=a", ""},
	{"POST", "/interrupt", `{"runId":"a"}`},
	{"POST", "/destroy", `{"runId":"a"}`},
}

func serve(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

// TestAuthorize: a refused request gets 403 on every route, and does not reach the cluster.
func TestAuthorize(t *testing.T) {
	var asked []string
	h := session.New(nil, nil).Handler(&session.HandlerOptions{Authorize: func(_ *http.Request, id string) error {
		asked = append(asked, id)
		return errors.New("who are you?")
	}})
	for _, r := range routes {
		w := serve(h, r.method, r.path, r.body)
		assert.Equal(t, http.StatusForbidden, w.Code, "%s %s", r.method, r.path)
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), "%s %s", r.method, r.path)
		assert.Contains(t, w.Body.String(), "who are you?")
	}
	assert.Equal(t, []string{"", "a", "a", "a", "a", "a", "a"}, asked)
}

// TestOtherOrigins: requests from pages of other origins are refused.
func TestOtherOrigins(t *testing.T) {
	h := session.New(nil, nil).Handler(nil)
	for _, r := range routes {
		if r.method == "GET" {
			continue // another origin can't read the response
		}
		for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			w, req := httptest.NewRecorder(), httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
			req.Header.Set(header, value)
			h.ServeHTTP(w, req)
			assert.Equal(t, http.StatusForbidden, w.Code, "%s with %s", r.path, header)
		}
	}
}

// TestToken: each route needs the token, except for the page, which contains nothing.
func TestToken(t *testing.T) {
	h := session.New(failing{err: serviceerror.NewUnavailable("nobody listens")}, nil).Handler(&session.HandlerOptions{Authorize: session.Token("right"), Page: true})
	ask := func(method, path, body, authorization string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		h.ServeHTTP(w, r)
		return w
	}
	for _, r := range routes {
		for _, wrong := range []string{"", "right", "Bearer", "Bearer ", "Bearer wrong", "Bearer right ", "Basic right", "Bearer rightright"} {
			w := ask(r.method, r.path, r.body, wrong)
			assert.Equal(t, http.StatusUnauthorized, w.Code, "%s %s with %q", r.method, r.path, wrong)
			assert.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
			assert.NotContains(t, w.Body.String(), "right")
		}
		w := ask(r.method, r.path, r.body, "Bearer right")
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, "%s %s", r.method, r.path)
	}
	assert.Equal(t, http.StatusOK, ask("GET", "/", "", "").Code)
	none := session.Token("")
	for _, header := range []string{"", "Bearer ", "Bearer"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", header)
		assert.ErrorIs(t, none(r, ""), session.ErrToken, "an empty token admits nobody")
	}
}

// unknown is a cluster without sessions that counts the started ones.
type unknown struct {
	client.Client
	started, destroyed int
}

func (u *unknown) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewNotFound("none")
}

func (u *unknown) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	u.started++
	return nil, nil
}

func (u *unknown) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	u.destroyed++
	return nil, serviceerror.NewUnavailable("nobody listens")
}

// TestAuthorizeNewSession: permission to use a session does not allow starting another one
// with an unused ID. A new session that Started refuses is destroyed.
func TestAuthorizeNewSession(t *testing.T) {
	u := &unknown{}
	var asked, told []string
	h := session.New(u, nil).Handler(&session.HandlerOptions{
		Authorize: func(_ *http.Request, id string) error {
			if asked = append(asked, id); id == "" {
				return errors.New("no new ones")
			}
			return nil
		},
	})
	for _, body := range []string{"", "{}", `{"runId":"made-up"}`} {
		w := serve(h, "POST", "/start", body)
		assert.Equal(t, http.StatusForbidden, w.Code, body)
	}
	assert.Equal(t, []string{"", "", "made-up", ""}, asked)
	assert.Zero(t, u.started)

	h = session.New(u, nil).Handler(&session.HandlerOptions{Started: func(_ *http.Request, id string) error {
		told = append(told, id)
		return errors.New("the database is away")
	}})
	w := serve(h, "POST", "/start", `{"runId":"made-up"}`)
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Len(t, told, 1)
	assert.NotContains(t, told, "made-up")
	assert.Equal(t, 1, u.started)
	assert.Equal(t, 1, u.destroyed)
}

// pipes is a listener whose connections are pipes, so that synctest can skip time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestSlowBodies: a body that does not arrive ends its connection.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &http.Server{Handler: session.New(failing{err: serviceerror.NewUnavailable("nobody listens")}, nil).Handler(nil)}
		listener, began := make(pipes), time.Now()
		go srv.Serve(listener)
		defer srv.Close()
		defer close(listener)
		conn, served := net.Pipe()
		defer conn.Close()
		listener <- served
		_, err := fmt.Fprintf(conn, "POST /start HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(began.Add(time.Minute)))
		answer, err := io.ReadAll(conn) // read until the connection is closed
		require.NoError(t, err)
		assert.Contains(t, string(answer), "408 Request Timeout")
		assert.Less(t, time.Since(began), 15*time.Second)
	})
}

// counted is a JSON object and spaces. It counts the bytes that are read.
type counted struct {
	io.Reader
	n int
}

func newCounted(object string, size int) *counted {
	return &counted{Reader: io.MultiReader(strings.NewReader(object), strings.NewReader(strings.Repeat(" ", size-len(object))))}
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// TestLargeBodies: no route keeps more of a body than the limit, and routes without a body
// read none.
func TestLargeBodies(t *testing.T) {
	const limit = 256 << 10
	h := session.New(failing{err: serviceerror.NewUnavailable("nobody listens")}, nil).Handler(&session.HandlerOptions{Page: true})
	reads := map[string]bool{ // whether the route reads a body
		"POST /start": true, "POST /command": true, "POST /interrupt": true, "POST /destroy": true,
		"GET /events": false, "GET /session": false, "GET /health": false, "GET /{$}": false,
	}
	for route, reads := range reads {
		method, path, _ := strings.Cut(strings.TrimSuffix(route, "{$}"), " ")
		ask := func(size int) (status, read int) {
			body, w := newCounted(`{"runId":"a","command":"true"}`, size), httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path+"?runId=a", body))
			return w.Code, body.n
		}
		if !reads {
			status, read := ask(limit + 1)
			assert.NotEqual(t, http.StatusRequestEntityTooLarge, status, route)
			assert.Zero(t, read, route)
			continue
		}
		status, read := ask(limit)
		assert.Equal(t, http.StatusServiceUnavailable, status, "%s: the body is accepted, but the cluster is unavailable", route)
		assert.Equal(t, limit, read, route)
		for _, size := range []int{limit + 1, 16 * limit} {
			status, read = ask(size)
			assert.Equal(t, http.StatusRequestEntityTooLarge, status, "%s with %d bytes", route, size)
			assert.LessOrEqual(t, read, limit+1, "%s with %d bytes", route, size)
		}
	}
}

// TestEngineUnavailable: while Temporal does not respond, every route says so, and when to
// try again. No stream begins.
func TestEngineUnavailable(t *testing.T) {
	h := session.New(failing{err: serviceerror.NewUnavailable("nobody listens")}, nil).Handler(nil)
	for _, r := range routes {
		w := serve(h, r.method, r.path, r.body)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, "%s %s", r.method, r.path)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.NotContains(t, w.Body.String(), "nobody listens", "only the log contains the cause")
	}
}

// TestHealth: the route says only whether Temporal responds. It says so also to callers
// without a token.
func TestHealth(t *testing.T) {
	private := &session.HandlerOptions{Authorize: func(*http.Request, string) error { return errors.New("no") }}
	for status, err := range map[int]error{http.StatusOK: nil, http.StatusServiceUnavailable: serviceerror.NewUnavailable("nobody listens")} {
		w := serve(session.New(failing{err: err}, nil).Handler(private), "GET", "/health", "")
		assert.Equal(t, status, w.Code)
		assert.NotContains(t, w.Body.String(), "nobody listens")
	}
}

// TestRefusedCommand: a full queue is 429, and a destroyed session 410.
func TestRefusedCommand(t *testing.T) {
	for kind, status := range map[string]int{"QueueFull": http.StatusTooManyRequests, "Destroyed": http.StatusGone} {
		h := session.New(refusing{failing{err: temporal.NewApplicationError("no", kind)}}, nil).Handler(nil)
		assert.Equal(t, status, serve(h, "POST", "/command", `{"runId":"a","command":"true"}`).Code, kind)
	}
}

// TestNothingToInterrupt: an interrupt that comes too late is not an error.
func TestNothingToInterrupt(t *testing.T) {
	c := session.New(refusing{failing{err: temporal.NewApplicationError("over", "NothingToInterrupt")}}, nil)
	require.NoError(t, c.Interrupt(t.Context(), "a", "cmd-1", sandbox.SIGINT))
	w := httptest.NewRecorder()
	c.Handler(nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/interrupt", strings.NewReader(`{"runId":"a"}`)))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.JSONEq(t, `{"ok":true,"interrupted":false}`, w.Body.String())
}
