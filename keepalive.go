package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
)

// ErrNoMoreTime reports that a session has been extended as far as the plan allows.
var ErrNoMoreTime = errors.New("the session can't be extended any further")

// KeepAliveOptions are the options of [Sandbox.KeepAlive]. The zero value is
// ready to use.
type KeepAliveOptions struct {
	// Margin is how long before its end a session is extended. Zero means one
	// minute.
	Margin time.Duration
	// Step is how far the end is moved each time, which is also about how long
	// the session lives after KeepAlive has returned. Zero means five minutes.
	Step time.Duration
}

func (o *KeepAliveOptions) withDefaults() (KeepAliveOptions, error) {
	k := orZero(o)
	if err := cmp.Or(checkDuration("Margin", k.Margin), checkDuration("Step", k.Step)); err != nil {
		return k, err
	}
	k.Margin, k.Step = cmp.Or(k.Margin, time.Minute), cmp.Or(k.Step, 5*time.Minute)
	return k, nil
}

// KeepAlive keeps extending the timeout of the running session ahead of its
// end, until ctx ends; it then returns nil. Run it in a goroutine of its own. A
// nil opts means the defaults. It makes one request for each Step, and none between.
//
// It does not resume the sandbox. If the session is stopped nevertheless,
// KeepAlive waits for the next one, which any other call on this handle may
// start, and keeps that one alive.
//
// Requests that fail for a temporary reason, or receive no response within 15 seconds or
// half of Margin, are logged and retried. Once the plan allows neither Step nor Margin,
// KeepAlive returns an error that matches [ErrNoMoreTime] and says when the session ends.
// If the sandbox no longer exists, it returns another error.
func (s *Sandbox) KeepAlive(ctx context.Context, opts *KeepAliveOptions) error {
	if _, err := enter(ctx, s); err != nil {
		return err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	// Check often, without a request: another call on this handle may have extended or
	// replaced the session.
	interval := min(max(o.Margin/8, time.Millisecond), time.Second)
	for {
		pause := interval
		switch err := s.ensureTimeLeft(ctx, o.Margin, o.Margin+o.Step); {
		case ctx.Err() != nil:
			return nil
		case err == nil:
		case isTemporary(err):
			pause = min(o.Margin/4, keepAliveLimit)
		default:
			return err
		}
		if !api.Sleep(ctx, pause) {
			return nil
		}
	}
}

// EnsureTimeLeft extends the running session to at least most if less than least remains.
// It makes one request then, and none otherwise. It does not resume the sandbox. A request
// that fails for a temporary reason is logged, and is not an error.
//
// If the plan refuses most, EnsureTimeLeft asks once for least. If the plan refuses that
// too, the error matches [ErrNoMoreTime] and says when the session ends. Later calls for
// this session make no request. If the sandbox no longer exists, EnsureTimeLeft returns
// another error.
func (s *Sandbox) EnsureTimeLeft(ctx context.Context, least, most time.Duration) error {
	if _, err := enter(ctx, s); err != nil {
		return err
	}
	if err := cmp.Or(checkDuration("least", least), checkDuration("most", most)); err != nil {
		return err
	}
	if least == 0 {
		return nil
	}
	err := s.ensureTimeLeft(ctx, least, max(least, most))
	switch {
	case ctx.Err() != nil && err != nil:
		return api.ContextError(ctx)
	case isTemporary(err):
		return nil
	}
	return err
}

// ensureTimeLeft is EnsureTimeLeft, but may return a temporary error.
func (s *Sandbox) ensureTimeLeft(ctx context.Context, least, most time.Duration) error {
	if _, err := enter(ctx, s); err != nil {
		return err // another call may have deleted the sandbox
	}
	cur := s.CurrentSession()
	if cur == nil || cur.status() != StatusRunning {
		return nil
	}
	if w := cur.wire(); w.Timeout == 0 { // the response omitted it
		if err := cur.Refresh(ctx); err != nil {
			return s.keepAliveError(err)
		}
	}
	left := cur.TimeLeft()
	if left > least {
		return nil
	}
	if cur.noMoreTime.Load() {
		if left <= 0 { // it has ended, and there may be another one
			return nil
		}
		return s.keepAliveError(cur.limitReached(nil))
	}
	// A request without a response must not keep the next one from being made.
	ctx, cancel := context.WithTimeout(ctx, min(keepAliveLimit, least/2))
	defer cancel()
	if err := s.keepAliveError(cur.extendTo(ctx, least, most)); err != nil {
		return err
	}
	s.st.client.api.Log(ctx, slog.LevelInfo, "sandbox session extended",
		slog.String("sandbox", s.Name()), slog.String("session", cur.ID()), slog.Duration("by", cur.TimeLeft()-left))
	return nil
}

// keepAliveError adds to err what was tried, unless err is temporary.
func (s *Sandbox) keepAliveError(err error) error {
	if err == nil || isTemporary(err) {
		return err
	}
	return fmt.Errorf("sandbox: keeping %q alive: %w", s.Name(), err)
}

// keepAliveLimit limits the time for the requests of one extension. The limit is half of
// the margin if that is less, so that time for another attempt remains.
const keepAliveLimit = 15 * time.Second

// extendTo extends the session so that most remains or, if the plan refuses that, least.
func (s *Session) extendTo(ctx context.Context, least, most time.Duration) error {
	extend := func(to time.Duration) error {
		return s.ExtendTimeout(ctx, max(to-s.TimeLeft(), minExtension).Round(time.Millisecond))
	}
	err := extend(most)
	if err == nil || isTemporary(err) || errors.Is(err, ErrUnauthorized) {
		return err
	}
	// The handle's state may be outdated.
	if err := s.Refresh(ctx); err != nil {
		return err
	}
	if s.status() != StatusRunning || s.TimeLeft() > least {
		return nil
	}
	if !errors.Is(err, ErrNoMoreTime) {
		return err
	}
	if err = extend(least); err == nil || errors.Is(err, ErrNoMoreTime) {
		s.noMoreTime.Store(true)
	}
	return err
}

// limitReached returns the error of a session that can't be extended, with its cause.
func (s *Session) limitReached(cause error) error {
	err := fmt.Errorf("%w, and ends in %v", ErrNoMoreTime, s.TimeLeft().Round(time.Second))
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// isTemporary reports whether a retry may succeed.
func isTemporary(err error) bool {
	switch e := err.(type) {
	case *APIError:
		return e.errorKind().Passing()
	case *RequestError:
		return true
	case *api.AuthError:
		return !errors.Is(err, auth.ErrNoCredentials)
	}
	return false
}
