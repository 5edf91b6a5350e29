package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failure is a way in which an attempt fails.
type failure struct {
	name string
	// response is written to the connection after the request was read. If it is empty,
	// the connection is closed.
	response string
	// refuse fails the dial; unwritten resets the connection at the first write.
	refuse, unwritten bool

	sent        int  // attempts of a safe operation
	sentOnce    int  // attempts of an operation that must not be done twice
	status      int  // of the error; 0 for none
	unknownOnce bool // whether the outcome of such an operation is unknown
	streams     bool // for a stream it is a success, because the caller reads the body
}

const head = "Content-Type: application/json\r\nContent-Length: "

// refusalEnd is the end of a refusal of the API.
const refusalEnd = head + "43\r\n\r\n" + `{"error":{"code":"some_code","message":""}}`

var failures = []failure{
	{name: "refused", refuse: true, sent: 3, sentOnce: 3},
	// net/http does not report how much of a request was written to a new
	// connection, so one that broke early counts as one that may have taken
	// effect.
	{name: "reset before the request is written", unwritten: true, sent: 3, sentOnce: 1, unknownOnce: true},
	{name: "closed after the request", sent: 3, sentOnce: 1, unknownOnce: true},
	{name: "garbage", response: "SSH-2.0-OpenSSH\r\n\r\n", sent: 3, sentOnce: 1, unknownOnce: true},
	{name: "429", response: "HTTP/1.1 429 Slow Down\r\n" + refusalEnd, sent: 3, sentOnce: 3, status: 429},
	{name: "429 with Retry-After", response: "HTTP/1.1 429 Slow Down\r\nRetry-After: 2\r\n" + refusalEnd, sent: 3, sentOnce: 3, status: 429},
	{name: "429 with a long Retry-After", response: "HTTP/1.1 429 Slow Down\r\nRetry-After: 21\r\n" + refusalEnd, sent: 1, sentOnce: 1, status: 429},
	{name: "500", response: "HTTP/1.1 500 Oh\r\n" + refusalEnd, sent: 3, sentOnce: 1, status: 500, unknownOnce: true},
	{name: "503 with Retry-After", response: "HTTP/1.1 503 Oh\r\nRetry-After: 20\r\n" + refusalEnd, sent: 3, sentOnce: 1, status: 503, unknownOnce: true},
	{name: "503 with a long Retry-After", response: "HTTP/1.1 503 Oh\r\nRetry-After: 21\r\n" + refusalEnd, sent: 1, sentOnce: 1, status: 503, unknownOnce: true},
	{name: "504", response: "HTTP/1.1 504 Oh\r\n" + refusalEnd, sent: 3, sentOnce: 1, status: 504, unknownOnce: true},
	{name: "400", response: "HTTP/1.1 400 No\r\n" + refusalEnd, sent: 1, sentOnce: 1, status: 400},
	{name: "404", response: "HTTP/1.1 404 No\r\n" + refusalEnd, sent: 1, sentOnce: 1, status: 404},
	{name: "408", response: "HTTP/1.1 408 Late\r\n" + refusalEnd, sent: 3, sentOnce: 1, status: 408, unknownOnce: true},
	{name: "425", response: "HTTP/1.1 425 Early\r\n" + refusalEnd, sent: 3, sentOnce: 1, status: 425},
	{name: "a success that breaks off", response: "HTTP/1.1 200 OK\r\n" + head + "99\r\n\r\n{", sent: 3, sentOnce: 1, unknownOnce: true, streams: true},
	{name: "a refusal that breaks off", response: "HTTP/1.1 400 No\r\n" + head + "99\r\n\r\n{", sent: 3, sentOnce: 1, status: 400, unknownOnce: true},
}

// dialer counts attempts and serves them over in-memory connections.
func (f failure) dialer(attempts *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		attempts.Add(1)
		if f.refuse {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		client, server := net.Pipe()
		if f.unwritten {
			return resetConn{client}, nil
		}
		go func() {
			defer server.Close()
			req, err := http.ReadRequest(bufio.NewReader(server))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(server, f.response)
		}()
		return client, nil
	}
}

// resetConn fails every write.
type resetConn struct{ net.Conn }

func (resetConn) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}

func testClient(transport http.RoundTripper) *Client {
	return New(Config{
		BaseURL: &url.URL{Scheme: "http", Host: "api.test", Path: "/api"}, HTTPClient: &http.Client{Transport: transport},
		UserAgent: func() string { return "test" }, Retry: Retry{Max: 2, Wait: 400 * time.Millisecond}, MaxRateLimitWait: 2 * time.Minute,
		Auth: func(context.Context) (Auth, error) { return Auth{Token: "tok", TeamID: "team"}, nil },
	})
}

func values(op *Op) []string {
	return []string{"one", "two"}[:strings.Count(op.Path, "{")]
}

// success returns a successful response to a request with the placeholders of values.
func success(op *Op) string {
	body := map[string]any{}
	for _, t := range op.terms {
		at := body
		for i, key := range t.path {
			switch {
			case i < len(t.path)-1 && t.path[i+1] == "[]":
				element := map[string]any{}
				at[key], at = []any{element}, element
			case key == "[]":
			case i < len(t.path)-1:
				if at[key] == nil {
					at[key] = map[string]any{}
				}
				at = at[key].(map[string]any)
			case t.kind == '[':
				at[key] = []any{}
			case t.kind == '{':
				at[key] = map[string]any{}
			default:
				at[key] = cmp.Or(op.placeholder(t.placeholder, values(op)), "x")
			}
		}
	}
	text, _ := json.Marshal(body)
	return string(text)
}

// TestRetryClasses tries every operation of the table against every failure.
func TestRetryClasses(t *testing.T) {
	for _, op := range Table {
		for _, f := range failures {
			t.Run(op.Name+"/"+f.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var attempts atomic.Int64
					transport := &http.Transport{DialContext: f.dialer(&attempts), DisableKeepAlives: true}
					c := testClient(transport)
					req := &Request{Op: op, Path: values(op)}
					if op.Method == http.MethodPost {
						req.Body = struct{}{}
					}
					var err error
					if op.Stream() {
						_, err = c.Stream(t.Context(), req)
						if f.streams {
							f.status = 200 // the content type is not that of a stream
						}
					} else {
						err = c.Do(t.Context(), req, nil)
					}
					want, unknown := f.sent, false
					if op.Class != Safe {
						want, unknown = f.sentOnce, f.unknownOnce
					}
					assert.EqualValues(t, want, attempts.Load(), "requests made")
					fail, ok := errors.AsType[*Failure](err)
					require.True(t, ok, "%v", err)
					assert.Equal(t, f.status, fail.Status)
					assert.Equal(t, unknown, fail.OutcomeUnknown())
					assert.NotContains(t, err.Error(), "tok")
				})
			})
		}
	}
}

// TestDeleteAfterLostResponse: a delete succeeds if its response was lost and the retry finds
// nothing. If the first attempt finds nothing, it fails.
func TestDeleteAfterLostResponse(t *testing.T) {
	notFound := failure{response: "HTTP/1.1 404 No\r\n" + refusalEnd}
	for _, lost := range []failure{{}, {response: "HTTP/1.1 502 Oh\r\n" + head + "2\r\n\r\n{}"}} {
		synctest.Test(t, func(t *testing.T) {
			var attempts atomic.Int64
			transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if attempts.Load() == 0 {
					return lost.dialer(&attempts)(ctx, network, addr)
				}
				return notFound.dialer(&attempts)(ctx, network, addr)
			}}
			require.NoError(t, testClient(transport).Do(t.Context(), &Request{Op: DeleteSnapshot, Path: []string{"a"}}, nil))
			assert.EqualValues(t, 2, attempts.Load())
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		err := testClient(&http.Transport{DisableKeepAlives: true, DialContext: notFound.dialer(&attempts)}).
			Do(t.Context(), &Request{Op: DeleteSnapshot, Path: []string{"a"}}, nil)
		require.Error(t, err)
	})
}

// TestPauses checks the pauses between attempts with the fake clock.
func TestPauses(t *testing.T) {
	response := func(header string) failure {
		return failure{response: "HTTP/1.1 429 Slow Down\r\n" + header + refusalEnd}
	}
	for _, tc := range []struct {
		name     string
		header   func() string
		min, max time.Duration
	}{
		{"usual", func() string { return "" }, 1200 * time.Millisecond, 2400 * time.Millisecond},
		{"seconds", func() string { return "Retry-After: 3\r\n" }, 7200 * time.Millisecond, 8400 * time.Millisecond},
		{"no number", func() string { return "Retry-After: soon\r\n" }, 1200 * time.Millisecond, 2400 * time.Millisecond},
		{"negative", func() string { return "Retry-After: -5\r\n" }, 1200 * time.Millisecond, 2400 * time.Millisecond},
		{"not a number", func() string { return "Retry-After: NaN\r\n" }, 1200 * time.Millisecond, 2400 * time.Millisecond},
		{"date ahead", func() string {
			return "Retry-After: " + time.Now().Add(10*time.Second).UTC().Format(http.TimeFormat) + "\r\n"
		}, 10 * time.Second, 13 * time.Second},
		{"date past", func() string {
			return "Retry-After: " + time.Now().Add(-10*time.Second).UTC().Format(http.TimeFormat) + "\r\n"
		}, 1200 * time.Millisecond, 2400 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var attempts atomic.Int64
				start := time.Now()
				transport := &http.Transport{DisableKeepAlives: true, DialContext: response(tc.header()).dialer(&attempts)}
				require.Error(t, testClient(transport).Do(t.Context(), &Request{Op: GetSandbox, Path: []string{"a"}}, nil))
				assert.EqualValues(t, 3, attempts.Load())
				waited := time.Since(start)
				assert.GreaterOrEqual(t, waited, tc.min)
				assert.LessOrEqual(t, waited, tc.max)
			})
		})
	}
}

// TestCancelWhileWaiting: a context that ends during the pause ends the call
// immediately.
func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		var attempts atomic.Int64
		f := failure{response: "HTTP/1.1 429 Slow Down\r\nRetry-After: 20\r\n" + refusalEnd}
		start := time.Now()
		err := testClient(&http.Transport{DisableKeepAlives: true, DialContext: f.dialer(&attempts)}).
			Do(ctx, &Request{Op: GetSandbox, Path: []string{"a"}}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 7*time.Second, time.Since(start))
		assert.EqualValues(t, 1, attempts.Load())
	})
}

// TestKindNames: each kind of failure has its own outcome in events.
func TestKindNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := range Kind(numberOfKinds) {
		assert.NotEmpty(t, k.String(), "kind %d", int(k))
		assert.False(t, seen[k.String()], k.String())
		seen[k.String()] = true
	}
}
