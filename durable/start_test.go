package durable_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// delayed is a network that holds back the first start of a command and reports a broken
// connection. It delivers this request together with the next one, before or after that.
type delayed struct {
	before bool
	// counts reports whether a request is a start.
	counts func(*http.Request) bool

	mu     sync.Mutex
	starts int
	kept   *http.Request
	late   int // the status of the response to the late request
}

func (d *delayed) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/cmd") || !d.counts(req) {
		return http.DefaultTransport.RoundTrip(req)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.starts++; d.starts {
	case 1:
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body.Close()
		d.kept = req.Clone(req.Context())
		d.kept.Body = io.NopCloser(bytes.NewReader(body))
		return nil, syscall.ECONNRESET
	case 2:
		if d.before {
			if err := d.deliver(req); err != nil {
				return nil, err
			}
			return http.DefaultTransport.RoundTrip(req)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err == nil {
			err = d.deliver(req)
		}
		return resp, err
	}
	return http.DefaultTransport.RoundTrip(req)
}

// deliver sends the request that was held back, with the context of another one.
func (d *delayed) deliver(other *http.Request) error {
	resp, err := http.DefaultTransport.RoundTrip(d.kept.WithContext(other.Context()))
	if err != nil {
		return err
	}
	d.late = resp.StatusCode
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return err
}

// TestLateStart: the request of a failed attempt arrives after the next attempt has looked
// for the command, before or after that attempt's own request. One of the two runs, and the
// result is that of the one that ran, whatever the service does with requested IDs.
func TestLateStart(t *testing.T) {
	for name, ids := range map[string]sandboxtest.CommandIDs{
		"IDs honored": sandboxtest.CommandIDsHonored, "IDs ignored": sandboxtest.CommandIDsIgnored, "IDs refused": sandboxtest.CommandIDsRefused,
	} {
		for order, before := range map[string]bool{"the late one wins": true, "the late one loses": false} {
			t.Run(name+", "+order, func(t *testing.T) {
				t.Parallel()
				env := durabletest.New(t, &durabletest.Options{Emulator: sandboxtest.Options{CommandIDs: ids}})
				network := &delayed{before: before, counts: func(r *http.Request) bool {
					return ids != sandboxtest.CommandIDsRefused || !r.URL.Query().Has("cmdId")
				}}
				env.Worker.Client = clientThrough(t, env.Server, network)
				env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "late"})
				env.ExecuteWorkflow(func(ctx workflow.Context) error {
					sb, err := durable.Open(ctx, nil)
					if err != nil {
						return err
					}
					defer sb.Delete(ctx)
					res, err := sb.Run(ctx, "sh", []string{"-c", "echo ran >> log; echo out; exit 3"}, nil)
					require.NoError(t, err)
					assert.Equal(t, durable.Exited, res.Outcome)
					assert.Equal(t, 3, res.ExitCode)
					assert.Equal(t, "out\n", res.Tail)
					res, err = sb.Run(ctx, "cat", []string{"log"}, nil)
					require.NoError(t, err)
					assert.Equal(t, "ran\n", res.Tail, "the command ran once")
					return nil
				})
				require.NoError(t, env.GetWorkflowError())
				network.mu.Lock()
				defer network.mu.Unlock()
				assert.Equal(t, 3, network.starts, "two starts of the first command, and one of the second")
				want := http.StatusOK
				if ids == sandboxtest.CommandIDsHonored && !before {
					want = http.StatusConflict
				}
				assert.Equal(t, want, network.late, "the late request got a response")
			})
		}
	}
}

func newEnv(t *testing.T, ids sandboxtest.CommandIDs) *durabletest.Env {
	env := durabletest.New(t, &durabletest.Options{Emulator: sandboxtest.Options{CommandIDs: ids}})
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "keys"})
	return env
}

func clientThrough(t *testing.T, srv *sandboxtest.Server, rt http.RoundTripper) *sandbox.Client {
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: srv.URL, Credentials: auth.Static(srv.Credentials()), HTTPClient: &http.Client{Transport: rt},
	})
	require.NoError(t, err)
	return c
}

// TestGuard: commands of any user pass the guard, also after those of another user. Where
// the guard cannot work, the command says so and does not run.
func TestGuard(t *testing.T) {
	env := durabletest.New(t, nil)
	probe, err := env.Server.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	testkit.NeedRoot(t, probe)
	before := len(env.Server.Requests())
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "guard"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		umask := []string{"-c", "umask 077; id -u"}
		for _, sudo := range []bool{true, false, true, false} {
			res, err := sb.Run(ctx, "sh", umask, &durable.RunOptions{Sudo: sudo})
			require.NoError(t, err)
			assert.Equal(t, 0, res.ExitCode, "sudo %v: %s", sudo, res.Tail)
			assert.Equal(t, sudo, res.Tail == "0\n", res.Tail)
		}
		// A file is in the way of the folder.
		res, err := sb.Run(ctx, "sh", []string{"-c", "rm -rf /tmp/.durable; echo file > /tmp/.durable"}, &durable.RunOptions{Sudo: true})
		require.NoError(t, err)
		require.Equal(t, 0, res.ExitCode, res.Tail)
		res, err = sb.Run(ctx, "echo", []string{"ran"}, nil)
		require.NoError(t, err)
		assert.Equal(t, 126, res.ExitCode)
		assert.Contains(t, res.Tail, "mkdir")
		assert.NotContains(t, res.Tail, "ran")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	var guarded []string
	for _, r := range env.Server.Requests()[before:] {
		if r.Operation == sandboxtest.RunCommand {
			guarded = append(guarded, r.Query.Get("cmdId"))
		}
	}
	require.Len(t, guarded, 6)
	slices.Sort(guarded)
	assert.Len(t, slices.Compact(guarded), 6, "each start has its own ID")
	assert.NotContains(t, guarded, "")
}

// TestArgFrom: a stored argument is read when the command starts, and is not in the handle.
// If it is missing, the start returns an error.
func TestArgFrom(t *testing.T) {
	t.Parallel()
	env := durabletest.New(t, nil)
	w, err := env.Worker.Output.Create(t.Context(), "texts/a")
	require.NoError(t, err)
	_, err = w.Write([]byte("echo from the store"))
	require.NoError(t, errors.Join(err, w.Commit(), w.Close()))
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "texts"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		cmd, err := sb.Start(ctx, "sh", []string{"-c"}, &durable.RunOptions{ArgFrom: "texts/a"})
		require.NoError(t, err)
		assert.NotContains(t, string(cmd.Handle), "from the store")
		res, err := sb.Wait(ctx, cmd)
		require.NoError(t, err)
		assert.Equal(t, "from the store\n", res.Tail)
		_, err = sb.Run(ctx, "sh", []string{"-c"}, &durable.RunOptions{ArgFrom: "texts/none"})
		require.ErrorContains(t, err, "no longer stored")
		env.Worker.Output = nil
		_, err = sb.Run(ctx, "sh", []string{"-c"}, &durable.RunOptions{ArgFrom: "texts/a"})
		require.ErrorContains(t, err, "no Output")
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}
