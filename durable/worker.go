package durable

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
)

// Worker executes the activities of [Sandbox]. It is safe for concurrent use after it is
// registered. Its metrics go to the MetricsHandler of the Temporal client, and those of
// its requests to the Observer of Client.
type Worker struct {
	// Client makes the requests.
	Client *sandbox.Client
	// Output stores the output of commands. If it is nil, only the last 2 KiB of each are
	// kept.
	Output OutputStore
	// Env returns the environment of commands whose sandbox has EnvFrom. Its values never
	// become part of a history.
	Env func(ctx context.Context, name string) (map[string]string, error)
	// Prepare, if not nil, changes the options of a sandbox before each opening. Use it
	// for secrets, which must not be in a history, such as the credentials of a repository
	// or the headers of a network policy, and for fields that Options lacks. Tags is not
	// nil.
	Prepare func(ctx context.Context, o Options, create *sandbox.CreateOptions) error
	// Fleet identifies the sandboxes of this Temporal namespace for [Worker.Sweep], if
	// several namespaces use one project. Empty means the namespace's ID, which is unique.
	// Two namespaces with the same Fleet sweep each other's machines.
	Fleet string
	// DeleteAfter is how long an abandoned sandbox has to be stopped before Sweep deletes
	// it with its files. It has to be longer than the namespace keeps ended workflows,
	// which may have kept their sandboxes on purpose. Zero deletes none.
	DeleteAfter time.Duration

	// idsRefused says that the service does not accept the caller's command IDs.
	idsRefused atomic.Bool
	// streams contains the open responses to starts of this worker that nobody reads yet,
	// by the commands' IDs.
	streams sync.Map
	// namespaces maps the names of namespaces to their IDs.
	namespaces sync.Map
}

// Names of the activities. Histories contain them, so they must not change.
const (
	activityOpen     = "sandbox.Open"
	activityRenew    = "sandbox.Renew"
	activityStop     = "sandbox.Stop"
	activitySnapshot = "sandbox.Snapshot"
	activityDelete   = "sandbox.Delete"
	activityAbandon  = "sandbox.Abandon"
	activityStart    = "sandbox.Start"
	activityFollow   = "sandbox.Follow"
	activityKill     = "sandbox.Kill"
	activitySweep    = "sandbox.Sweep"
)

// Registry is a worker.Worker or a test environment.
type Registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Register registers the activities and [SweepWorkflow].
func (w *Worker) Register(r Registry) {
	for name, f := range map[string]any{
		activityOpen: w.open, activityRenew: w.renew, activityStop: w.stop, activitySnapshot: w.snapshot, activityDelete: w.delete, activityAbandon: w.abandon,
		activityStart: w.start, activityFollow: w.follow, activityKill: w.kill, activitySweep: w.sweep,
	} {
		r.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	r.RegisterWorkflowWithOptions(SweepWorkflow, workflow.RegisterOptions{Name: "sandbox.Sweep"})
}

// RegisterFollow registers the activity that follows commands on a worker of
// [Options].FollowQueue. Give that worker as many slots as commands may run at once.
func (w *Worker) RegisterFollow(r Registry) {
	r.RegisterActivityWithOptions(w.follow, activity.RegisterOptions{Name: activityFollow})
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

// heartbeat sends heartbeats until stop is called. It cancels the returned context when the
// worker stops, so that another worker takes over at once.
func heartbeat(ctx context.Context) (_ context.Context, stop func()) {
	return heartbeatWith(ctx, func() []any { return nil })
}

// heartbeatWith is heartbeat with details.
func heartbeatWith(ctx context.Context, details func() []any) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	every := max(activity.GetInfo(ctx).HeartbeatTimeout/3, 100*time.Millisecond)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				activity.RecordHeartbeat(ctx, details()...)
			case <-activity.GetWorkerStopChannel(ctx):
				cancel()
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}
