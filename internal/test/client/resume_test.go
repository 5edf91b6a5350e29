package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSharedResume: many goroutines use a handle whose session another client has stopped.
// Each command succeeds, and the sandbox is resumed and the hook run only once.
func TestSharedResume(t *testing.T) {
	t.Parallel()
	var hooks atomic.Int64
	srv, sb := start(t, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
		hooks.Add(1)
		_, err := sb.RunCommand(ctx, "touch", []string{"resumed"}, nil)
		return err
	}})
	other, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), nil)
	require.NoError(t, err)
	_, err = other.Stop(t.Context(), nil)
	require.NoError(t, err)
	before := testkit.Count(srv, sandboxtest.GetSandbox)

	callers := 200
	if !needs.Slow() {
		callers = 8
	}
	var group sync.WaitGroup
	errs := make([]error, callers)
	for i := range errs {
		group.Go(func() {
			want := fmt.Sprintf("number %d\n", i)
			done, err := sb.RunCommand(t.Context(), "echo", []string{"number", fmt.Sprint(i)}, nil)
			if err != nil {
				errs[i] = err
				return
			}
			if out, err := done.Stdout(t.Context()); err != nil || out != want || done.ExitCode != 0 {
				errs[i] = fmt.Errorf("got %q, %d, %w", out, done.ExitCode, err)
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	assert.EqualValues(t, 1, hooks.Load(), "runs of OnResume")
	assert.Equal(t, 1, testkit.Count(srv, sandboxtest.GetSandbox)-before, "resumes")
	assert.Equal(t, sandbox.StatusRunning, sb.Status())
	assert.Equal(t, sb.CurrentSession().ID(), sb.Info().CurrentSessionID, "Info describes the resumed sandbox")
}

// TestResumeCancelledCaller: two calls wait for the same resume, and the first one is
// canceled. The resume and its hook continue for the second one.
func TestResumeCancelledCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inHook, release := make(chan struct{}), make(chan struct{})
		c := canned.API(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.URL.Query().Get("resume") == "true":
				return canned.JSON(200, strings.NewReplacer(`"s1"`, `"s2"`, `"routes"`, `"resumed":true,"routes"`).Replace(canned.RunningSandbox)), nil
			case req.Method == http.MethodGet:
				return canned.JSON(200, canned.RunningSandbox), nil
			case strings.Contains(req.URL.Path, "/s2/"):
				return canned.Response(200, "application/x-ndjson", strings.NewReader(strings.ReplaceAll(canned.Begun+canned.Ended, `"s1"`, `"s2"`))), nil
			}
			return canned.JSON(410, `{"error":{"code":"sandbox_stopped","message":"stopped"}}`), nil
		}).Client(t)
		sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true, OnResume: func(context.Context, *sandbox.Sandbox) error {
			close(inHook)
			<-release
			return nil
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := sb.RunCommand(ctx, "true", nil, nil); first <- err }()
		<-inHook
		go func() { _, err := sb.RunCommand(t.Context(), "true", nil, nil); second <- err }()
		synctest.Wait() // until the second call also waits for the resume
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		close(release)
		require.NoError(t, <-second)
	})
}

// TestResumeAbandoned: when no call waits for a resume anymore, the client cancels it and
// its hook. The next call resumes the sandbox and runs the hook again.
func TestResumeAbandoned(t *testing.T) {
	t.Parallel()
	entered, ended := make(chan struct{}, 1), make(chan error, 1)
	var runs atomic.Int64
	srv, sb := shareServer(t, &sandbox.CreateOptions{OnResume: func(ctx context.Context, _ *sandbox.Sandbox) error {
		if runs.Add(1) > 1 {
			return nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}})
	testkit.StopElsewhere(t, srv, sb)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { _, err := sb.RunCommand(ctx, "true", nil, nil); result <- err }()
	<-entered
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
	_, err := sb.RunCommand(t.Context(), "true", nil, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 2, runs.Load())
}

// TestHookUsesSandbox: a hook runs commands, which resume the sandbox if its session is
// stopped. They don't wait for the resume that the hook is part of, which would be a
// deadlock. They may use the hook's context, the hook's handle, or both.
func TestHookUsesSandbox(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"context", "handle", "both"} {
		t.Run(way, func(t *testing.T) {
			if way == "both" {
				needs.Long(t, "the other rows use the context and the handle separately")
			}
			var srv *sandboxtest.Server
			var outer *sandbox.Sandbox
			var runs atomic.Int64
			hook := func(ctx context.Context, sb *sandbox.Sandbox) error {
				runs.Add(1)
				if way == "context" {
					sb = outer
				} else if way == "handle" {
					ctx = context.Background()
				}
				testkit.StopElsewhere(t, srv, sb) // the next command has to resume
				if _, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo from the hook > hooked"}, nil); err != nil {
					return err
				}
				testkit.StopElsewhere(t, srv, sb)
				_, err := sb.RunCommand(ctx, "true", nil, nil)
				return err
			}
			srv, outer = shareServer(t, &sandbox.CreateOptions{OnResume: hook})
			testkit.StopElsewhere(t, srv, outer)
			done, err := outer.RunCommand(t.Context(), "cat", []string{"hooked"}, nil)
			require.NoError(t, err)
			out, err := done.Stdout(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "from the hook\n", out)
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}

// TestHookFails: if OnResume fails, the call returns its error. Each later call runs the
// hook again until it succeeds.
func TestHookFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("no licence")
	var runs atomic.Int64
	srv, sb := shareServer(t, &sandbox.CreateOptions{OnResume: func(context.Context, *sandbox.Sandbox) error {
		if runs.Add(1) < 3 {
			return broken
		}
		return nil
	}})
	testkit.StopElsewhere(t, srv, sb)
	for range 2 {
		_, err := sb.RunCommand(t.Context(), "true", nil, nil)
		require.ErrorIs(t, err, broken)
	}
	for range 2 {
		_, err := sb.RunCommand(t.Context(), "true", nil, nil)
		require.NoError(t, err)
	}
	assert.EqualValues(t, 3, runs.Load())
}

// TestSessionStoppedDuringHook: a session is stopped while its OnResume runs. A call that
// this session has refused waits for the hook, and then runs in the next session.
func TestSessionStoppedDuringHook(t *testing.T) {
	t.Parallel()
	inHook, release := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	refused := make(chan struct{})
	var waiting sync.Once
	srv, gate, sb, direct := behind(t, sandbox.ClientOptions{}, &sandbox.CreateOptions{OnResume: func(context.Context, *sandbox.Sandbox) error {
		if runs.Add(1) == 1 {
			close(inHook)
			<-release
		}
		return nil
	}})
	testkit.StopElsewhere(t, srv, sb)
	first, second := make(chan error, 1), make(chan error, 1)
	call := func(to chan<- error) { _, err := sb.RunCommand(t.Context(), "true", nil, nil); to <- err }
	go call(first)
	<-inHook
	old := sb.CurrentSession().ID()
	require.NoError(t, direct.Refresh(t.Context()))
	testkit.StopElsewhere(t, srv, direct)
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if testkit.IsRun(req) && strings.Contains(req.URL.Path, old) {
			waiting.Do(func() { close(refused) })
		}
		return resp, err
	})
	go call(second)
	close(release)
	require.ErrorIs(t, <-first, sandbox.ErrStopped, "a call resumes a sandbox only once")
	require.NoError(t, <-second)
	<-refused
	assert.NotEqual(t, old, sb.CurrentSession().ID())
	assert.EqualValues(t, 2, runs.Load(), "OnResume runs in each session")
}

// TestHookOfSeveralHandles: OnResume runs only for the handle whose call has resumed the
// sandbox. Its later calls run it again until it succeeds.
func TestHookOfSeveralHandles(t *testing.T) {
	t.Parallel()
	srv, sb := shareServer(t, nil)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	_, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	broken := errors.New("no licence")
	runs := map[string]int{}
	get := func(name string) *sandbox.Sandbox {
		got, err := c.Get(t.Context(), sb.Name(), &sandbox.GetOptions{NoResume: true, OnResume: func(context.Context, *sandbox.Sandbox) error {
			if runs[name]++; runs[name] < 3 {
				return broken
			}
			return nil
		}})
		require.NoError(t, err)
		return got
	}
	first, second := get("first"), get("second")
	for range 2 {
		_, err := first.RunCommand(t.Context(), "true", nil, nil)
		require.ErrorIs(t, err, broken)
		testkit.Output(t, second, "true")
	}
	for range 2 {
		testkit.Output(t, first, "true")
		testkit.Output(t, get("third"), "true")
	}
	assert.Equal(t, map[string]int{"first": 3}, runs)
}

// TestResumeWaitsForTransitions: a call waits while a session starts or stops, even if the
// handle does not know that the session's state has changed.
func TestResumeWaitsForTransitions(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Realistic: true})
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
	var created, polled bool
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		assert.True(t, polled || !testkit.IsRun(req), "the client sent a command to a session that is still starting")
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		switch {
		case !created:
			created = true
			err = testkit.AsPending(resp)
		case !testkit.IsRun(req):
			polled = true
		}
		return resp, err
	})
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Timeout: 5 * time.Hour})
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusPending, sb.Status())
	_, err = sb.RunCommand(t.Context(), "touch", []string{"kept"}, nil)
	require.NoError(t, err)
	gate.Set(nil)

	// Another client stops the session. This handle still considers it running.
	testkit.BeginStop(t, srv, sb)
	finish := testkit.AdvanceWhile(srv)
	done, err := sb.RunCommand(t.Context(), "ls", nil, nil)
	finish()
	require.NoError(t, err)
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "kept\n", out)

	// Resume does not return when the API accepts the request, but when the session runs.
	testkit.BeginStop(t, srv, sb)
	finish = testkit.AdvanceWhile(srv)
	err = sb.Resume(t.Context())
	finish()
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusRunning, sb.Status())
}
