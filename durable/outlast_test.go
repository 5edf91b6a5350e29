package durable_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestOutlast: after the opening, no call fails if the API refuses requests for some time.
// Each call takes effect once when the refusals end. Only an opening may fail.
func TestOutlast(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "refused"})
	refused, over := 0, 0
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		var allow func()
		refuse := func(operation sandboxtest.Operation) {
			allow = env.Server.Inject(sandboxtest.Fault{Operation: operation, Status: http.StatusUnauthorized})
		}
		sb.OnRefused = func(ctx workflow.Context, err error, pause time.Duration) error {
			if err == nil {
				over++
				return nil
			}
			assert.ErrorContains(t, err, "401")
			if refused++; refused%3 == 0 {
				allow()
			}
			return workflow.Sleep(ctx, pause)
		}
		run := func(script string) string {
			res, err := sb.Run(ctx, "sh", []string{"-c", script}, nil)
			require.NoError(t, err)
			return res.Tail
		}
		refuse("") // before the command starts
		assert.Equal(t, "one\n", run("echo one | tee -a log"))
		// The command has ended, and the response to its start says so in the middle of the
		// refusals.
		env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: 850, Times: 1})
		refuse(sandboxtest.GetCommand)
		assert.Equal(t, "two\n", run("echo two | tee -a log"))
		refuse("")
		require.NoError(t, sb.Refresh(ctx))
		assert.Equal(t, "one\ntwo\n", run("cat log"), "each command ran once")
		for _, do := range []func() error{
			func() error { _, err := sb.Renew(ctx); return err },
			func() error { _, err := sb.Snapshot(ctx); return err },
			func() error { return sb.Resume(ctx) },
			func() error { return sb.Delete(ctx) },
		} {
			refuse("")
			require.NoError(t, do())
		}
		refuse("")
		defer allow()
		_, err = durable.Open(ctx, &durable.Options{Name: "other"})
		require.ErrorContains(t, err, "401", "the first opening")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	assert.Equal(t, 7*3, refused)
	assert.Equal(t, 7, over)
}

// TestRefusedAfterUnknown: the first response of a start is lost and the second attempt is
// refused. The next attempt looks for the command before it sends another one.
func TestRefusedAfterUnknown(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "unknown"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		var allow func()
		sb.OnRefused = func(_ workflow.Context, err error, _ time.Duration) error {
			if err == nil {
				return nil
			}
			allow()
			assert.True(t, env.Server.Crash(sb.Options.Name), "the machine ends")
			return nil
		}
		env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, DropAfter: true, Times: 1})
		allow = env.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.GetCommand, Status: http.StatusUnauthorized})
		res, err := sb.Run(ctx, "sh", []string{"-c", "echo ran"}, nil)
		require.NoError(t, err)
		assert.Equal(t, durable.Lost, res.Outcome, "the command may have run, so it doesn't run again")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}

// TestNothingSent: a command whose start was only refused has not started. When its machine
// ends in the meantime, it runs in the next one.
func TestNothingSent(t *testing.T) {
	for name, refusals := range map[string][]int{
		"not authorized":            {http.StatusUnauthorized},
		"busy":                      {http.StatusTooManyRequests},
		"busy, then not authorized": {http.StatusTooManyRequests, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := durabletest.New(t, nil)
			refused, begun := 0, false
			network := func(req *http.Request) (*http.Response, error) {
				if !begun || req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/cmd") || refused == len(refusals) {
					return http.DefaultTransport.RoundTrip(req)
				}
				if refused++; refused == 1 {
					assert.True(t, env.Server.Crash("unsent-sandbox"), "the machine ends")
				}
				resp := canned.JSON(refusals[refused-1], `{"error":{"code":"refused","message":"not now"}}`)
				resp.Request = req
				return resp, nil
			}
			var err error
			env.Worker.Client, err = sandbox.NewClient(&sandbox.ClientOptions{
				BaseURL: env.Server.URL, Credentials: auth.Static(env.Server.Credentials()), MaxRateLimitWait: -1, MaxRetries: -1,
				HTTPClient: &http.Client{Transport: canned.RoundTripper(network)},
			})
			require.NoError(t, err)
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "unsent"})
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				sb, err := durable.Open(ctx, &durable.Options{Name: "unsent-sandbox"})
				if err != nil {
					return err
				}
				defer sb.Delete(ctx)
				require.NoError(t, sb.Refresh(ctx)) // save the files of the machine
				begun = true
				res, err := sb.Run(ctx, "echo", []string{"ran"}, nil)
				require.NoError(t, err)
				assert.Equal(t, durable.Exited, res.Outcome)
				assert.Equal(t, "ran\n", res.Tail)
				return nil
			})
			require.NoError(t, env.GetWorkflowError())
			assert.Equal(t, len(refusals), refused)
		})
	}
}

// TestPerhapsSent: a response that is not a refusal by the API does not show whether the
// command has started. When its machine has ended, the command does not run again.
func TestPerhapsSent(t *testing.T) {
	page := func(status int) func(*http.Response) *http.Response {
		return func(*http.Response) *http.Response {
			resp := canned.JSON(status, "<html>Sign in</html>")
			resp.Header.Set("Content-Type", "text/html")
			return resp
		}
	}
	for name, respond := range map[string]func(second *http.Response) *http.Response{
		"a gateway's 401": page(http.StatusUnauthorized),
		"a gateway's 403": page(http.StatusForbidden),
		"a gateway's 429": page(http.StatusTooManyRequests),
		"a gateway's 400": page(http.StatusBadRequest),
		"delivered twice": func(second *http.Response) *http.Response { return second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := durabletest.New(t, nil)
			starts := 0
			network := func(req *http.Request) (*http.Response, error) {
				if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/cmd") {
					return http.DefaultTransport.RoundTrip(req)
				}
				if starts++; starts > 1 {
					return http.DefaultTransport.RoundTrip(req)
				}
				body, err := io.ReadAll(req.Body)
				if err != nil {
					return nil, err
				}
				var resp *http.Response
				for range 2 {
					again := req.Clone(req.Context())
					again.Body = io.NopCloser(bytes.NewReader(body))
					if resp, err = http.DefaultTransport.RoundTrip(again); err != nil {
						return nil, err
					}
					text, err := io.ReadAll(resp.Body)
					if err != nil {
						return nil, err
					}
					resp.Body.Close()
					resp.Body = io.NopCloser(bytes.NewReader(text))
				}
				assert.Equal(t, http.StatusConflict, resp.StatusCode)
				assert.True(t, env.Server.Crash("sent-sandbox"), "the machine ends")
				resp = respond(resp)
				resp.Request = req
				return resp, nil
			}
			var err error
			env.Worker.Client, err = sandbox.NewClient(&sandbox.ClientOptions{
				BaseURL: env.Server.URL, Credentials: auth.Static(env.Server.Credentials()), MaxRateLimitWait: -1, MaxRetries: -1,
				HTTPClient: &http.Client{Transport: canned.RoundTripper(network)},
			})
			require.NoError(t, err)
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "sent"})
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				sb, err := durable.Open(ctx, &durable.Options{Name: "sent-sandbox"})
				if err != nil {
					return err
				}
				defer sb.Delete(ctx)
				res, err := sb.Run(ctx, "echo", []string{"ran"}, nil)
				require.NoError(t, err)
				assert.Equal(t, durable.Lost, res.Outcome, "the command has run")
				return nil
			})
			require.NoError(t, env.GetWorkflowError())
		})
	}
}

// TestSentAfterRefusal: after a refused attempt, the next request may have arrived. When
// its machine has ended, the command does not run again.
func TestSentAfterRefusal(t *testing.T) {
	t.Parallel()
	env := durabletest.New(t, nil)
	starts, begun := 0, false
	network := func(req *http.Request) (*http.Response, error) {
		if !begun || req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/cmd") {
			return http.DefaultTransport.RoundTrip(req)
		}
		switch starts++; starts {
		case 1:
			resp := canned.JSON(http.StatusTooManyRequests, `{"error":{"code":"refused","message":"not now"}}`)
			resp.Request = req
			return resp, nil
		case 2:
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			_, err = io.Copy(io.Discard, resp.Body) // by now, the command has ended
			require.NoError(t, errors.Join(err, resp.Body.Close()))
			assert.True(t, env.Server.Crash("sent-sandbox"), "the machine ends")
			return nil, syscall.ECONNRESET
		}
		return http.DefaultTransport.RoundTrip(req)
	}
	var err error
	env.Worker.Client, err = sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: env.Server.URL, Credentials: auth.Static(env.Server.Credentials()), MaxRateLimitWait: -1, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: canned.RoundTripper(network)},
	})
	require.NoError(t, err)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "sent"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{Name: "sent-sandbox"})
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		require.NoError(t, sb.Refresh(ctx)) // save the files of the machine
		begun = true
		res, err := sb.Run(ctx, "echo", []string{"ran"}, nil)
		require.NoError(t, err)
		assert.Equal(t, durable.Lost, res.Outcome, "the command has run")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	assert.Equal(t, 2, starts)
}
