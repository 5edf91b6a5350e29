package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// awaitExtension waits until the session has more than margin left. It first makes a
// request, because the client learns the emulator's time from responses.
func awaitExtension(t *testing.T, client *sandbox.Client, sb *sandbox.Sandbox, margin time.Duration) {
	t.Helper()
	_, err := client.ListPage(t.Context(), nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return sb.CurrentSession().TimeLeft() > margin }, testkit.Patience, time.Millisecond)
}

// KeepAlive extends a session of a few minutes to ten, with one request per step, and
// later does so for the next session. The session ends after KeepAlive has ended. The
// steps have half minutes, so that no advance of the clock by a minute ends exactly at the
// margin, where the delay of a response would decide.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Timeout: 4*time.Minute + 30*time.Second})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const margin = 3 * time.Minute
	ended := make(chan error, 1)
	go func() {
		ended <- sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: margin, Step: 4*time.Minute + 30*time.Second})
	}()
	first := sb.CurrentSession()
	advance := func(total time.Duration) {
		for range int(total / time.Minute) {
			awaitExtension(t, client, sb, margin)
			srv.Advance(time.Minute)
		}
	}
	advance(10 * time.Minute)
	require.NoError(t, first.Refresh(t.Context()))
	assert.Equal(t, sandbox.StatusRunning, first.Info().Status)
	assert.Equal(t, 2, testkit.Count(srv, sandboxtest.ExtendTimeout))
	assert.Equal(t, 1, testkit.Count(srv, sandboxtest.GetSession), "only this test's Refresh")

	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	_, err = sb.RunCommand(t.Context(), "true", nil, nil)
	require.NoError(t, err)
	second := sb.CurrentSession()
	require.NotEqual(t, first.ID(), second.ID())
	advance(10 * time.Minute)
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
	srv := newServer(t)
	var log testkit.LockedBuffer
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}).Create(t.Context(), &sandbox.CreateOptions{Name: "kept", Timeout: 90 * time.Minute})
	require.NoError(t, err)
	expires := sb.ExpiresAt()
	ended := make(chan error, 1)
	go func() { ended <- sb.KeepAlive(t.Context(), &sandbox.KeepAliveOptions{Margin: 2 * time.Hour}) }()
	require.Eventually(t, func() bool { return sb.ExpiresAt().After(expires) }, testkit.Patience, time.Millisecond)
	require.Eventually(t, func() bool {
		return strings.Contains(log.String(), `level=INFO msg="sandbox session extended" sandbox=kept `)
	}, testkit.Patience, time.Millisecond, "%s", &log)

	assert.ErrorIs(t, sb.KeepAlive(t.Context(), &sandbox.KeepAliveOptions{Margin: -1}), sandbox.ErrInvalid)
	require.NoError(t, sb.Delete(t.Context(), nil))
	err = <-ended
	assert.True(t, errors.Is(err, sandbox.ErrDeleted) || errors.Is(err, sandbox.ErrNotFound), "%v", err)
}

// TestNoMoreTime: the plan does not allow the extension to most, so EnsureTimeLeft extends
// the session to least. Later extensions fail without a request, and the error says how
// much time remains.
func TestNoMoreTime(t *testing.T) {
	t.Parallel()
	const plan = 24 * time.Hour
	srv := newServer(t)
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Timeout: 23*time.Hour + 50*time.Minute})
	require.NoError(t, err)
	srv.Advance(23*time.Hour + 49*time.Minute)
	_, err = client.ListPage(t.Context(), nil)
	require.NoError(t, err)
	before := testkit.Count(srv, sandboxtest.ExtendTimeout)
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 5*time.Minute, 25*time.Minute))
	assert.Equal(t, before+2, testkit.Count(srv, sandboxtest.ExtendTimeout))
	assert.InDelta(t, 5, sb.CurrentSession().TimeLeft().Minutes(), 0.5)
	err = sb.KeepAlive(t.Context(), &sandbox.KeepAliveOptions{Margin: 10 * time.Minute})
	require.ErrorIs(t, err, sandbox.ErrNoMoreTime)
	assert.Regexp(t, `can't be extended any further, and ends in [45]m\d+s$`, err.Error())
	assert.Equal(t, before+2, testkit.Count(srv, sandboxtest.ExtendTimeout))

	err = sb.ExtendTimeout(t.Context(), plan)
	require.ErrorIs(t, err, sandbox.ErrNoMoreTime)
	assert.Regexp(t, `can't be extended any further, and ends in [45]m\d+s: .*extension would exceed maximum execution timeout`, err.Error())
	refused, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok)
	assert.Equal(t, "sandbox_timeout_invalid", refused.Code)

	all := len(srv.Requests())
	require.ErrorIs(t, sb.EnsureTimeLeft(t.Context(), time.Hour, 0), sandbox.ErrNoMoreTime)
	assert.Len(t, srv.Requests(), all)
	srv.Advance(time.Hour)
	_, err = sb.RunCommand(t.Context(), "true", nil, nil)
	require.NoError(t, err)
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), time.Hour, 0), "the next session can be extended again")
}

// TestEnsureTimeLeft: EnsureTimeLeft extends a session that has less time than requested,
// and makes no request otherwise.
func TestEnsureTimeLeft(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), &sandbox.CreateOptions{Timeout: 10 * time.Minute})
	require.NoError(t, err)
	left := func() float64 { return sb.CurrentSession().TimeLeft().Minutes() }
	before := len(srv.Requests())
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 0, 0))
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 5*time.Minute, time.Hour))
	assert.Len(t, srv.Requests(), before)
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 20*time.Minute, 40*time.Minute))
	assert.InDelta(t, 40, left(), 2)
	assert.Len(t, srv.Requests(), before+1)
	remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.ExtendTimeout, Status: http.StatusServiceUnavailable, Times: 100})
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), time.Hour, 0))
	remove()
	assert.ErrorIs(t, sb.EnsureTimeLeft(t.Context(), -1, 0), sandbox.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, sb.EnsureTimeLeft(ctx, 2*time.Hour, 0), context.Canceled)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sb.EnsureTimeLeft(t.Context(), 2*time.Hour, 0), "EnsureTimeLeft ignores a stopped session")
}

// TestTimeLeft: TimeLeft is right if this machine's clock is half an hour fast or slow.
func TestTimeLeft(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 30 * time.Minute, "behind": -30 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The Date of a response has no fractions of a second, so start within a second.
			srv := sandboxtest.New(t, &sandboxtest.Options{Start: time.Now().Add(ahead).Truncate(time.Second).Add(800 * time.Millisecond)})
			sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Timeout: 10 * time.Minute})
			require.NoError(t, err)
			cur := sb.CurrentSession()
			about := func(want time.Duration) {
				t.Helper()
				assert.InDelta(t, want.Minutes(), cur.TimeLeft().Minutes(), 2, "it would be wrong by half an hour with this machine's clock")
			}
			about(10 * time.Minute)
			assert.LessOrEqual(t, cur.TimeLeft(), 10*time.Minute)
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
