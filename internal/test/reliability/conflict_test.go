package reliability_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// A proxy delivers a start twice and passes on the second response, a conflict,
// while the first is still being carried out: the command is waited for, and if
// it does not appear the outcome is unknown, since the caller does not know the
// ID and would run it again.
func TestConflictWhileStarting(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 1500 * time.Millisecond, -1} {
		for _, id := range []string{"", "mine"} {
			t.Run(after.String()+" "+id, func(t *testing.T) {
				t.Parallel()
				_, gate, sb, direct := testkit.Behind(t, sandbox.ClientOptions{}, nil)
				started := make(chan struct{})
				gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if !testkit.IsRun(req) {
						return next.RoundTrip(req)
					}
					body, err := io.ReadAll(req.Body)
					if err != nil {
						return nil, err
					}
					first := req.Clone(context.WithoutCancel(req.Context()))
					first.Body = io.NopCloser(strings.NewReader(string(body)))
					go func() {
						defer close(started)
						if after < 0 {
							return
						}
						testkit.Linger(after)
						if resp, err := next.RoundTrip(first); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					}()
					return &http.Response{
						StatusCode: 409, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
						Header: http.Header{"Content-Type": {"application/json"}},
						Body:   io.NopCloser(strings.NewReader(`{"error":{"code":"conflict","message":"A command with this ID exists."}}`)),
					}, nil
				})
				done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo once"}, &sandbox.CommandOptions{ID: id})
				<-started
				switch {
				case id != "":
					// The caller knows the ID, and may have used it before.
					e, ok := errors.AsType[*sandbox.APIError](err)
					require.True(t, ok, "%v", err)
					assert.Equal(t, http.StatusConflict, e.Status)
					assert.NotErrorIs(t, err, sandbox.ErrOutcomeUnknown)
				case after >= 0:
					require.NoError(t, err)
					out, err := done.Stdout(t.Context())
					require.NoError(t, err)
					assert.Equal(t, "once\n", out)
				default:
					assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
				}
				list, err := direct.ListCommands(t.Context())
				require.NoError(t, err)
				assert.Len(t, list, map[bool]int{true: 1, false: 0}[after >= 0])
			})
		}
	}
}
