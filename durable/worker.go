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

// Worker is what runs on workers: the activities behind [Sandbox]. It is safe for
// concurrent use once it is registered. The MetricsHandler of the Temporal client
// gets its metrics, and the Observer of Client those of the requests.
type Worker struct {
	// Client makes the requests.
	Client *sandbox.Client
	// ClientFor, if not nil, gives the client in its place, for a worker of several
	// tenants. ctx is that of an activity, which knows the ID of its workflow
	// (activity.GetInfo) and what context propagators carry; [Worker.Sweep] looks after
	// the tenant alone that its own ctx is for. An error is tried again, unless it
	// matches sandbox.ErrInvalid.
	ClientFor func(ctx context.Context) (*sandbox.Client, error)
	// Output keeps what commands write. Nil keeps nothing but each command's
	// last 2 KiB.
	Output OutputStore
	// Env gives the environment of commands whose sandbox names it by EnvFrom.
	// Its values never become part of a history.
	Env func(ctx context.Context, name string) (map[string]string, error)
	// Prepare, if not nil, changes what a sandbox is made with: it is the place for
	// what no history may hold, such as the credentials of a repository and the
	// headers of a network policy, and for what Options does not have. It is
	// called at each opening; Tags is not nil.
	Prepare func(ctx context.Context, o Options, create *sandbox.CreateOptions) error
	// Fleet tells the sandboxes of this Temporal namespace from those of others
	// in the same project, for [Worker.Sweep]. Empty means the namespace's ID,
	// which no two servers share. Give two namespaces one Fleet and each sweeps
	// the other's machines.
	Fleet string
	// DeleteAfter is for how long a sandbox has to stand still before Sweep deletes
	// it, with its files, if its workflow was terminated, has timed out or is unknown, or
	// had given up the opening that has made it: for longer than the namespace keeps
	// ended workflows, whose sandboxes may have been kept on purpose. Zero deletes none.
	DeleteAfter time.Duration

	// idsRefused: the service knows no IDs of the caller's for commands.
	idsRefused atomic.Bool
	// handed are commands of this worker's, by their IDs, whose output nobody reads
	// yet.
	handed sync.Map
	// namespaces are the IDs of namespaces, by their names.
	namespaces sync.Map
}

// Names of the activities. They are part of histories, and stay as they are.
const (
	activityOpen     = "sandbox.Open"
	activityRenew    = "sandbox.Renew"
	activityAdopt    = "sandbox.Adopt"
	activityStop     = "sandbox.Stop"
	activitySnapshot = "sandbox.Snapshot"
	activityDelete   = "sandbox.Delete"
	activityAbandon  = "sandbox.Abandon"
	activityStart    = "sandbox.Start"
	activityFollow   = "sandbox.Follow"
	activityKill     = "sandbox.Kill"
	activitySweep    = "sandbox.Sweep"
)

func (w *Worker) activities() map[string]any {
	return map[string]any{
		activityOpen: w.open, activityRenew: w.renew, activityAdopt: w.adopt, activityStop: w.stop, activitySnapshot: w.snapshot, activityDelete: w.delete, activityAbandon: w.abandon,
		activityStart: w.start, activityFollow: w.follow, activityKill: w.kill, activitySweep: w.sweep,
	}
}

// Registry is what a worker.Worker and a test environment have in common.
type Registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Register registers the activities and [SweepWorkflow].
func (w *Worker) Register(r Registry) {
	for name, f := range w.activities() {
		r.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	r.RegisterWorkflowWithOptions(SweepWorkflow, workflow.RegisterOptions{Name: "sandbox.Sweep"})
}

// RegisterFollow registers the activity that follows commands, on workers of
// [Options].FollowQueue: give them as many slots as commands may run at once.
func (w *Worker) RegisterFollow(r Registry) {
	r.RegisterActivityWithOptions(w.follow, activity.RegisterOptions{Name: activityFollow})
}

// classify makes of an error of the SDK what Temporal retries as it should be.
func classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	api, isAPI := errors.AsType[*sandbox.APIError](err)
	switch {
	case errors.Is(err, sandbox.ErrInvalid):
		return invalid(err)
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

// nextPause is how long the next attempt of an activity waits: as its policy says, less up to
// a half, at random. What an outage has stopped at once does not come back at once.
func nextPause(info activity.Info) time.Duration {
	policy := cmp.Or(info.RetryPolicy, retries(followPause)) // which an old server does not tell
	pause := min(policy.InitialInterval<<min(info.Attempt-1, 30), policy.MaximumInterval)
	return pause - rand.N(pause/2+1)
}

// invalid is the error of what can't ever be done.
func invalid(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), errInvalid, nil)
}

// alive sends heartbeats, and ends the context that it gives when the worker is
// stopping, so that another one takes over at once. The caller calls stop.
func alive(ctx context.Context) (_ context.Context, stop func()) {
	return aliveWith(ctx, func() []any { return nil })
}

// aliveWith is alive, with what heartbeats tell.
func aliveWith(ctx context.Context, details func() []any) (_ context.Context, stop func()) {
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
