package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anything is a successful response for several operations on "a".
const anything = `{"sandbox":{"name":"a"},"session":{"id":"s"},"command":{"id":"c"}}`

// TestRetryClassesHTTP2: over HTTP/2 too, only safe operations are retried if they may have
// taken effect, and requests share a connection.
func TestRetryClassesHTTP2(t *testing.T) {
	var acted, connections atomic.Int64
	var healthy atomic.Bool
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		acted.Add(1)
		if healthy.Load() {
			_, _ = io.WriteString(w, anything)
			return
		}
		panic(http.ErrAbortHandler) // resets the stream
	}))
	srv.EnableHTTP2 = true
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	srv.StartTLS()
	defer srv.Close()
	base, err := url.Parse(srv.URL)
	require.NoError(t, err)
	transport := DefaultTransport()
	transport.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
	defer transport.CloseIdleConnections()
	c := testClient(transport)
	c.cfg.BaseURL, c.base = base, ""
	c.retrier.RetryMax, c.retrier.Backoff = 2, Retry{Wait: 1}.backoff

	for op, want := range map[*Op]int64{GetSandbox: 3, StopSession: 3, StartCommand: 1, CreateSnapshot: 1} {
		acted.Store(0)
		err := c.Do(t.Context(), &Request{Op: op, Path: values(op)}, nil)
		f, ok := errors.AsType[*Failure](err)
		require.True(t, ok, "%v", err)
		assert.EqualValues(t, want, acted.Load(), op.Name)
		assert.Equal(t, op.Class != Safe, f.OutcomeUnknown(), op.Name)
	}
	// Concurrent requests share a connection, and each takes effect once.
	healthy.Store(true)
	require.NoError(t, c.Do(t.Context(), &Request{Op: StartCommand, Path: values(StartCommand), Body: struct{}{}}, nil))
	acted.Store(0)
	connections.Store(0)
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			_ = c.Do(t.Context(), &Request{Op: StartCommand, Path: values(StartCommand), Body: struct{}{}}, nil)
		})
	}
	group.Wait()
	assert.EqualValues(t, 100, acted.Load())
	assert.Zero(t, connections.Load(), "more connections")
}

// TestRedirects: neither credentials nor a body are sent to another host.
func TestRedirects(t *testing.T) {
	var strangers []*http.Request
	to := "https://other.test/x"
	c := testClient(roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != "api.test" || r.URL.Path == "/moved" {
			strangers = append(strangers, r)
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(anything))}, nil
		}
		return &http.Response{StatusCode: 307, Header: http.Header{"Location": {to}}, Body: http.NoBody}, nil
	}))
	require.NoError(t, c.Do(t.Context(), &Request{Op: GetSandbox, Path: []string{"a"}}, nil))
	require.Len(t, strangers, 1)
	assert.Empty(t, strangers[0].Header.Get("Authorization"))

	to, strangers = "https://api.test/moved", nil // another scheme is another server
	require.NoError(t, c.Do(t.Context(), &Request{Op: GetSandbox, Path: []string{"a"}}, nil))
	require.Len(t, strangers, 1)
	assert.Empty(t, strangers[0].Header.Get("Authorization"))

	strangers = nil
	for _, op := range []*Op{StartCommand, UpdateSandbox} {
		err := c.Do(t.Context(), &Request{Op: op, Path: values(op), Body: struct{}{}}, nil)
		require.ErrorIs(t, err, errRedirect)
	}
	assert.Empty(t, strangers, "a body went to another host")

	to = "http://api.test/moved"
	require.NoError(t, c.Do(t.Context(), &Request{Op: StartCommand, Path: []string{"s"}, Body: struct{}{}}, nil))
	require.Len(t, strangers, 1)
	assert.Equal(t, "Bearer tok", strangers[0].Header.Get("Authorization"), "a redirect within the host keeps the credentials")
}

// TestEndlessRedirects: at most ten redirects are followed.
func TestEndlessRedirects(t *testing.T) {
	sent := 0
	c := testClient(roundTrip(func(*http.Request) (*http.Response, error) {
		if sent++; sent > 100 {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(anything))}, nil
		}
		return &http.Response{StatusCode: 307, Header: http.Header{"Location": {"http://api.test/again"}}, Body: http.NoBody}, nil
	}))
	err := c.Do(t.Context(), &Request{Op: StartCommand, Path: []string{"s"}, Body: struct{}{}}, nil)
	assert.ErrorContains(t, err, "10 redirects")
	assert.Equal(t, 10, sent)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
