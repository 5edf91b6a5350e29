package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// closable records Close, which ends a pending Read.
type closable struct {
	io.Reader
	closed atomic.Bool
	ended  chan struct{}
}

func (c *closable) Read(p []byte) (int, error) {
	if c.Reader != nil {
		return c.Reader.Read(p)
	}
	<-c.ended
	return 0, errors.New("closed")
}

func (c *closable) Close() error {
	if !c.closed.Swap(true) {
		close(c.ended)
	}
	return nil
}

type answer func(*http.Request) (*http.Response, error)

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return f(r)
}

func clientFor(status int, body io.ReadCloser) *Client {
	return testClient(answer(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: body, ContentLength: -1,
			Header: http.Header{"Content-Type": {"application/json"}},
		}, nil
	}))
}

// TestBodiesAreClosed: no response leaks a connection, whatever its status.
func TestBodiesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // for the pauses between retries
		for _, status := range []int{200, 404, 410} {
			body := &closable{Reader: strings.NewReader(`{"error":{"code":"x","message":"y"}}`), ended: make(chan struct{})}
			c := clientFor(status, body)
			_ = c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"a"}}, nil)
			assert.True(t, body.closed.Load(), status)
			body = &closable{Reader: strings.NewReader(strings.Repeat("x", 10<<20)), ended: make(chan struct{})}
			if status != 200 {
				_, err := clientFor(status, body).Stream(t.Context(), &Request{Op: CommandLogs, Path: []string{"a", "b"}})
				require.Error(t, err)
				assert.True(t, body.closed.Load(), "an endless page with status %d", status)
			}
		}
	})
}

// TestErrorBodyThatNeverEnds: the time to read the text of an error is limited.
func TestErrorBodyThatNeverEnds(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *Client) error{
		"read": func(t *testing.T, c *Client) error {
			return c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"a"}}, nil)
		},
		"stream": func(t *testing.T, c *Client) error {
			_, err := c.Stream(t.Context(), &Request{Op: CommandLogs, Path: []string{"a", "b"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				require.Error(t, call(t, clientFor(404, &closable{ended: make(chan struct{})})))
				assert.Less(t, time.Since(began), time.Minute, "retries included")
			})
		})
	}
}

// TestBodyClosedTwice: closing a response twice must not return its buffer to the pool twice.
func TestBodyClosedTwice(t *testing.T) {
	own := bytes.NewBufferString("x")
	b := &responseBody{Reader: bytes.NewReader(nil), content: own}
	require.NoError(t, errors.Join(b.Close(), b.Close()))
	n := 0
	for range 4 {
		if buffers.Get().(*bytes.Buffer) == own {
			n++
		}
	}
	assert.LessOrEqual(t, n, 1)
}

// TestPaths: each placeholder becomes one segment of the path, whatever its value.
func TestPaths(t *testing.T) {
	var got string
	c := testClient(answer(func(r *http.Request) (*http.Response, error) {
		got = r.Method + " " + r.URL.EscapedPath()
		return &http.Response{
			StatusCode: 404, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(`{"error":{"code":"not_found","message":"no"}}`)),
		}, nil
	}))
	err := c.Do(t.Context(), &Request{Op: CommandLogs, Path: []string{"a/b-1", "c d?"}}, nil)
	assert.Equal(t, "GET /api/v2/sandboxes/sessions/a%2Fb-1/cmd/c%20d%3F/logs", got)
	f, ok := errors.AsType[*Failure](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, `{"error":{"code":"not_found","message":"no"}}`, string(f.Body), "what the API said, word for word")
}
