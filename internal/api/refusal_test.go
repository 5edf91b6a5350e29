package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
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

// TestTable: each operation describes its success, and every GET is safe.
func TestTable(t *testing.T) {
	t.Parallel()
	for _, op := range Table {
		assert.NotEmpty(t, op.Success, op.Name)
		if op.Method == http.MethodGet {
			assert.Equal(t, Safe, op.Class, op.Name)
		}
		for _, term := range op.terms {
			if term.placeholder != "" && term.placeholder != "new" {
				assert.Contains(t, op.Path, "{"+term.placeholder+"}", op.Name)
			}
		}
	}
}

// TestRefused: Refused is true only if the response says that the session isn't running and no
// earlier attempt may have taken effect.
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
		{"gone without a body", 410, ``, false},
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
	assert.False(t, (&Failure{Op: StartCommand, Kind: Stopped, Uncertain: true}).Refused(), "an earlier attempt may have acted")
	assert.True(t, (&Failure{Op: WriteFiles, Kind: Stopped, Uncertain: true}).Refused(), "a safe operation may be repeated in the next session")
}

// TestKinds: each row of the table has an effect, and each kind has a row.
func TestKinds(t *testing.T) {
	t.Parallel()
	const gone = "Cannot resume sandbox: no snapshot available."
	rows := []struct {
		op         *Op
		status     int
		code, text string
		want       Kind
	}{
		{GetSandbox, 400, "snapshot_not_found", gone, FilesGone},
		{GetSandbox, 400, "bad_request", gone, FilesGone},
		{GetSandbox, 410, "snapshot_not_found", gone, FilesGone},
		{GetSandbox, 404, "snapshot_not_found", "", FilesGone},
		{GetSnapshot, 404, "snapshot_not_found", "", SnapshotGone},
		{GetSandbox, 400, "bad_request", "Invalid request: nothing of the kind.", Refused},
		{GetSandbox, 500, "snapshot_not_found", gone, Busy},
		{RunCommand, 410, "sandbox_stopped", "", Stopped},
		{RunCommand, 410, "any", "", Stopped},
		{RunCommand, 410, "", "Gone", Foreign},
		{RunCommand, 422, "sandbox_stopping", "", Stopping},
		{RunCommand, 422, "sandbox_snapshotting", "", Stopping},
		{RunCommand, 422, "snapshot_region_mismatch", "", Refused},
		{SignalCommand, 404, "command_not_found_or_exited", "", CommandEnded},
		{WriteStdin, 400, "command_finished", "", CommandEnded},
		{WriteStdin, 400, "command_stdin_unavailable", "", InputClosed},
		{GetCommand, 404, "not_found", "", NotFound},
		{CreateSandbox, 409, "image_not_ready", "", ImageNotReady},
		{GetSandbox, 429, "too_many", "", RateLimited},
		{GetSandbox, 403, "rate_limited", "", RateLimited},
		{GetSandbox, 429, "", "", RateLimited},
		{CreateSandbox, 402, "payment_required", "", QuotaExceeded},
		{GetDrive, 403, "forbidden", "", NoDrives},
		{CreateSandbox, 403, "forbidden", "Drives are in beta", NoDrives},
		{CreateSandbox, 403, "forbidden", "", Unauthorized},
		{GetSandbox, 401, "unauthorized", "", Unauthorized},
		{GetSandbox, 401, "", "", Foreign},
		{CreateSandbox, 409, "conflict", "the drive is mounted", Conflict},
		{CreateSandbox, 409, "conflict", "", NameTaken},
		{ForkSandbox, 400, "bad_request", "The name is already in use", NameTaken},
		{StartCommand, 409, "conflict", "", Conflict},
		{StartCommand, 400, "bad_request", "Unrecognized key: cmdId", IDsRefused},
		{StartCommand, 400, "bad_request", "Unrecognized key: attachStdin", InputRefused},
		{RunCommand, 400, "executable_not_found", "", NoProgram},
		{RunCommand, 400, "bad_request", "executable file not found in $PATH: x", NoProgram},
		{RunCommand, 400, "bad_request", "chdir: no such file or directory", NoDirectory},
		{ExtendTimeout, 400, "sandbox_timeout_invalid", "", TimeLimit},
		{CreateSandbox, 400, "sandbox_timeout_invalid", "", Refused},
		{MakeDir, 400, "file_error", "x: File exists", FileError},
		{StartCommand, 400, "bad_request", "fork/exec /x: permission denied", FileError},
		{StartCommand, 400, "bad_request", "chdir /x: not a directory", FileError},
		{MakeDir, 400, "bad_request", "no such file or directory", Refused},
		{GetSandbox, 504, "", "", TimedOut},
		{GetSandbox, 408, "sandbox_stopped", "", TimedOut},
		{GetSandbox, 502, "", "", Broken},
		{GetSandbox, 200, "x", "", Broken},
		{GetSandbox, 304, "", "", Foreign},
		{GetSandbox, 425, "x", "", Busy},
		{GetSandbox, 404, "", "", Foreign},
	}
	seen := map[Kind]bool{}
	for _, row := range rows {
		seen[row.want] = true
		assert.Equal(t, row.want, KindOf(row.op.Name, row.status, row.code, row.text), "%s %d %s %s", row.op.Name, row.status, row.code, row.text)
	}
	seen[TooMuch] = true // a success, see TestTooMuch
	assert.Len(t, seen, numberOfKinds-1)
}

// TestCodesOfOthers: a refusal whose code does not have the form of the API's codes comes from
// a gateway, unless it reports a rate limit.
func TestCodesOfOthers(t *testing.T) {
	t.Parallel()
	for code, own := range map[string]bool{
		"not_found": true, "x": true, "e404": true, "file_not_found": true,
		"404": false, "NOT_FOUND": false, "ResourceNotFound": false, "DEPLOYMENT_NOT_FOUND": false, "not found": false, "NoSuchKey": false, "not-found": false,
	} {
		for _, limited := range []bool{false, true} {
			c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
				resp := respond(404, fmt.Sprintf(`{"error":{"code":%q,"message":"The page could not be found"}}`, code))
				if limited {
					resp.Header.Set("X-Ratelimit-Limit", "1000")
					resp.Header.Set("X-Ratelimit-Remaining", "999")
				}
				return resp, nil
			}))
			c.retrier.Backoff = Retry{Wait: time.Microsecond}.backoff
			f, ok := errors.AsType[*Failure](c.Do(t.Context(), &Request{Op: GetSandbox, Path: []string{"s"}}, nil))
			require.True(t, ok)
			assert.Equal(t, own || limited, f.Kind == NotFound, "%s, with a limit %v: %v", code, limited, f.Kind)
			assert.Equal(t, code, f.Code)
			f, ok = errors.AsType[*Failure](c.Do(t.Context(), &Request{Op: StartCommand, Path: []string{"s"}}, nil))
			require.True(t, ok)
			assert.Equal(t, !own && !limited, f.OutcomeUnknown(), code)
		}
	}
}

// TestTruncatedBody: if the response breaks off, a safe operation is retried and succeeds; the
// outcome of others is unknown.
func TestTruncatedBody(t *testing.T) {
	t.Parallel()
	for _, op := range []*Op{GetCommand, StartCommand, SignalCommand} {
		var sent atomic.Int64
		c := testClient(roundTripper(func(req *http.Request) (*http.Response, error) {
			// This transport reports connections but not writes.
			if trace := httptrace.ContextClientTrace(req.Context()); trace != nil {
				trace.GetConn("api.test:443")
			}
			if sent.Add(1) == 1 {
				resp := respond(200, "")
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"command":{"id":"two"`), &failing{}))
				return resp, nil
			}
			return respond(200, `{"command":{"id":"two"}}`), nil
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

// TestUntrustedCertificate: an untrusted certificate is not retried, and the outcome is known:
// nothing was sent.
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
	transport.TLSHandshakeTimeout = 0 // a timeout would be retried
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

// TestNoCredentials: an error of the provider is distinguishable from a response of the API.
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
