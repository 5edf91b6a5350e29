package sandbox_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// looked waits until KeepAlive has checked the session at the current time of
// the emulator's clock, and has acted on it.
func looked(t *testing.T, srv *sandboxtest.Server) {
	t.Helper()
	before := testkit.Count(srv, sandboxtest.GetSession)
	require.Eventually(t, func() bool { return testkit.Count(srv, sandboxtest.GetSession) >= before+2 }, testkit.Patience, time.Millisecond)
}

// A session of five minutes lives for an hour, also across a resume, and ends when
// KeepAlive does. The clock never moves to within two minutes of the end: that is
// how long the machine may take to extend the session.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, &sandbox.CreateOptions{Timeout: 5 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: 3 * time.Minute, Step: 5 * time.Minute, Interval: 5 * time.Millisecond})
	}()
	first := sb.CurrentSession()
	advance := func(total time.Duration) {
		for range int(total / time.Minute) {
			looked(t, srv)
			srv.Advance(time.Minute)
		}
	}
	advance(30 * time.Minute)
	require.NoError(t, first.Refresh(t.Context()))
	assert.Equal(t, sandbox.StatusRunning, first.Info().Status)

	_, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	looked(t, srv)
	assert.Equal(t, first.ID(), sb.CurrentSession().ID(), "KeepAlive does not resume")
	_, err = sb.RunCommand(t.Context(), "true", nil, nil)
	require.NoError(t, err)
	second := sb.CurrentSession()
	require.NotEqual(t, first.ID(), second.ID())
	advance(30 * time.Minute)
	require.NoError(t, second.Refresh(t.Context()))
	assert.Equal(t, sandbox.StatusRunning, second.Info().Status)

	cancel()
	require.NoError(t, <-ended)
	srv.Advance(10 * time.Minute)
	require.Eventually(t, func() bool {
		return assert.NoError(t, second.Refresh(t.Context())) && second.Info().Status == sandbox.StatusStopped
	}, testkit.Patience, 10*time.Millisecond)
}

func TestKeepAliveEndsWithAnError(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	events := &sandboxtest.Recorder{}
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{Observer: events}).Create(t.Context(), &sandbox.CreateOptions{Name: "kept", Timeout: 90 * time.Minute})
	require.NoError(t, err)
	told := func(want func(observe.Event) bool) bool {
		return slices.ContainsFunc(events.Events("extension"), func(e observe.Event) bool { return e.Sandbox == "kept" && want(e) })
	}
	// The plan's limit.
	err = sb.KeepAlive(t.Context(), &sandbox.KeepAliveOptions{Margin: 2 * time.Hour, Step: 1000 * time.Hour})
	assert.ErrorContains(t, err, "can't be extended any further, and ends in 1h")
	assert.ErrorContains(t, err, "extension would exceed maximum execution timeout")
	assert.True(t, told(func(e observe.Event) bool {
		return e.Extended == 1000*time.Hour && e.Outcome == "refused" && e.Err != nil
	}), "%+v", events.Events("extension"))

	// A temporary failure does not stop it.
	expires := sb.ExpiresAt()
	remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.ExtendTimeout, Status: http.StatusServiceUnavailable, Times: 2})
	defer remove()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: 2 * time.Hour, Interval: time.Millisecond})
	}()
	require.Eventually(t, func() bool { return sb.ExpiresAt().After(expires) }, testkit.Patience, time.Millisecond)
	require.Eventually(t, func() bool {
		return told(func(e observe.Event) bool { return e.Extended > 0 && e.Outcome == "ok" })
	}, testkit.Patience, time.Millisecond, "%+v", events.Events("extension"))

	assert.ErrorIs(t, sb.KeepAlive(t.Context(), &sandbox.KeepAliveOptions{Margin: -1}), sandbox.ErrInvalid)
	require.NoError(t, sb.Delete(t.Context(), nil))
	// The request in progress finds the session gone.
	err = <-ended
	assert.True(t, errors.Is(err, sandbox.ErrDeleted) || errors.Is(err, sandbox.ErrNotFound), "%v", err)
}

// TestEnsureTimeLeft: a session gets the time that is asked for, by no request as long
// as it has it, and an error says that it can't.
func TestEnsureTimeLeft(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	events := &sandboxtest.Recorder{}
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{Observer: events}).Create(t.Context(), &sandbox.CreateOptions{Timeout: 10 * time.Minute})
	require.NoError(t, err)
	left := func() float64 { return sb.CurrentSession().TimeLeft().Minutes() }
	before := len(srv.Requests())
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 0))
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 5*time.Minute))
	assert.Len(t, srv.Requests(), before)
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 20*time.Minute))
	assert.GreaterOrEqual(t, left(), 20.0)
	assert.Len(t, srv.Requests(), before+2)
	assert.Len(t, events.Events("extension"), 1)
	remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.ExtendTimeout, Status: http.StatusServiceUnavailable, Times: 100})
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), time.Hour))
	remove()
	assert.ErrorContains(t, sb.EnsureTimeLeft(t.Context(), 1000*time.Hour), "can't be extended any further")
	assert.ErrorIs(t, sb.EnsureTimeLeft(t.Context(), -1), sandbox.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, sb.EnsureTimeLeft(ctx, 2*time.Hour), context.Canceled)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 2*time.Hour), "it does not resume")
}

// TestTimeLeft: how long a session has is by the service's clock, whatever this
// machine's says.
func TestTimeLeft(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 30 * time.Minute, "behind": -30 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(ahead)})
			sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Timeout: 10 * time.Minute})
			require.NoError(t, err)
			cur := sb.CurrentSession()
			about := func(want time.Duration) {
				t.Helper()
				assert.InDelta(t, want.Minutes(), cur.TimeLeft().Minutes(), 2, "it is wrong by half an hour where this machine's clock is asked")
			}
			about(10 * time.Minute)
			srv.Advance(4 * time.Minute)
			require.NoError(t, cur.Refresh(t.Context()))
			about(6 * time.Minute)
			require.NoError(t, cur.ExtendTimeout(t.Context(), time.Hour))
			about(66 * time.Minute)

			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, cur.Refresh(t.Context()))
			assert.Zero(t, cur.TimeLeft())
		})
	}
	assert.Zero(t, new(sandbox.Session).TimeLeft())
}
