package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func respond(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// TestTableArgued: each operation says what a second delivery does and how a
// lost response is resolved, and only those that say so are resolved by a
// lookup.
func TestTableArgued(t *testing.T) {
	t.Parallel()
	for _, op := range Table {
		assert.NotEmpty(t, op.Again, op.Name)
		assert.NotEmpty(t, op.Lost, op.Name)
		if op.Class != Safe {
			assert.NotEqual(t, askAgain, op.Lost, op.Name)
		}
		if op.Method == http.MethodGet {
			assert.Equal(t, Safe, op.Class, op.Name)
		}
	}
}

// TestRefused: a response counts as a refusal before the operation took effect
// only if it says that the session isn't running, and no earlier attempt may
// have taken effect.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		status  int
		body    string
		refused bool
	}{
		{"stopped", 410, `{"error":{"code":"sandbox_stopped","message":"Sandbox has stopped"}}`, true},
		{"a page", 410, `<html>Gone</html>`, false},
		{"an object that is not the API's", 410, `{"message":"Gone"}`, false},
		{"gone without a word", 410, ``, false},
		{"stopping", 422, `{"error":{"code":"sandbox_stopping","message":"x"}}`, true},
		{"snapshotting", 422, `{"error":{"code":"sandbox_snapshotting","message":"x"}}`, true},
		{"another 422", 422, `{"error":{"code":"snapshot_region_mismatch","message":"x"}}`, false},
		{"the files are gone", 410, `{"error":{"code":"snapshot_not_found","message":"Cannot resume sandbox: no snapshot available."}}`, false},
		{"not found", 404, `{"error":{"code":"not_found","message":"x"}}`, false},
		{"a proxy's time-out", 408, `{"error":{"code":"x","message":"x"}}`, false},
		{"a proxy's time-out about a stopped session", 408, `{"error":{"code":"sandbox_stopped","message":"x"}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := testClient(roundTripper(func(*http.Request) (*http.Response, error) { return respond(tc.status, tc.body), nil }))
			c.retrier.Backoff = Retry{Wait: time.Microsecond}.backoff
			f, ok := errors.AsType[*Failure](c.Do(t.Context(), &Request{Op: StartCommand, Path: []string{"s"}}, nil))
			require.True(t, ok)
			assert.Equal(t, tc.refused, f.Refused())
		})
	}
	assert.False(t, (&Failure{Op: StartCommand, Status: 410, Code: "sandbox_stopped", Uncertain: true}).Refused(), "an earlier attempt may have acted")
	assert.True(t, (&Failure{Op: WriteFiles, Status: 410, Code: "sandbox_stopped", Uncertain: true}).Refused(), "what may be done twice may be done in the next session")
}

// TestSnapshotGone: the ways in which the service has reported that files are
// gone.
func TestSnapshotGone(t *testing.T) {
	t.Parallel()
	const text = "Cannot resume sandbox: no snapshot available."
	for _, tc := range []struct {
		status     int
		code, text string
		gone       bool
	}{
		{400, "snapshot_not_found", text, true},
		{400, "bad_request", text, true},
		{410, "snapshot_not_found", text, true},
		{404, "snapshot_not_found", "", true},
		{400, "bad_request", "Invalid request: nothing of the kind.", false},
		{410, "sandbox_stopped", "", false},
		{500, "snapshot_not_found", text, false},
	} {
		f := &Failure{Op: GetSandbox, Status: tc.status, Code: tc.code, Message: tc.text}
		assert.Equal(t, tc.gone, f.SnapshotGone(), "%+v", tc)
		assert.False(t, tc.gone && f.Refused(), "%+v", tc)
	}
}

// TestBodyThatBreaks: a safe operation is retried when the response breaks off,
// and succeeds; the outcome of any other is unknown, whether or not it took
// effect.
func TestBodyThatBreaks(t *testing.T) {
	t.Parallel()
	for _, op := range []*Op{GetCommand, StartCommand, SignalCommand} {
		var sent atomic.Int64
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
			if sent.Add(1) == 1 {
				resp := respond(200, "")
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"command":{"id":"c1"`), &failing{}))
				return resp, nil
			}
			return respond(200, `{"command":{"id":"c1"}}`), nil
		}))
		c.retrier.Backoff = Retry{Wait: time.Microsecond}.backoff
		req := &Request{Op: op, Path: values(op)}
		var out map[string]any
		err := c.Do(t.Context(), req, &out)
		if op.Class == Safe {
			require.NoError(t, err)
			assert.Contains(t, out, "command")
			assert.True(t, req.Uncertain)
			continue
		}
		f, ok := errors.AsType[*Failure](err)
		require.True(t, ok)
		assert.True(t, f.OutcomeUnknown())
		assert.Zero(t, f.Status, "a response that breaks off does not count")
		assert.EqualValues(t, 1, sent.Load())
	}
}

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestUntrustedCertificate: a server with an untrusted certificate is tried
// once, and the error says that nothing was sent.
func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		connections.Add(1)
		return nil, nil
	}}
	srv.StartTLS()
	defer srv.Close()
	transport := DefaultTransport()
	defer transport.CloseIdleConnections()
	base, err := url.Parse(srv.URL)
	require.NoError(t, err)
	c := testClient(transport)
	c.cfg.BaseURL, c.base = base, ""
	c.retrier.Backoff = Retry{Wait: time.Microsecond}.backoff
	f, ok := errors.AsType[*Failure](c.Do(t.Context(), &Request{Op: StartCommand, Path: []string{"s"}}, nil))
	require.True(t, ok)
	require.ErrorContains(t, f, "certificate")
	assert.False(t, f.OutcomeUnknown())
	assert.EqualValues(t, 1, connections.Load())
}

// TestContextCause: the error of an operation whose context ended with a cause
// matches both.
func TestContextCause(t *testing.T) {
	t.Parallel()
	why := errors.New("the deploy was superseded")
	for _, name := range []string{"before", "while it waits"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := testClient(roundTripper(func(r *http.Request) (*http.Response, error) {
			cancel(why)
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		if name == "before" {
			cancel(why)
		}
		err := c.Do(ctx, &Request{Op: GetSandbox, Path: []string{"a"}}, nil)
		require.ErrorIs(t, err, why, name)
		require.ErrorIs(t, err, context.Canceled, name)
		cancel(nil)
	}
}

// TestNoCredentials: an error of the provider can be told from a response of
// the API.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	inner := &Failure{Op: GetSandbox, Status: 410}
	c := testClient(roundTripper(func(*http.Request) (*http.Response, error) { return respond(200, "{}"), nil }))
	c.cfg.Auth = func(context.Context) (Auth, error) { return Auth{}, inner }
	err := c.Do(t.Context(), &Request{Op: GetSandbox, Path: []string{"a"}}, nil)
	_, ok := err.(*AuthError)
	assert.True(t, ok)
	require.ErrorIs(t, err, inner)
}
