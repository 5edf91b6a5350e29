package durable

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Types of errors that an activity is not repeated for. Each may pass all the
// same: a token is renewed, a quota raised, a deployment taken back.
const (
	errInvalid      = "Invalid"
	errUnauthorized = "Unauthorized"
	errQuota        = "Quota"
	errRefused      = "Refused" // and the same request will be again
)

// The pauses before what was refused is tried again.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Minute
)

// refusal returns the type of an error that says that the platform, or whatever
// stands before it, refuses; empty if err says something else.
func refusal(err error) string {
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

// Outlast decides whether an activity of the sandbox that has ended with err is to
// be executed again. When the platform refuses (401, 402, 403, 400) a sandbox that
// it had opened, Outlast waits, longer each time up to 15 minutes, and returns true;
// otherwise it returns err, which may be nil. All methods use it but [Sandbox.Kill];
// it is exported for workflows that use the future of [Sandbox.Follow] themselves.
func (s *Sandbox) Outlast(ctx workflow.Context, err error) (again bool, _ error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	if s.CreatedAt.IsZero() || refusal(err) == "" {
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

// do executes an activity, and again for as long as it is refused.
func (s *Sandbox) do(ctx workflow.Context, result any, activity string, args ...any) error {
	for {
		err := workflow.ExecuteActivity(s.brief(ctx), activity, args...).Get(ctx, result)
		again, err := s.Outlast(ctx, err)
		if !again {
			return err
		}
	}
}
