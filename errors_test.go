package sandbox_test

import (
	"errors"
	"io/fs"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
)

// TestErrRefused distinguishes what the API refuses for good from what it refuses
// for now, or because of something that exists.
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
