package promises_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// page is a response with a gateway's own page.
func page(status int) *http.Response {
	return canned.Response(status, "text/html; charset=utf-8", strings.NewReader("<html><body><h1>Please accept our terms</h1></body></html>"))
}

// TestPageAfterAStart: a gateway forwards a start, but responds with a page of its own.
// Whatever its status is, the client does not start the command again.
func TestPageAfterAStart(t *testing.T) {
	t.Parallel()
	_, gate, sb, direct := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
	for name, run := range map[string]func(context.Context) error{
		"RunCommand": func(ctx context.Context) error {
			return errorOf(sb.RunCommand(ctx, "sh", []string{"-c", "echo x >> runs"}, nil))
		},
		"StartCommand": func(ctx context.Context) error {
			return errorOf(sb.StartCommand(ctx, "sh", []string{"-c", "echo x >> runs"}, nil))
		},
		"Cmd": func(ctx context.Context) error { return sb.CommandContext(ctx, "sh", "-c", "echo x >> runs").Run() },
	} {
		for _, status := range []int{http.StatusGone, http.StatusUnprocessableEntity} {
			testkit.Output(t, direct, "sh", "-c", "rm -f runs")
			pages := 0
			gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if !testkit.IsRun(req) || pages > 0 || err != nil {
					return resp, err
				}
				pages++
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				return page(status), nil
			})
			_ = run(t.Context())
			gate.Set(nil)
			assert.Equal(t, 1, pages)
			assert.Eventually(t, func() bool { return testkit.Output(t, direct, "cat", "runs") == "x\n" }, testkit.Patience, 10*time.Millisecond, "%s, %d", name, status)
		}
	}
}

// TestPageForASuccess: a gateway does not forward a request, but responds with a page and
// status 200. The client does not treat this as a success.
func TestPageForASuccess(t *testing.T) {
	t.Parallel()
	_, gate, sb, direct := testkit.LightBehind(t, sandbox.ClientOptions{MaxRetries: -1}, nil)
	local := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(local, "up"), []byte("up"), 0o600))
	long, err := direct.StartCommand(t.Context(), "sleep", []string{"1000"}, nil)
	require.NoError(t, err)
	victim, err := sb.GetCommand(t.Context(), long.ID())
	require.NoError(t, err)
	for name, call := range map[string]func(context.Context) error{
		"WriteFiles": func(ctx context.Context) error {
			return sb.WriteFiles(ctx, []sandbox.File{{Path: "wf", Content: []byte("x")}}, nil)
		},
		"FS.WriteFile": func(ctx context.Context) error { return sb.FS().WriteFile(ctx, "wf", []byte("x"), 0o644) },
		"UploadDir":    func(ctx context.Context) error { return sb.FS().UploadDir(ctx, local, "ud", nil) },
		"CopyFS": func(ctx context.Context) error {
			return sb.FS().CopyFS(ctx, "cf", fstest.MapFS{"f": &fstest.MapFile{Data: []byte("x")}}, nil)
		},
		"Mkdir":   func(ctx context.Context) error { return sb.FS().Mkdir(ctx, "mk", 0o755) },
		"SIGINT":  func(ctx context.Context) error { return victim.Signal(ctx, sandbox.SIGINT) },
		"SIGKILL": func(ctx context.Context) error { return victim.Kill(ctx) },
	} {
		for _, body := range []string{"<html>Please accept our terms</html>", "", "[]"} {
			gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if req.Method == http.MethodGet {
					return next.RoundTrip(req)
				}
				if req.Body != nil {
					_, _ = io.Copy(io.Discard, req.Body)
				}
				return canned.Response(http.StatusOK, "text/html", strings.NewReader(body)), nil
			})
			err := call(t.Context())
			gate.Set(nil)
			require.Error(t, err, "%s, %q", name, body)
		}
	}
}

// TestForkOfADriveIsNamed: ForkDrive fails if the response names another drive. Otherwise
// the caller could delete the other drive with the handle.
func TestForkOfADriveIsNamed(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", "null", `{"drive":{}}`, `{"drive":{"name":"precious","id":"d1"}}`} {
		c := canned.API(func(*http.Request) (*http.Response, error) { return canned.JSON(200, body), nil }).Client(t)
		_, err := c.ForkDrive(t.Context(), "precious", "scratch")
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, "%q", body)
	}
}
