package canned_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// TestErrRefused: ErrRefused matches permanent refusals, but not temporary ones or conflicts.
func TestErrRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		operation     string
		status        int
		code, message string
		refused       bool
		also          error
	}{
		{"run command", 400, "bad_request", "no", true, nil},
		{"run command", 413, "too_large", "no", true, nil},
		{"run command", 400, "executable_not_found", "no", true, exec.ErrNotFound},
		{"run command", 400, "bad_request", "no such directory", true, fs.ErrNotExist},
		{"run command", 400, "bad_request", "cannot change to directory /x: not a directory", true, syscall.ENOTDIR},
		{"run command", 400, "bad_request", "unknown parameter cmdId", true, sandbox.ErrCommandIDs},
		{"run command", 400, "bad_request", "unknown parameter attachStdin", true, errors.ErrUnsupported},
		{"read file", 400, "file_error", "x: permission denied", true, fs.ErrPermission},
		{"create sandbox", 400, "bad_request", "the name is taken", false, sandbox.ErrConflict},
		{"create sandbox", 409, "conflict", "no", false, sandbox.ErrConflict},
		{"get sandbox", 404, "not_found", "no", false, sandbox.ErrNotFound},
		{"get sandbox", 400, "bad_request", "cannot resume sandbox", false, sandbox.ErrSnapshotNotFound},
		{"run command", 410, "sandbox_stopped", "no", false, sandbox.ErrStopped},
		{"run command", 401, "forbidden", "no", false, sandbox.ErrUnauthorized},
		{"run command", 402, "payment_required", "no", false, sandbox.ErrQuotaExceeded},
		{"run command", 429, "rate_limited", "no", false, sandbox.ErrRateLimited},
		{"run command", 408, "timeout", "no", false, nil},
		{"run command", 500, "internal", "no", false, nil},
	} {
		err := &sandbox.APIError{Operation: tc.operation, Status: tc.status, Code: tc.code, Message: tc.message}
		assert.Equal(t, tc.refused, errors.Is(err, sandbox.ErrRefused), "%v", err)
		if tc.also != nil {
			assert.ErrorIs(t, err, tc.also)
		}
	}
	closed := &sandbox.StreamError{Code: "sandbox_stream_closed", CommandID: "cmd_1"}
	assert.ErrorIs(t, closed, sandbox.ErrStopped)
	assert.NotErrorIs(t, &sandbox.StreamError{Code: "stream_lost", CommandID: "cmd_1"}, sandbox.ErrStopped)
}

// TestErrorClasses: each error has one class, which is environment, plan, rate, caller or
// service.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	classes := map[string][]error{
		"environment": {sandbox.ErrUnauthorized, auth.ErrNoCredentials},
		"plan":        {sandbox.ErrQuotaExceeded},
		"rate":        {sandbox.ErrRateLimited},
		"caller":      {sandbox.ErrInvalid, sandbox.ErrRefused, sandbox.ErrConflict, sandbox.ErrNotFound},
		"service":     {sandbox.ErrUnavailable},
	}
	is := func(want string, err error) {
		t.Helper()
		require.Error(t, err)
		for class, members := range classes {
			matches := slices.ContainsFunc(members, func(member error) bool { return errors.Is(err, member) })
			assert.Equal(t, class == want, matches, "%s: %v", class, err)
		}
	}
	for _, tc := range []struct {
		class  string
		status int
		code   string
	}{
		{"environment", 401, "unauthorized"},
		{"environment", 403, "forbidden"},
		{"plan", 402, "payment_required"},
		{"rate", 429, "rate_limited"},
		{"caller", 400, "bad_request"},
		{"caller", 404, "not_found"},
		{"caller", 409, "conflict"},
		{"service", 408, "timeout"},
		{"service", 425, "too_early"},
		{"service", 500, "internal_server_error"},
		{"service", 503, "unavailable"},
		{"service", 504, "timeout"},
	} {
		is(tc.class, &sandbox.APIError{Operation: "get sandbox", Status: tc.status, Code: tc.code})
	}

	fails := func(ctx context.Context, base string, creds auth.Provider) error {
		client, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: base, Credentials: creds, MaxRetries: -1})
		require.NoError(t, err)
		defer client.CloseIdleConnections()
		_, err = client.Get(ctx, "x", nil)
		return err
	}
	some := auth.Static(auth.Credentials{Token: "t", TeamID: "x", ProjectID: "p"})
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<html>not here</html>")
	}))
	is("service", fails(t.Context(), gateway.URL, some))
	gateway.Close()
	is("service", fails(t.Context(), gateway.URL, some))
	ended, cancel := context.WithCancel(t.Context())
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer hangs.Close()
	is("none", fails(ended, hangs.URL, some))
	is("environment", fails(t.Context(), gateway.URL, auth.Token("", nil)))
	client, err := sandbox.NewClient(&sandbox.ClientOptions{Credentials: some, BaseURL: gateway.URL})
	require.NoError(t, err)
	_, err = client.Get(t.Context(), "", nil)
	is("caller", err)
}
