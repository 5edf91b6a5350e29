package main_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// TestPlatformErrors has a row for each known error of the service. A row contains the call
// and the error values that its error must match. The error must not match any other.
func TestPlatformErrors(t *testing.T) {
	get := func(t *testing.T, c *sandbox.Client) error {
		_, err := c.Get(t.Context(), "box", nil)
		return err
	}
	create := func(t *testing.T, c *sandbox.Client) error {
		_, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "box", Image: "img"})
		return err
	}
	drive := func(t *testing.T, c *sandbox.Client) error {
		_, err := c.GetOrCreateDrive(t.Context(), "data", nil)
		return err
	}
	// session makes a call of a Session, which the client does not retry in another session.
	session := func(f func(*testing.T, *sandbox.Session) error) func(*testing.T, *sandbox.Client) error {
		return func(t *testing.T, c *sandbox.Client) error {
			sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
			require.NoError(t, err)
			return f(t, sb.CurrentSession())
		}
	}
	run := session(func(t *testing.T, s *sandbox.Session) error {
		_, err := s.RunCommand(t.Context(), "x", nil, nil)
		return err
	})
	look := session(func(t *testing.T, s *sandbox.Session) error {
		_, err := s.GetCommand(t.Context(), "c1")
		return err
	})
	mkdir := session(func(t *testing.T, s *sandbox.Session) error { return s.FS().Mkdir(t.Context(), "dir", 0o777) })
	read := session(func(t *testing.T, s *sandbox.Session) error {
		_, err := s.FS().ReadFile(t.Context(), "file")
		return err
	})
	const (
		runs    = "POST /v2/sandboxes/sessions/s1/cmd"
		dirs    = "POST /v2/sandboxes/sessions/s1/fs/mkdir"
		file    = "POST /v2/sandboxes/sessions/s1/fs/read"
		creates = "POST /v3/sandboxes"
	)
	refusal := func(status, code, message string) string {
		return status + ` {"error":{"code":"` + code + `","message":"` + message + `"}}`
	}
	values := []error{
		sandbox.ErrNotFound, sandbox.ErrStopped, sandbox.ErrSnapshotNotFound, sandbox.ErrRateLimited, sandbox.ErrQuotaExceeded, sandbox.ErrImageNotReady,
		sandbox.ErrUnauthorized, sandbox.ErrOutcomeUnknown, sandbox.ErrInvalid, os.ErrProcessDone, exec.ErrNotFound, fs.ErrNotExist, fs.ErrExist,
	}
	for _, row := range []struct {
		request, response string
		call              func(*testing.T, *sandbox.Client) error
		matches           []error
	}{
		{creates, refusal("400", "bad_request", "Invalid request: should NOT have additional property `x`."), create, nil},
		{creates, refusal("400", "bad_request", "A sandbox with the name 'box' already exists for this project."), create, nil},
		{creates, refusal("400", "bad_request", "Invalid image reference: img"), create, nil},
		{creates, refusal("404", "not_found", "Image not found."), create, []error{sandbox.ErrNotFound}},
		{creates, refusal("404", "not_found", "Snapshot not found."), create, []error{sandbox.ErrNotFound}},
		{creates, refusal("409", "image_not_ready", "The image is being prepared."), create, []error{sandbox.ErrImageNotReady}},
		{creates, refusal("402", "payment_required", "Sandboxes are paused."), create, []error{sandbox.ErrQuotaExceeded}},
		{creates, refusal("422", "snapshot_region_mismatch", "The snapshot is in another region."), create, nil},
		{creates, refusal("429", "rate_limited", "Too many concurrent sandboxes."), create, []error{sandbox.ErrRateLimited}},
		{creates, refusal("500", "internal_server_error", "Internal error."), create, []error{sandbox.ErrOutcomeUnknown}},
		{creates, refusal("415", "unsupported_media_type", "Unsupported media type."), create, nil},
		{getBox, refusal("401", "unauthorized", "Not authorized."), get, []error{sandbox.ErrUnauthorized}},
		{getBox, refusal("403", "forbidden", "Not authorized"), get, []error{sandbox.ErrUnauthorized}},
		{getBox, refusal("404", "not_found", "Named sandbox 'box' not found for this project."), get, []error{sandbox.ErrNotFound}},
		{getBox, refusal("404", "not_found", "Named sandbox 'box' has no latest sandbox."), get, []error{sandbox.ErrNotFound}},
		{getBox, refusal("400", "bad_request", "Cannot resume sandbox: no snapshot available."), get, []error{sandbox.ErrSnapshotNotFound}},
		{getBox, refusal("400", "snapshot_not_found", "Cannot resume sandbox: no snapshot available."), get, []error{sandbox.ErrSnapshotNotFound}},
		{getBox, refusal("410", "snapshot_not_found", "Cannot resume sandbox: no snapshot available."), get, []error{sandbox.ErrSnapshotNotFound}},
		{"POST /v2/sandboxes/drives/data", refusal("403", "forbidden", "Drives are not enabled for this project."), drive, []error{sandbox.ErrUnauthorized}},
		{"POST /v2/sandboxes/drives/data", refusal("409", "conflict", "Another region."), drive, nil},
		{runs, refusal("400", "executable_not_found", "[invalid_argument] executable file not found in $PATH: x"), run, []error{exec.ErrNotFound}},
		{runs, refusal("410", "sandbox_stopped", "Sandbox has stopped execution and is no longer available"), run, []error{sandbox.ErrStopped}},
		{runs, refusal("422", "sandbox_stopping", "Sandbox is stopping."), run, []error{sandbox.ErrStopped}},
		{runs, refusal("422", "sandbox_snapshotting", "Sandbox is creating a snapshot."), run, []error{sandbox.ErrStopped}},
		{runs, refusal("404", "not_found", "Vercel Sandbox not found"), run, []error{sandbox.ErrNotFound}},
		{getCmd, refusal("410", "sandbox_stopped", "Sandbox has stopped execution and is no longer available"), look, []error{sandbox.ErrStopped}},
		{getCmd, refusal("404", "not_found", "Command not found."), look, []error{sandbox.ErrNotFound}},
		{dirs, refusal("400", "file_error", "error creating directory: /vercel/dir: File exists"), mkdir, []error{fs.ErrExist}},
		{dirs, refusal("400", "file_error", "error creating directory: No such file or directory"), mkdir, []error{fs.ErrNotExist}},
		{file, refusal("404", "not_found", "File not found."), read, []error{fs.ErrNotExist}},
		{file, refusal("404", "not_found", "Vercel Sandbox not found"), read, []error{sandbox.ErrNotFound}},
	} {
		t.Run(row.response, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{t: t, responses: [][2]string{{row.request, row.response}, {getBox, boxRuns}}}
				err := row.call(t, s.client())
				require.Error(t, err)
				var matched []error
				for _, value := range values {
					if errors.Is(err, value) {
						matched = append(matched, value)
					}
				}
				assert.Equal(t, row.matches, matched, "%v", err)
			})
		})
	}
}
