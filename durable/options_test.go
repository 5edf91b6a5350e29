package durable_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestOptionsAreObeyed: each field of Options is in the request that creates the sandbox,
// or the table names its test. Worker.Prepare adds a secret, which must not be in the
// history.
func TestOptionsAreObeyed(t *testing.T) {
	policy := &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{"api.example.com": {{Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"authorization": ""}}}}}}}
	o := durable.Options{
		Name: "all", Image: "vercel/sandbox-universal:latest", Git: &durable.Git{URL: "https://example.com/repo.git", Revision: "main", Depth: 7},
		Region: "iad1", Mounts: map[string]sandbox.Mount{"/data": {Drive: "d"}}, Ports: []int{3000}, NetworkPolicy: policy, VCPUs: 4,
		Tags: map[string]string{"mine": "yes"}, Lease: 7 * time.Minute,
	}
	looked := map[string]string{
		"Runtime": "TestWeek", "SnapshotID": "TestSandboxInWorkflow", "EnvFrom": "TestSandboxInWorkflow", "FailoverRegions": "below",
		"Heartbeat": "TestTwoServices", "FollowQueue": "TestFollowQueue",
	}
	for i := range reflect.TypeFor[durable.Options]().NumField() {
		field := reflect.TypeFor[durable.Options]().Field(i)
		assert.NotEqual(t, reflect.ValueOf(o).Field(i).IsZero(), looked[field.Name] == "", "%s is either set here, or tested elsewhere", field.Name)
	}
	env := durabletest.New(t, nil)
	var sent []byte
	env.Worker.Prepare = func(_ context.Context, _ durable.Options, create *sandbox.CreateOptions) error {
		git := create.Source.(sandbox.GitSource)
		git.Username, git.Password = "me", "s3cret"
		create.Source = git
		create.NetworkPolicy = &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{"api.example.com": {{Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"authorization": "Bearer s3cret"}}}}}}}
		return nil
	}
	env.Worker.Client = clientThrough(t, env.Server, roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && r.Body != nil {
			var err error
			sent, err = io.ReadAll(r.Body)
			require.NoError(t, err)
			return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"error":{"code":"bad_request","message":"no"}}`)), Request: r}, nil
		}
		return http.DefaultTransport.RoundTrip(r)
	}))
	env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		if info.ActivityType.Name != "sandbox.Open" {
			return
		}
		var in durable.Options
		require.NoError(t, args.Get(&in))
		data, err := json.Marshal(in)
		require.NoError(t, err)
		assert.NotContains(t, string(data), "s3cret", "the history contains no secret")
	})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		_, err := durable.Open(ctx, &o)
		return err
	})
	require.NotEmpty(t, sent)
	for _, want := range []string{"\"all\"", "vercel/sandbox-universal", "https://example.com/repo.git", "\"main\"", "7", "iad1", "/data", "3000", "api.example.com", "s3cret", "4", "mine", "420000",
		`"durable":"durabletest"`, `"durable-workflow":"default-test-workflow-id.`} { // the tags for Sweep
		assert.Contains(t, string(sent), want)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestFollowQueue: only the activity that follows commands runs on the queue that Options
// names.
func TestFollowQueue(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "queues", TaskQueue: "all"})
	queues := map[string]string{}
	env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		queues[info.ActivityType.Name] = info.TaskQueue
	})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{FollowQueue: "follow"})
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		_, err = sb.Run(ctx, "true", nil, nil)
		return err
	})
	require.NoError(t, env.GetWorkflowError())
	assert.Equal(t, map[string]string{"sandbox.Open": "all", "sandbox.Start": "all", "sandbox.Follow": "follow", "sandbox.Delete": "all"}, queues)
}

// TestLeastHeartbeat: the heartbeat timeout leaves a worker the time to send one.
func TestLeastHeartbeat(t *testing.T) {
	env := durabletest.New(t, nil)
	env.Worker.Prepare = func(ctx context.Context, _ durable.Options, _ *sandbox.CreateOptions) error {
		assert.Equal(t, time.Second, activity.GetInfo(ctx).HeartbeatTimeout)
		return nil
	}
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{Heartbeat: time.Millisecond})
		require.NoError(t, err)
		return sb.Delete(ctx)
	})
	require.NoError(t, env.GetWorkflowError())
}

// TestLeaseIsRenewed: while a command runs, its machine's lease is renewed to the requested
// length, and at once when a worker begins to follow the command.
func TestLeaseIsRenewed(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "long"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{Lease: 10 * time.Minute})
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		cmd, err := sb.Start(ctx, "sh", []string{"-c", "until [ -e go ]; do sleep 0.05; done; echo done"}, nil)
		require.NoError(t, err)
		env.Server.Advance(6 * time.Minute)
		_, err = env.Worker.Client.Get(t.Context(), sb.Options.Name, nil) // each response tells the time
		require.NoError(t, err)
		go func() {
			for ctx := t.Context(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { //nolint:sleeping // polls until its command waits
				for _, r := range env.Server.Requests() {
					if r.Operation != sandboxtest.ExtendTimeout {
						continue
					}
					if got, err := env.Server.Client().Get(ctx, sb.Options.Name, nil); assert.NoError(t, err) {
						assert.NoError(t, got.FS().WriteFile(ctx, "go", nil, 0o600))
					}
					return
				}
			}
		}()
		res, err := sb.Wait(ctx, cmd)
		require.NoError(t, err)
		assert.Equal(t, durable.Exited, res.Outcome)
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}

// TestLeaseAtStart: a command that starts near the end of the lease does not lose its
// machine.
func TestLeaseAtStart(t *testing.T) {
	const lease = 10 * time.Minute
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "late"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, &durable.Options{Lease: lease})
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		if err := workflow.Sleep(ctx, sb.ExpiresAt.Sub(workflow.Now(ctx))-time.Minute); err != nil {
			return err
		}
		env.SyncClocks()
		before := env.Server.Now()
		_, err = env.Worker.Client.Get(t.Context(), sb.Options.Name, nil) // each response tells the time
		require.NoError(t, err)
		cmd, err := sb.Start(ctx, "sh", []string{"-c", "until [ -e go ]; do sleep 0.05; done"}, nil)
		require.NoError(t, err)
		assert.WithinRange(t, sb.ExpiresAt, before.Add(lease-2*time.Second), env.Server.Now().Add(lease+2*time.Second))
		env.Server.Advance(2 * time.Minute)
		got, err := env.Server.Client().Get(t.Context(), sb.Options.Name, &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		require.NoError(t, got.CurrentSession().FS().WriteFile(t.Context(), "go", nil, 0o600))
		res, err := sb.Wait(ctx, cmd)
		require.NoError(t, err)
		assert.Equal(t, durable.Exited, res.Outcome)
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}

// TestLeaseByTheServicesClock: a worker whose clock is half an hour fast or slow gives its
// machine the requested lease.
func TestLeaseByTheServicesClock(t *testing.T) {
	const lease = 10 * time.Minute
	for name, ahead := range map[string]time.Duration{"slow worker": 30 * time.Minute, "fast worker": -30 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(ahead)})
			env := durabletest.New(t, nil)
			env.Worker.Client = srv.Client()
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				sb, err := durable.Open(ctx, &durable.Options{Name: "leased", Lease: lease})
				if err != nil {
					return err
				}
				srv.Advance(6 * time.Minute)
				before := srv.Now()
				runs, err := sb.Renew(ctx)
				assert.True(t, runs)
				assert.WithinRange(t, sb.ExpiresAt, before.Add(lease-2*time.Second), srv.Now().Add(lease+2*time.Second))
				return err
			})
			require.NoError(t, env.GetWorkflowError())
		})
	}
}

// TestNoTail: with NoTail, stored output is not in the history. Of output that is not
// stored, the history has the last 2 KiB.
func TestNoTail(t *testing.T) {
	for _, stored := range []bool{true, false} {
		env := durabletest.New(t, nil)
		env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "tail"})
		if !stored {
			env.Worker.Output = nil
		}
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			sb, err := durable.Open(ctx, nil)
			if err != nil {
				return err
			}
			defer sb.Delete(ctx)
			res, err := sb.Run(ctx, "echo", []string{"secret"}, &durable.RunOptions{NoTail: true})
			require.NoError(t, err)
			assert.Equal(t, stored, res.Archived)
			assert.Equal(t, stored, !strings.Contains(res.Tail, "secret"))
			res, err = sb.Run(ctx, "seq", []string{"100000"}, nil)
			require.NoError(t, err)
			assert.Len(t, res.Tail, 2<<10)
			assert.True(t, strings.HasSuffix(res.Tail, "\n99999\n100000\n"))
			return nil
		})
		require.NoError(t, env.GetWorkflowError())
	}
}
