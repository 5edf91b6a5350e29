package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHookErrorsAreNotTheAPIs: if a hook returns an APIError, the client does not treat it
// as the API's response to its own request.
func TestHookErrorsAreNotTheAPIs(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{
		"files gone": &sandbox.APIError{Operation: "get sandbox", Status: 410, Code: "snapshot_not_found", SandboxName: "another"},
		"not found":  &sandbox.APIError{Operation: "get sandbox", Status: 404, Code: "not_found", SandboxName: "another"},
		"stopped":    &sandbox.APIError{Operation: "run command", Status: 410, Code: "sandbox_stopped", SessionID: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "not found" {
				needs.Long(t, "the other rows are enough")
			}
			srv := newServer(t)
			c := testkit.Client(t, srv, sandbox.ClientOptions{})
			sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "work"})
			require.NoError(t, err)
			testkit.Output(t, sb, "sh", "-c", "echo chapter > thesis")
			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			var runs atomic.Int64
			opts := &sandbox.CreateOptions{NoResume: false, OnResume: func(context.Context, *sandbox.Sandbox) error {
				if runs.Add(1) == 1 {
					return broken
				}
				return nil
			}}
			_, err = c.GetOrCreate(t.Context(), "work", opts)
			require.ErrorIs(t, err, broken)
			assert.Zero(t, testkit.Count(srv, sandboxtest.DeleteSandbox))
			// The sandbox is running already, so the next call does not run OnResume.
			sb, err = c.GetOrCreate(t.Context(), "work", opts)
			require.NoError(t, err)
			assert.EqualValues(t, 1, runs.Load())
			assert.Equal(t, "chapter\n", testkit.Output(t, sb, "cat", "thesis"))
		})
	}
}

// TestDeletedDuringOnCreate: a sandbox that is deleted while its OnCreate runs is created
// again.
func TestDeletedDuringOnCreate(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	other, c := testkit.Client(t, srv, sandbox.ClientOptions{}), testkit.Client(t, srv, sandbox.ClientOptions{})
	var runs atomic.Int64
	sb, err := c.GetOrCreate(t.Context(), "work", &sandbox.CreateOptions{OnCreate: func(ctx context.Context, _ *sandbox.Sandbox) error {
		if runs.Add(1) > 1 {
			return nil
		}
		sb, err := other.Get(ctx, "work", nil)
		if err != nil {
			return err
		}
		return sb.Delete(ctx, nil)
	}})
	require.NoError(t, err)
	assert.Equal(t, "hello\n", testkit.Output(t, sb, "echo", "hello"))
	assert.EqualValues(t, 2, runs.Load())
	assert.Equal(t, 2, testkit.Count(srv, sandboxtest.CreateSandbox))
}

// TestOnCreateOnce: several callers try to create a sandbox, and some of their requests
// fail before or after the API has acted. OnCreate runs at most once.
func TestOnCreateOnce(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{MaxRetries: -1})
	rounds := 12
	if !needs.Slow() {
		rounds = 2
	}
	for round := range rounds {
		fault := sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, Status: 504, Delay: 50 * time.Millisecond, Probability: 0.5}
		if round%2 == 1 {
			fault.Status, fault.ActThenStatus = 0, 504
		}
		remove := srv.Inject(fault)
		name := fmt.Sprintf("box%d", round)
		var runs atomic.Int64
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				sb, err := c.GetOrCreate(t.Context(), name, &sandbox.CreateOptions{Tags: map[string]string{"a": "b"}, OnCreate: func(context.Context, *sandbox.Sandbox) error {
					runs.Add(1)
					return nil
				}})
				if err != nil {
					assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
					return
				}
				assert.Equal(t, map[string]string{"a": "b"}, sb.Info().Tags, "Info does not show the client's own tag")
			})
		}
		group.Wait()
		remove()
		assert.LessOrEqual(t, runs.Load(), int64(1), "round %d", round)
		if fault.ActThenStatus != 0 {
			assert.EqualValues(t, 1, runs.Load(), "round %d: the caller whose response was lost recognizes its sandbox", round)
		}
	}
}

// TestOnCreateFails: if OnCreate fails, the sandbox is deleted, so that the next call
// starts over, and the log reports the failure.
func TestOnCreateFails(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var log testkit.LockedBuffer
	c := testkit.Client(t, srv, sandbox.ClientOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var runs atomic.Int64
	opts := &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error {
		if runs.Add(1) == 1 {
			return io.ErrClosedPipe
		}
		return nil
	}}
	_, err := c.GetOrCreate(t.Context(), "workspace", opts)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = c.Get(t.Context(), "workspace", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.Contains(t, log.String(), `level=ERROR msg="sandbox hook: failed"`)
	_, err = c.GetOrCreate(t.Context(), "workspace", opts)
	require.NoError(t, err)
	assert.EqualValues(t, 2, runs.Load())
}

// TestOnCreateExits: the sandbox is also deleted if OnCreate calls runtime.Goexit, as a
// failing test does.
func TestOnCreateExits(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = c.Create(t.Context(), &sandbox.CreateOptions{Name: "work", OnCreate: func(context.Context, *sandbox.Sandbox) error {
			runtime.Goexit()
			return nil
		}})
	}()
	<-left
	_, err := c.Get(t.Context(), "work", nil)
	assert.ErrorIs(t, err, sandbox.ErrNotFound)
}

// TestOnCreateEndsItsCall: OnCreate cancels the context of its call and returns an error.
// The call returns this error, also if it has retried before.
func TestOnCreateEndsItsCall(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, Times: 1, Status: http.StatusConflict})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.GetOrCreate(ctx, "workspace", &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error {
		cancel()
		return io.ErrClosedPipe
	}})
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

// TestHookWithAnotherHandle: a hook uses another client to get a second handle of its
// sandbox, with the same hook. A call of this handle does not wait for the hook, which
// would be a deadlock.
func TestHookWithAnotherHandle(t *testing.T) {
	t.Parallel()
	var c *sandbox.Client
	var runs atomic.Int64
	var hook sandbox.Hook
	hook = func(ctx context.Context, sb *sandbox.Sandbox) error {
		runs.Add(1)
		again, err := c.Get(ctx, sb.Name(), &sandbox.GetOptions{OnResume: hook})
		if err != nil {
			return err
		}
		_, err = again.RunCommand(ctx, "true", nil, nil)
		return err
	}
	srv, sb := shareServer(t, &sandbox.CreateOptions{OnResume: hook})
	c = testkit.Client(t, srv, sandbox.ClientOptions{})
	testkit.StopElsewhere(t, srv, sb)
	testkit.Output(t, sb, "true")
	assert.EqualValues(t, 1, runs.Load())
}

// TestHookStartsServers: OnResume starts a command and a Cmd with its own context. Both
// continue after the hook has returned. The client does not kill them, despite
// KillOnCancel, and still delivers their output.
func TestHookStartsServers(t *testing.T) {
	t.Parallel()
	var out testkit.LockedBuffer
	var server *sandbox.Command
	var cmd *sandbox.Cmd
	srv, sb := shareServer(t, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
		var err error
		server, err = sb.StartCommand(ctx, "sh", []string{"-c", "while [ ! -e say ]; do sleep 0.1; done; echo served; sleep 1000"}, &sandbox.StartOptions{Stdout: &out, KillOnCancel: true})
		if err != nil {
			return err
		}
		cmd = sb.CommandContext(ctx, "sh", "-c", "while [ ! -e say ]; do sleep 0.1; done; exit 5")
		return cmd.Start()
	}})
	testkit.StopElsewhere(t, srv, sb)
	testkit.Output(t, sb, "touch", "say")
	assert.Eventually(t, func() bool { return out.String() == "served\n" }, testkit.Patience, 10*time.Millisecond)
	var exit *sandbox.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, 5, exit.ExitCode())
	require.NoError(t, server.Kill(t.Context()))
	_, err := server.Wait(t.Context())
	require.NoError(t, err)
}

// TestCallsWaitForHook: a call that starts while a hook runs waits until the hook has
// returned.
func TestCallsWaitForHook(t *testing.T) {
	t.Parallel()
	inHook, release := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	srv, sb := start(t, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
		if runs.Add(1) > 1 {
			return nil
		}
		close(inHook)
		<-release
		_, err := sb.RunCommand(ctx, "touch", []string{"warm"}, nil)
		return err
	}})
	testkit.StopElsewhere(t, srv, sb)
	results := make(chan string, 2)
	call := func() {
		done, err := sb.RunCommand(t.Context(), "ls", nil, nil)
		if !assert.NoError(t, err) {
			results <- ""
			return
		}
		out, err := done.Stdout(t.Context())
		assert.NoError(t, err)
		results <- out
	}
	go call()
	<-inHook
	before := testkit.Count(srv, sandboxtest.RunCommand)
	go call()
	testkit.Linger(50 * time.Millisecond) // a call that does not wait would start its command now
	assert.Equal(t, before, testkit.Count(srv, sandboxtest.RunCommand))
	close(release)
	assert.Equal(t, "warm\n", <-results)
	assert.Equal(t, "warm\n", <-results)
	assert.EqualValues(t, 1, runs.Load())
}

// TestClientHooks: the hooks of the client apply to handles from JSON, and to calls whose
// options have no hooks.
func TestClientHooks(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var created, resumed, own atomic.Int64
	c := testkit.Client(t, srv, sandbox.ClientOptions{Hooks: func(sb sandbox.Info) (onCreate, onResume sandbox.Hook) {
		if sb.Tags["kind"] != "preview" {
			return nil, nil
		}
		return func(context.Context, *sandbox.Sandbox) error { created.Add(1); return nil },
			func(context.Context, *sandbox.Sandbox) error { resumed.Add(1); return nil }
	}})
	for _, kind := range []string{"preview", "other"} {
		made, err := c.GetOrCreate(t.Context(), kind, &sandbox.CreateOptions{Tags: map[string]string{"kind": kind}})
		require.NoError(t, err)
		_, err = made.Stop(t.Context(), nil)
		require.NoError(t, err)
		text, err := json.Marshal(made)
		require.NoError(t, err)
		var decoded sandbox.Sandbox
		require.NoError(t, json.Unmarshal(text, &decoded))
		c.Bind(&decoded)
		testkit.Output(t, &decoded, "true")
	}
	assert.EqualValues(t, 1, created.Load())
	assert.EqualValues(t, 1, resumed.Load())

	sb, err := c.Get(t.Context(), "preview", nil)
	require.NoError(t, err)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "preview", &sandbox.GetOptions{OnResume: func(context.Context, *sandbox.Sandbox) error { own.Add(1); return nil }})
	require.NoError(t, err)
	assert.EqualValues(t, 1, own.Load())
	assert.EqualValues(t, 1, resumed.Load())
}

// TestHookOutlivesItsSession: if a session is stopped while its OnResume runs, the hook
// continues in the next session. If it succeeds, OnResume does not run again for that
// session.
func TestHookOutlivesItsSession(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		runs := 0
		var direct *sandbox.Sandbox
		srv, _, sb, direct := behind(t, sandbox.ClientOptions{}, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
			if runs++; runs > 1 {
				return nil
			}
			if _, err := direct.Stop(ctx, nil); err != nil {
				return err
			}
			_, err := sb.RunCommand(ctx, "true", nil, nil)
			if err == nil && fails {
				err = errors.New("no licence")
			}
			return err
		}})
		testkit.StopElsewhere(t, srv, sb)
		_, err := sb.RunCommand(t.Context(), "true", nil, nil)
		assert.Equal(t, fails, err != nil, "%v", err)
		testkit.Output(t, sb, "true")
		testkit.Output(t, sb, "true")
		want := 1
		if fails {
			want = 2
		}
		assert.Equal(t, want, runs, "fails: %v", fails)
	}
}

// TestOnCreateNeedsATag: a sandbox has at most five tags, and the client needs one to make
// other calls wait for OnCreate. If the caller passes five, or one with the name of the
// client's tag, the call fails before its first request.
func TestOnCreateNeedsATag(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	onCreate := func(context.Context, *sandbox.Sandbox) error { return nil }
	for _, tags := range []map[string]string{
		{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}, {"go-sandbox-creation": "mine"},
	} {
		_, err := c.GetOrCreate(t.Context(), "preview", &sandbox.CreateOptions{Tags: tags, OnCreate: onCreate})
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.ErrorContains(t, err, "go-sandbox-creation")
		assert.Empty(t, srv.Requests())
	}
	sb, err := c.GetOrCreate(t.Context(), "preview", &sandbox.CreateOptions{Tags: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, OnCreate: onCreate})
	require.NoError(t, err)
	assert.Len(t, sb.Info().Tags, 4)
	seen := 0
	for info, err := range c.List(t.Context(), nil) {
		require.NoError(t, err)
		assert.Len(t, info.Tags, 4)
		seen++
	}
	assert.Equal(t, 1, seen)
}

// TestOnCreateAwaited: while one call runs OnCreate, other calls of this client and of
// another one wait. If OnCreate fails, one of them runs it again.
func TestOnCreateAwaited(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	a, b := testkit.Client(t, srv, sandbox.ClientOptions{}), testkit.Client(t, srv, sandbox.ClientOptions{})
	inside, release := make(chan struct{}, 10), make(chan struct{})
	var runs atomic.Int64
	broken := errors.New("no licence")
	opts := &sandbox.CreateOptions{OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
		n := runs.Add(1)
		inside <- struct{}{}
		<-release
		if n == 1 {
			return broken
		}
		return sb.FS().WriteFile(ctx, "ready", []byte("yes"), 0o644)
	}}
	var group sync.WaitGroup
	var failed atomic.Int64
	enter := func(c *sandbox.Client) {
		group.Go(func() {
			sb, err := c.GetOrCreate(t.Context(), "conv", opts)
			if errors.Is(err, broken) {
				failed.Add(1)
				return
			}
			if assert.NoError(t, err) {
				text, err := sb.FS().ReadFile(t.Context(), "ready")
				assert.NoError(t, err, "GetOrCreate returned before OnCreate had succeeded")
				assert.Equal(t, "yes", string(text))
			}
		})
	}
	enter(a)
	<-inside
	for range 3 {
		enter(a)
		enter(b)
	}
	testkit.Linger(100 * time.Millisecond) // calls that do not wait would run OnCreate now
	close(release)
	group.Wait()
	assert.EqualValues(t, 2, runs.Load())
	assert.GreaterOrEqual(t, failed.Load(), int64(1))
	assert.Less(t, failed.Load(), int64(7), "one of the waiting calls has run OnCreate again")
	enter(a)
	group.Wait()
	assert.EqualValues(t, 2, runs.Load())
}

// TestHooksCost: hooks run no commands in the sandbox and leave no files there. OnResume
// needs no additional request. OnCreate needs two, to look at the tags and to remove its
// own.
func TestHooksCost(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	runs := 0
	hook := func(context.Context, *sandbox.Sandbox) error { runs++; return nil }
	opts := &sandbox.CreateOptions{OnCreate: hook, OnResume: hook, Tags: map[string]string{"a": "b"}}
	sb, err := c.GetOrCreate(t.Context(), "x", opts)
	require.NoError(t, err)
	assert.Equal(t, 1, runs)
	assert.Len(t, srv.Requests(), 4, "get the sandbox, create it, get its tags, remove one")
	assert.Zero(t, testkit.Count(srv, sandboxtest.RunCommand))
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	before := len(srv.Requests())
	sb, err = c.GetOrCreate(t.Context(), "x", opts)
	require.NoError(t, err)
	assert.Equal(t, 2, runs)
	assert.Equal(t, 1, len(srv.Requests())-before)
	assert.Empty(t, testkit.Output(t, sb, "sh", "-c", `ls -A; { ls -A "$HOME"; ls -A /tmp; } | grep -i sandbox; true`))
}

// TestOnCreateKeepsItsTag: OnCreate replaces the sandbox's tags. The new tags stay, and
// the client keeps its own tag until OnCreate has returned, so that other calls wait.
func TestOnCreateKeepsItsTag(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c, other := testkit.Client(t, srv, sandbox.ClientOptions{}), testkit.Client(t, srv, sandbox.ClientOptions{})
	var done atomic.Bool
	waiting := make(chan error, 1)
	sb, err := c.GetOrCreate(t.Context(), "x", &sandbox.CreateOptions{Tags: map[string]string{"a": "b"}, OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Update(ctx, &sandbox.UpdateOptions{Tags: map[string]string{"c": "d"}}); err != nil {
			return err
		}
		go func() {
			_, err := other.GetOrCreate(t.Context(), "x", &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error {
				return errors.New("OnCreate runs twice")
			}})
			if !done.Load() {
				err = errors.Join(err, errors.New("the call did not wait for OnCreate"))
			}
			waiting <- err
		}()
		testkit.Linger(100 * time.Millisecond)
		done.Store(true)
		return nil
	}})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"c": "d"}, sb.Info().Tags)
	require.NoError(t, <-waiting)
	require.NoError(t, sb.Refresh(t.Context()))
	assert.Equal(t, map[string]string{"c": "d"}, sb.Info().Tags)
}
