package durable

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// The pauses before a refused request is retried.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Minute
)

// refusalType returns the type of an error by which the platform, or a proxy, refuses a
// request. It is empty for any other error.
func refusalType(err error) string {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok {
		return ""
	}
	switch app.Type() {
	case errInvalid, errUnauthorized, errQuota, errRefused:
		return app.Type()
	}
	return ""
}

// Outlast decides whether to execute an activity of the sandbox again; err is the
// activity's result. If the platform refuses (400, 401, 402, 403) a sandbox that was open
// before, Outlast waits, longer each time up to 15 minutes, and returns true. Otherwise it
// returns err, which may be nil. All methods but [Sandbox.Kill] use it. It is exported for
// workflows that use the future of [Sandbox.Follow].
func (s *Sandbox) Outlast(ctx workflow.Context, err error) (again bool, _ error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	if s.CreatedAt.IsZero() || refusalType(err) == "" {
		if s.refusals > 0 && err == nil {
			s.refusals = 0
			if s.OnRefused != nil {
				return false, s.OnRefused(ctx, nil, 0)
			}
		}
		return false, err
	}
	pause := min(firstPause<<min(s.refusals, 20), lastPause)
	s.refusals++
	wait := func(ctx workflow.Context, _ error, pause time.Duration) error { return workflow.Sleep(ctx, pause) }
	if s.OnRefused != nil {
		wait = s.OnRefused
	}
	if err := wait(ctx, err, pause); err != nil {
		return false, err
	}
	return true, nil
}

// execute executes an activity, and retries it while the platform refuses it.
func (s *Sandbox) execute(ctx workflow.Context, result any, activity string, args ...any) error {
	for {
		err := workflow.ExecuteActivity(s.withShortOptions(ctx), activity, args...).Get(ctx, result)
		again, err := s.Outlast(ctx, err)
		if !again {
			return err
		}
	}
}
