package durable

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
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
	// streams maps the ID of each command that this worker has started to the open
	// response, until somebody reads it.
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
