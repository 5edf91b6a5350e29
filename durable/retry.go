package durable

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/go-vercel/sandbox"
)

// Types of errors that Temporal does not retry. A later request may succeed, after somebody
// has renewed a token, raised a quota or rolled back a deployment.
const (
	errInvalid      = "Invalid"
	errUnauthorized = "Unauthorized"
	errQuota        = "Quota"
	errRefused      = "Refused"
)

// followPause is the longest pause between attempts to follow a command. It is short,
// because others wait for the command.
const followPause = 10 * time.Second

// longestPause is the longest pause between attempts of the other activities. It keeps a
// thousand sandboxes that wake in an outage below the platform's rate limit, and is short
// enough for the lease.
func (o Options) longestPause() time.Duration {
	return min(max(o.lease()/6, followPause), 5*time.Minute)
}

func retries(longest time.Duration) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval: 200 * time.Millisecond, MaximumInterval: longest,
		NonRetryableErrorTypes: []string{errInvalid, errUnauthorized, errQuota, errRefused},
	}
}

// classify converts an error of the SDK to one that Temporal retries only if a retry can
// succeed.
func classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	api, isAPI := errors.AsType[*sandbox.APIError](err)
	switch {
	case errors.Is(err, sandbox.ErrInvalid):
		return invalidError(err)
	case errors.Is(err, sandbox.ErrRefused), errors.Is(err, sandbox.ErrSnapshotNotFound):
		return temporal.NewNonRetryableApplicationError(err.Error(), errRefused, nil)
	case errors.Is(err, sandbox.ErrUnauthorized):
		return temporal.NewNonRetryableApplicationError(err.Error(), errUnauthorized, nil)
	case errors.Is(err, sandbox.ErrQuotaExceeded):
		return temporal.NewNonRetryableApplicationError(err.Error(), errQuota, nil)
	}
	pause := nextPause(activity.GetInfo(ctx))
	if isAPI && api.RetryAfter > 0 {
		pause = max(pause, api.RetryAfter+rand.N(api.RetryAfter/4+1))
	}
	return temporal.NewApplicationErrorWithOptions(err.Error(), "Sandbox", temporal.ApplicationErrorOptions{NextRetryDelay: pause})
}

// nextPause returns how long the next attempt of an activity waits: the pause of its
// policy, less up to a half at random, so that activities do not all return at once after
// an outage.
func nextPause(info activity.Info) time.Duration {
	policy := cmp.Or(info.RetryPolicy, retries(followPause)) // an old server does not send it
	pause := min(policy.InitialInterval<<min(info.Attempt-1, 30), policy.MaximumInterval)
	return pause - rand.N(pause/2+1)
}

// invalidError returns an error that is never retried.
func invalidError(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), errInvalid, nil)
}
