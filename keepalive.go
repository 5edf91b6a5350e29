package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// KeepAliveOptions are the options of [Sandbox.KeepAlive]. The zero value is
// ready to use.
type KeepAliveOptions struct {
	// Margin is how long before its end a session is extended. Zero means one
	// minute.
	Margin time.Duration
	// Step is how far the end is moved each time, which is also about how long
	// the session lives after KeepAlive has returned. Zero means five minutes.
	Step time.Duration
	// Interval is the longest pause between two checks of the session, whose
	// end other clients may move. Zero means a third of Margin.
	Interval time.Duration
}

func (o *KeepAliveOptions) withDefaults() (KeepAliveOptions, error) {
	var k KeepAliveOptions
	if o != nil {
		k = *o
	}
	if err := cmp.Or(checkDuration("Margin", k.Margin), checkDuration("Step", k.Step), checkDuration("Interval", k.Interval)); err != nil {
		return k, err
	}
	if k.Margin == 0 {
		k.Margin = time.Minute
	}
	if k.Step == 0 {
		k.Step = 5 * time.Minute
	}
	if k.Interval == 0 {
		k.Interval = max(k.Margin/3, 100*time.Millisecond)
	}
	return k, nil
}

// KeepAlive keeps extending the timeout of the running session ahead of its
// end, until ctx ends; it then returns nil. Run it in a goroutine of its own. A
// nil opts means the defaults. It makes one request per Interval and one per
// extension.
//
// It does not resume the sandbox. If the session is stopped nevertheless,
// KeepAlive waits for the next one, which any other call on this handle may
// start, and keeps that one alive.
//
// Requests that fail for a temporary reason, or receive no response within 15
// seconds or half of Margin, are logged and retried. If the session can't be extended further
// because the plan's limit is reached, or the sandbox no longer exists,
// KeepAlive returns an error.
func (s *Sandbox) KeepAlive(ctx context.Context, opts *KeepAliveOptions) error {
	if _, err := enter(ctx, s); err != nil {
		return err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	for {
		next, err := s.keepAliveOnce(ctx, &o)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !api.Sleep(ctx, next) {
			return nil
		}
	}
}

// EnsureTimeLeft sees to it that the running session lasts for d from now: if less
// is left, it is extended to twice that. It makes no request as long as more is
// left as far as is known, and two to extend it. It does not resume the sandbox,
// and a request that fails for a temporary reason is logged and no error. If the
// session can't be extended that far because the plan's limit is reached, or the
// sandbox no longer exists, there is one.
func (s *Sandbox) EnsureTimeLeft(ctx context.Context, d time.Duration) error {
	if _, err := enter(ctx, s); err != nil {
		return err
	}
	if err := checkDuration("d", d); err != nil {
		return err
	}
	if cur := s.CurrentSession(); d == 0 || cur == nil || cur.status() != StatusRunning || cur.TimeLeft() > d {
		return nil
	}
	_, err := s.keepAliveOnce(ctx, &KeepAliveOptions{Margin: d, Step: d, Interval: d})
	if ctx.Err() != nil {
		return api.ContextError(ctx)
	}
	return err
}

// keepAliveOnce checks the session, extends it if necessary, and returns the
// time until the next check.
func (s *Sandbox) keepAliveOnce(ctx context.Context, o *KeepAliveOptions) (time.Duration, error) {
	if _, err := enter(ctx, s); err != nil {
		return 0, err // it may have been deleted since the last check
	}
	cur := s.CurrentSession()
	if cur == nil {
		return o.Interval, nil
	}
	// A request without a response must not keep the next one from being made.
	ctx, cancel := context.WithTimeout(ctx, min(keepAliveLimit, o.Margin/2))
	defer cancel()
	err := cur.Refresh(ctx)
	left := cur.TimeLeft()
	switch {
	case err != nil && passing(err):
		s.keepAliveFailed(ctx, err)
		return min(o.Interval, o.Margin/4), nil
	case err != nil:
		return 0, fmt.Errorf("sandbox: keeping %q alive: %w", s.Name(), err)
	case cur.status() != StatusRunning:
		return o.Interval, nil
	case left > o.Margin:
		return min(o.Interval, left-o.Margin), nil
	}
	// Enough to get beyond the margin, even if that is longer than the step.
	err = s.extend(ctx, cur, max(o.Step, o.Margin-left+o.Interval))
	switch {
	case err == nil, errors.Is(err, ErrStopped):
		return o.Interval, nil
	case passing(err):
		return min(o.Interval, o.Margin/4), nil
	case errors.Is(err, ErrUnauthorized):
		return 0, fmt.Errorf("sandbox: keeping %q alive: %w", s.Name(), err)
	}
	return 0, fmt.Errorf("sandbox: keeping %q alive: session %s can't be extended any further, and ends in %v: %w",
		s.Name(), cur.ID(), left.Round(time.Second), err)
}

// keepAliveLimit is how long KeepAlive waits for the requests of one check, if
// half of the margin is not less: one without a response leaves time for another.
const keepAliveLimit = 15 * time.Second

// extend moves the end of the session by d.
func (s *Sandbox) extend(ctx context.Context, cur *Session, d time.Duration) error {
	ctx, e := s.st.client.beginEvent(ctx, s, observe.Event{Kind: observe.Extension, Extended: d})
	err := cur.ExtendTimeout(ctx, d)
	endEvent(&e, err)
	return err
}

// keepAliveFailed tells of a failed check that KeepAlive outlasts.
func (s *Sandbox) keepAliveFailed(ctx context.Context, err error) {
	s.st.client.tell(ctx, s, observe.Event{Kind: observe.Extension}, err)
}

// passing reports whether a retry may succeed.
func passing(err error) bool {
	switch e := err.(type) {
	case *APIError:
		return e.judged().Passing()
	case *RequestError:
		return true
	case *api.AuthError:
		return !errors.Is(err, auth.ErrNoCredentials)
	}
	return false
}
