package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"

	"github.com/go-vercel/sandbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// throughGateway returns a new handle of a shared sandbox, and the gateway of its client.
func throughGateway(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox, opts sandbox.ClientOptions) (*testkit.Gateway, *sandbox.Sandbox) {
	t.Helper()
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	opts.HTTPClient = &http.Client{Transport: gate}
	again, err := testkit.Client(t, srv, opts).Get(t.Context(), sb.Name(), &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	return gate, again
}

// TestCleanCuts: the connection of a log ends without an error, between two records or
// within one. The client does not assume that the log is complete, whether the command has
// ended or not, and whatever the response to its lookup is.
func TestCleanCuts(t *testing.T) {
	t.Parallel()
	responses := map[string]func() (*http.Response, error){
		"401": func() (*http.Response, error) { return canned.JSON(401, ""), nil },
		"403": func() (*http.Response, error) {
			return canned.Response(403, "text/html", strings.NewReader("<html>")), nil
		},
		"404": func() (*http.Response, error) { return canned.JSON(404, ""), nil },
		"408": func() (*http.Response, error) { return canned.JSON(408, ""), nil },
		"502": func() (*http.Response, error) { return canned.JSON(502, "bad gateway"), nil },
		"broken off": func() (*http.Response, error) {
			return canned.Response(200, "application/json", io.MultiReader(strings.NewReader(`{"command":`), broken{})), nil
		},
		"another page": func() (*http.Response, error) {
			return canned.Response(200, "text/html", strings.NewReader("<html>")), nil
		},
		"as it is": nil,
	}
	srv, shared := testkit.LightStart(t, nil)
	type place struct{ name, tail, where string }
	for i, name := range slices.Sorted(maps.Keys(responses)) {
		respond := responses[name]
		for j, p := range []place{
			{"ended", "", "within"}, {"runs", "; sleep 0.3; echo last", "within"},
			{"ended", "", "between"}, {"runs", "; sleep 0.3; echo last", "between"},
		} {
			// By default, combine each response with only one place of the cut.
			if respond != nil && i%4 != j && !needs.Slow() {
				continue
			}
			tail := p.tail
			t.Run(name+", "+p.name+", "+p.where, func(t *testing.T) {
				t.Parallel()
				gate, sb := throughGateway(t, srv, shared, sandbox.ClientOptions{MaxRetries: -1, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}})
				var cut, odd atomic.Bool
				gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if testkit.IsLook(req) && respond != nil && cut.Load() && odd.CompareAndSwap(false, true) {
						return respond()
					}
					resp, err := next.RoundTrip(req)
					if err == nil && testkit.IsLogs(req) && cut.CompareAndSwap(false, true) {
						resp.ContentLength = -1
						if p.where == "within" {
							resp.Body = testkit.CleanCut(resp.Body, 5000)
						} else {
							resp.Body = testkit.FirstRecord(resp.Body)
						}
					}
					return resp, err
				})
				want := "first\n" + manyLinesText()
				if tail != "" {
					want += "last\n"
				}
				var out strings.Builder
				cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "echo first; sleep 0.1; " + manyLines + tail + "; exit 9"}, nil)
				require.NoError(t, err)
				for line, err := range cmd.Logs(t.Context()) {
					require.NoError(t, err)
					out.WriteString(line.Data)
				}
				assert.Equal(t, want, out.String())
				assert.True(t, cut.Load())
				if respond == nil {
					cut.Store(false)
					text, err := cmd.Stdout(t.Context())
					require.NoError(t, err)
					assert.Equal(t, want, text)
					cut.Store(false)
					cmdOut, err := sb.CommandContext(t.Context(), "sh", "-c", "echo first; sleep 0.1; "+manyLines+tail).Output()
					require.NoError(t, err)
					assert.Equal(t, want, string(cmdOut))
				}
			})
		}
	}
}

// TestOddResponsesCostAnAttempt: if the client gets one odd response when it opens or
// repairs a log, it tries again.
func TestOddResponsesCostAnAttempt(t *testing.T) {
	t.Parallel()
	srv, shared := testkit.LightStart(t, nil)
	for _, status := range []int{200, 403, 408, 425, 502} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			gate, sb := throughGateway(t, srv, shared, sandbox.ClientOptions{MaxRetries: -1, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}})
			var cut, odd atomic.Bool
			gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if testkit.IsLogs(req) && odd.CompareAndSwap(false, true) {
					return canned.Response(status, "text/html", strings.NewReader("<html>gateway</html>")), nil
				}
				resp, err := next.RoundTrip(req)
				if err == nil && testkit.IsRun(req) && cut.CompareAndSwap(false, true) {
					resp.Body, resp.ContentLength = testkit.CleanCut(resp.Body, 2000), -1
				}
				return resp, err
			})
			var out bytes.Buffer
			_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", manyLines}, &sandbox.CommandOptions{Stdout: &out})
			require.NoError(t, err)
			assert.Equal(t, manyLinesText(), out.String())
			cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", manyLines}, nil)
			require.NoError(t, err)
			odd.Store(false)
			text, err := cmd.Stdout(t.Context())
			require.NoError(t, err, "opening the log for the first time")
			assert.Equal(t, manyLinesText(), text)
			assert.True(t, odd.Load())
		})
	}
}

// TestWaitThroughOutage: Wait continues through an outage that is longer than the retries
// of a single request.
func TestWaitThroughOutage(t *testing.T) {
	t.Parallel()
	_, gate, sb, _ := testkit.LightBehind(t, sandbox.ClientOptions{MaxRetries: -1, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}}, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "exit 4"}, nil)
	require.NoError(t, err)
	var refused atomic.Int64
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if refused.Add(1) < 4 {
			return nil, errReset
		}
		return next.RoundTrip(req)
	})
	done, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, done.ExitCode)
	assert.EqualValues(t, 4, refused.Load())
}

// refusingWriter is a writer that always fails.
type refusingWriter struct{}

func (refusingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestFailedWriterNamesTheCommand: if a writer for the output fails, the error names the
// command, and KillOnCancel kills the command.
func TestFailedWriterNamesTheCommand(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
	args, opts := []string{"-c", "echo; sleep 1000"}, &sandbox.CommandOptions{Stdout: refusingWriter{}, KillOnCancel: true}
	for name, run := range map[string]func() error{
		"RunCommand": func() error { _, err := sb.RunCommand(t.Context(), "sh", args, opts); return err },
		"StartCommand": func() error {
			cmd, err := sb.StartCommand(t.Context(), "sh", args, &sandbox.StartOptions{Stdout: opts.Stdout, KillOnCancel: true})
			if err != nil {
				return err
			}
			return cmd.WaitOutput(t.Context())
		},
	} {
		err := run()
		e, ok := errors.AsType[*sandbox.StreamError](err)
		require.True(t, ok, "%s: %v", name, err)
		require.ErrorIs(t, err, io.ErrClosedPipe, name)
		cmd, err := sb.GetCommand(t.Context(), e.CommandID)
		require.NoError(t, err, name)
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		done, err := cmd.Wait(limited)
		cancel()
		require.NoError(t, err, name)
		assert.Equal(t, 137, done.ExitCode, name)
	}
}

// TestCopyingEndsWithItsContext: if the context of a start ends while output is copied,
// WaitOutput and Wait report that the writers have not received all of it.
func TestCopyingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the helper has returned")
	var out testkit.LockedBuffer
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two"}, &sandbox.StartOptions{Stdout: &out})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return out.String() != "" }, testkit.Patience, 10*time.Millisecond)
	cancel(why)
	err = cmd.WaitOutput(t.Context())
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, context.Canceled)
	testkit.Output(t, sb, "touch", "go")
	done, err := cmd.Wait(t.Context())
	require.ErrorIs(t, err, why)
	assert.Zero(t, done.ExitCode)
	assert.Equal(t, "one\n", out.String())
}

// TestChunksDoNotOverlap: appending to a chunk of output does not change the next chunk.
func TestChunksDoNotOverlap(t *testing.T) {
	t.Parallel()
	var log, want strings.Builder
	for i := range 600 { // write each record separately, because the emulator would join them
		fmt.Fprintf(&want, "line %d\n", i)
		fmt.Fprintf(&log, `{"stream":"stdout","data":"line %d\n"}`+"\n", i)
	}
	sb := canned.API(func(req *http.Request) (*http.Response, error) {
		if testkit.IsLogs(req) {
			return canned.Response(200, "application/x-ndjson", strings.NewReader(log.String())), nil
		}
		return canned.JSON(200, canned.Ended), nil
	}).Sandbox(t)
	cmd, err := sb.GetCommand(t.Context(), "c1")
	require.NoError(t, err)
	var out strings.Builder
	for chunk, err := range cmd.LogChunks(t.Context()) {
		require.NoError(t, err)
		out.Write(chunk.Data)
		for _, length := range []int{1, 10, 100, 1000} { // as much as the spare capacity may hold
			_ = append(chunk.Data, strings.Repeat("x", length)...)
		}
	}
	assert.Equal(t, want.String(), out.String())
}

const manyLines = `i=0; while [ $i -lt 600 ]; do echo "line $i"; i=$((i+1)); done`

func manyLinesText() string {
	var b strings.Builder
	for i := range 600 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// broken is a body whose Read fails.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
