package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const devServer = `
import http.server, sys, time
print("starting", flush=True)
time.sleep(2)
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *a): pass
s = http.server.HTTPServer(("0.0.0.0", int(sys.argv[1])), H)
print("listening on port", sys.argv[1], flush=True)
s.serve_forever()
`

// A server starts to listen on one port after two seconds. Nothing listens on another port.
func TestWaitForPort(t *testing.T) {
	t.Parallel()
	sb := share(t, &sandbox.CreateOptions{Ports: []int{38517, 38518}})
	began := time.Now()
	server, err := sb.StartCommand(t.Context(), "python3", []string{"-c", devServer, "38517"}, nil)
	require.NoError(t, err)
	address, err := sb.WaitForPort(t.Context(), 38517, nil)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	domain, err := sb.URL(38517)
	require.NoError(t, err)
	assert.Equal(t, domain, address)

	line, err := server.WaitForLog(t.Context(), regexp.MustCompile(`port (\d+)`))
	require.NoError(t, err)
	assert.Equal(t, "listening on port 38517", line)

	_, err = sb.WaitForPort(t.Context(), 38517, &sandbox.WaitForPortOptions{Path: "/ready", Status: 200})
	require.NoError(t, err)
	ctx, client := untilSecondAttempt(t)
	_, err = sb.WaitForPort(ctx, 38517, &sandbox.WaitForPortOptions{Path: "/other", Status: 200, HTTPClient: client})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "status 404 instead of 200: hello")

	ctx, client = untilSecondAttempt(t)
	_, err = sb.WaitForPort(ctx, 38518, &sandbox.WaitForPortOptions{HTTPClient: client})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "waiting for port 38518")
	assert.ErrorContains(t, err, "status 502")

	_, err = sb.WaitForPort(t.Context(), 1234, nil)
	assert.ErrorIs(t, err, sandbox.ErrNoRoute)
	assert.ErrorContains(t, err, "port 1234")
	for _, bad := range []sandbox.WaitForPortOptions{{Status: 7}, {Path: "x"}} {
		_, err = sb.WaitForPort(t.Context(), 38517, &bad)
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
	}
	_, err = sb.WaitForPort(t.Context(), 70000, nil)
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	require.NoError(t, server.Kill(t.Context()))
}

// untilSecondAttempt returns a context and a client. Before the client's second request,
// the context ends with DeadlineExceeded.
func untilSecondAttempt(t *testing.T) (context.Context, *http.Client) {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	tr, attempts := testkit.Transport(t), 0
	return ctx, &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		if attempts++; attempts == 2 {
			end(context.DeadlineExceeded)
		}
		return tr.RoundTrip(r)
	})}
}

func respond(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// The pauses between attempts double up to a limit. The wait ends when the session has
// ended.
func TestWaitForPortBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sb sandbox.Sandbox
		const routes = `"routes":[{"url":"https://a-3000.example.com","subdomain":"a","port":3000}]}`
		require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"id":"sess_1","status":"running"},"sandboxMetadata":{"name":"a"},`+routes), &sb))
		status := "running"
		client, err := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: "https://api.example.com", Credentials: auth.Static(auth.Credentials{Token: "t", TeamID: "m", ProjectID: "p"}),
			HTTPClient: &http.Client{Transport: canned.RoundTripper(func(*http.Request) (*http.Response, error) {
				return respond(200, `{"session":{"id":"sess_1","status":"`+status+`"},`+routes)
			})},
		})
		require.NoError(t, err)
		client.Bind(&sb)

		began := time.Now()
		var at []time.Duration
		opts := &sandbox.WaitForPortOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
			assert.Equal(t, "https://a-3000.example.com/health?x=1", r.URL.String())
			assert.Empty(t, r.Header.Get("Authorization"))
			at = append(at, time.Since(began))
			switch len(at) {
			case 1:
				return respond(502, "")
			case 2:
				return nil, errors.New("refused")
			case 3:
				<-r.Context().Done() // the server does not respond
				return nil, r.Context().Err()
			case 4, 5, 6, 7:
				return respond(503+len(at)%2, "")
			}
			return respond(418, "")
		}), Timeout: 20 * time.Second}, Path: "/health?x=1"}
		_, err = sb.WaitForPort(t.Context(), 3000, opts)
		require.NoError(t, err)
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{0, 100 * ms, 300 * ms, 20700 * ms, 21500 * ms, 23100 * ms, 25100 * ms, 27100 * ms}, at)

		status = "stopped"
		opts.HTTPClient.Transport = canned.RoundTripper(func(*http.Request) (*http.Response, error) { return respond(502, "nobody home") })
		began = time.Now()
		_, err = sb.WaitForPort(t.Context(), 3000, opts)
		assert.ErrorIs(t, err, sandbox.ErrStopped)
		assert.ErrorContains(t, err, "session sess_1 is stopped; the last attempt: status 502: nobody home")
		assert.Less(t, time.Since(began), 15*time.Second)
	})
}

func TestWaitForLog(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", `printf 'par'; echo error >&2; sleep .1; printf 'tial\r\nready at 1234'; sleep .1; printf '5\nmore'; exit 3`}, nil)
	require.NoError(t, err)
	for pattern, want := range map[string]string{"ready at": "ready at 12345", "^partial$": "partial", "err": "error", "^more": "more"} {
		line, err := cmd.WaitForLog(t.Context(), regexp.MustCompile(pattern))
		require.NoError(t, err)
		assert.Equal(t, want, line)
	}
	_, err = cmd.WaitForLog(t.Context(), regexp.MustCompile("never"))
	assert.ErrorContains(t, err, `ended with exit code 3 without a line that matches "never"; the last line was: more`)
	_, err = cmd.WaitForLog(t.Context(), nil)
	assert.ErrorIs(t, err, sandbox.ErrInvalid)

	long, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after; sleep 60"}, nil)
	require.NoError(t, err)
	line, err := long.WaitForLog(t.Context(), regexp.MustCompile("^x"))
	require.NoError(t, err)
	assert.Len(t, line, 64<<10)
	line, err = long.WaitForLog(t.Context(), regexp.MustCompile("after"))
	require.NoError(t, err)
	assert.Equal(t, "after", line)
	require.NoError(t, long.Kill(t.Context()))
}

// WaitForLog returns when its context ends, and the error contains the last line.
func TestWaitForLogEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			if testkit.IsLogs(req) {
				return canned.Forgotten(req, `{"stream":"stdout","data":"one\n"}`+"\n"+`{"stream":"stderr","data":"two\n"}`+"\n")
			}
			return canned.JSON(200, canned.Begun), nil
		}).Sandbox(t)
		cmd, err := sb.StartCommand(t.Context(), "x", nil, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = cmd.WaitForLog(ctx, regexp.MustCompile("never"))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "the last line was: two")
	})
}
