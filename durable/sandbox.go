package durable

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Options describes the sandbox of a workflow. Everything in it becomes part of
// the workflow's history, so it has no place for secrets: give environment
// variables by EnvFrom.
type Options struct {
	// Name is the sandbox's name, by which it is found again. Empty means
	// "durable-" and the workflow's ID.
	Name string `json:"name,omitempty"`
	// Runtime and Image exclude each other; see sandbox.CreateOptions.
	Runtime string `json:"runtime,omitempty"`
	Image   string `json:"image,omitempty"`
	// SnapshotID is a snapshot to begin from, Git a repository; they exclude each
	// other.
	SnapshotID string `json:"snapshotId,omitempty"`
	Git        *Git   `json:"git,omitempty"`
	// Region is where machines are started, FailoverRegions where that is not
	// possible.
	Region          string   `json:"region,omitempty"`
	FailoverRegions []string `json:"failoverRegions,omitempty"`
	// Mounts maps directories to drives.
	Mounts map[string]sandbox.Mount `json:"mounts,omitempty"`
	// Ports are exposed.
	Ports []int `json:"ports,omitempty"`
	// NetworkPolicy is that of a new sandbox. Values of headers are left out of
	// its JSON: [Worker.Prepare] sets them. Nil allows everything.
	NetworkPolicy *sandbox.NetworkPolicy `json:"networkPolicy,omitempty"`
	// VCPUs is the size. Zero means the platform's default.
	VCPUs int `json:"vcpus,omitempty"`
	// Tags are kept in addition to those that this package adds to find its sandboxes:
	// "durable" and "durable-workflow".
	Tags map[string]string `json:"tags,omitempty"`
	// EnvFrom names the environment that [Worker.Env] gives each command.
	EnvFrom string `json:"envFrom,omitempty"`
	// Lease is how long the machine may run after its last use: its timeout,
	// renewed while commands run. Zero means 15 minutes.
	Lease time.Duration `json:"lease,omitempty"`
	// Heartbeat is after how long without a sign of life a worker's activity is
	// given to another worker. Zero means 10 seconds, and one is the least.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// FollowQueue is the task queue of the workers that follow commands, which
	// have [Worker.RegisterFollow]. Following takes a slot of a worker for as
	// long as the command runs: on a queue of its own it takes none from what
	// starts, interrupts and ends others. Empty means the workflow's queue.
	FollowQueue string `json:"followQueue,omitempty"`
}

// Git is a repository that a sandbox begins with. [Worker.Prepare] sets the
// credentials of one that is private.
type Git struct {
	// URL is the address. A user, a password and the query are never shown, but they
	// would be in the history: they are for [Worker.Prepare], too.
	URL string `json:"url" secret:"url"`
	// Revision is a branch, tag or commit. Empty means the default branch.
	Revision string `json:"revision,omitempty"`
	// Depth limits the history to that many commits. Zero fetches all of it.
	Depth int `json:"depth,omitempty"`
}

// Format prints the repository without credentials, for every verb.
func (g Git) Format(f fmt.State, verb rune) { redact.Struct(f, verb, g) }

func (o Options) lease() time.Duration {
	if o.Lease == 0 {
		return 15 * time.Minute
	}
	return o.Lease
}

func (o Options) heartbeat() time.Duration {
	if o.Heartbeat == 0 {
		return 10 * time.Second
	}
	return max(o.Heartbeat, time.Second)
}

// Sandbox is a sandbox of a workflow. It is a value of workflow code: only the
// workflow that opened it uses it, from one coroutine at a time.
type Sandbox struct {
	Options Options `json:"options"`
	// VM is the ID of the session that runs; empty while hibernated.
	VM string `json:"vm,omitempty"`
	// StartedAt and ExpiresAt are when that session began, and when its lease
	// ends unless it is renewed.
	StartedAt time.Time `json:"startedAt,omitzero"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Ahead is how much the workflow's clock is ahead of the service's, of which those
	// times are, if that is more than a response may take.
	Ahead time.Duration `json:"ahead,omitempty"`
	// CreatedAt is when the sandbox was made. It changes when its files were
	// lost, because their snapshot had expired or was deleted, and it was made
	// anew, empty; Resets counts that.
	CreatedAt time.Time `json:"createdAt"`
	Resets    int       `json:"resets,omitempty"`
	// Rollbacks counts the machines that ended without saving their files, as
	// those do that crash: what was written since the last snapshot is lost. The
	// last time, the files were those of SavedAt. See [Sandbox.Refresh].
	Rollbacks int       `json:"rollbacks,omitempty"`
	SavedAt   time.Time `json:"savedAt,omitzero"`
	// Rewinds counts how often commands were found to have run that the history has
	// lost. Epoch is when keys began to be numbered: at the opening, and at each of those.
	Rewinds int    `json:"rewinds,omitempty"`
	Epoch   string `json:"epoch,omitempty"`
	// Ended is the session that ended by itself, until the next is started.
	Ended string `json:"ended,omitempty"`
	// Opening says that a machine may run of which nothing is known: a call that was to
	// start one was cancelled, or has failed.
	Opening bool `json:"opening,omitempty"`
	// Commands is how many were started, and numbers their keys.
	Commands int `json:"commands,omitempty"`
	// Runtime is the image or runtime that it was made with.
	Runtime string `json:"runtime,omitempty"`

	// OnRefused, if not nil, is called when the platform refuses a request of
	// a sandbox that it had opened, for want of a right, a quota or a deployment
	// that works: err says why. It waits, for pause unless it knows better, and
	// returns nil to have it tried again, or the error to give up with. It is
	// called with a nil err once that is over. Nil waits for pause. It is not
	// part of the JSON.
	OnRefused func(ctx workflow.Context, err error, pause time.Duration) error `json:"-"`

	// OnLoss, if not nil, is called before a command is run after a loss: err matches
	// [ErrReset], [ErrRolledBack] or [ErrRewound]. It returns nil to have it run, or the
	// error of the call that would have. Nil runs it after ErrRolledBack alone. It is
	// not part of the JSON.
	OnLoss func(ctx workflow.Context, err error) error `json:"-"`

	refusals int // in a row
}

// DefaultName is the name of a workflow's sandbox, unless its Options have one.
func DefaultName(workflowID string) string { return "durable-" + workflowID }

// Open makes the sandbox of that name, or starts the one that there is. One that fails,
// or whose ctx is cancelled, leaves no machine that runs, and no sandbox that it has made.
func Open(ctx workflow.Context, o *Options) (*Sandbox, error) {
	if err := entry.Check(ctx, true, "durable", ""); err != nil {
		return nil, err
	}
	s := &Sandbox{}
	if o != nil {
		s.Options = *o
	}
	if s.Options.Name == "" {
		s.Options.Name = DefaultName(workflow.GetInfo(ctx).WorkflowExecution.ID)
	}
	s.Epoch = moment(ctx)
	err := s.Resume(ctx)
	if err != nil {
		s.abandon(ctx)
	}
	s.noteGivenUp(ctx, err != nil)
	return s, err
}

// givenUp begins the key of a workflow's memo that names its last opening, if that was
// given up. The key says it, since a data converter may hide values.
const givenUp = "durable-given-up-"

// noteGivenUp notes whether the opening was given up: a request of it that arrives when
// nobody looks for its sandbox any more makes one that only Sweep can find. An opening
// that succeeds may have found that of an earlier one.
func (s *Sandbox) noteGivenUp(ctx workflow.Context, is bool) {
	memo := map[string]any{}
	for key := range workflow.GetInfo(ctx).Memo.GetFields() {
		if strings.HasPrefix(key, givenUp) {
			memo[key] = nil
		}
	}
	if is {
		memo[givenUp+s.Epoch] = true
	}
	if len(memo) > 0 {
		if err := workflow.UpsertMemo(ctx, memo); err != nil { // a data converter's
			workflow.GetLogger(ctx).Error("sandbox: what was given up is not noted: Sweep will not delete it", "sandbox", s.Options.Name, "error", err)
		}
	}
}

// abandonWithin is how long abandoning a sandbox may take that may have been made, or
// started, by a call that has failed. After that, its lease ends it, and Sweep deletes it.
const abandonWithin = 10 * time.Minute

// abandon undoes what an opening has done that has failed.
func (s *Sandbox) abandon(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	opts := workflow.GetActivityOptions(s.brief(ctx))
	opts.ScheduleToCloseTimeout = abandonWithin
	_ = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), activityAbandon, s.Options.Name, s.Epoch).Get(ctx, nil)
}

// check refuses what would panic in a workflow, which is tried again for ever.
func (s *Sandbox) check(ctx workflow.Context) error {
	return entry.Check(ctx, s != nil && s.Options.Name != "", "durable", "the Sandbox")
}

// Resume starts the machine if it does not run. Calls that need it do so by
// themselves.
func (s *Sandbox) Resume(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	var m machine
	if s.VM != "" {
		s.Ended = s.VM // unless it is found to run
	}
	// Who is cancelled meanwhile has to know whether the machine runs.
	s.Opening = true
	if err := s.do(waiting(ctx), &m, activityOpen, s.Options, s.Epoch, s.Ended); err != nil {
		return err
	}
	s.Opening = false
	s.hear(ctx, m)
	s.take(m)
	return nil
}

// hear notes what the time is where the machine is.
func (s *Sandbox) hear(ctx workflow.Context, m machine) {
	const slow = 5 * time.Minute
	if m.Now.IsZero() {
		return
	}
	if s.Ahead = workflow.Now(ctx).Sub(m.Now); s.Ahead.Abs() < slow {
		s.Ahead = 0
	}
}

// take notes that another machine runs.
func (s *Sandbox) take(m machine) {
	switch {
	case !s.CreatedAt.IsZero() && !m.CreatedAt.Equal(s.CreatedAt):
		s.Resets++
	case !m.SavedAt.IsZero():
		s.Rollbacks, s.SavedAt = s.Rollbacks+1, m.SavedAt
	}
	s.Ended = ""
	s.VM, s.StartedAt, s.ExpiresAt, s.CreatedAt, s.Runtime = m.ID, m.StartedAt, m.ExpiresAt, m.CreatedAt, m.Runtime
}

// Adopt is [Sandbox.Renew] for a sandbox that others use by the SDK: the machine that
// runs may be one that they have started since.
func (s *Sandbox) Adopt(ctx workflow.Context) (runs bool, err error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	var m machine
	if err := s.do(ctx, &m, activityAdopt, s.Options, cmp.Or(s.VM, s.Ended)); err != nil {
		return false, err
	}
	s.hear(ctx, m)
	switch m.ID {
	case "":
		if s.VM != "" {
			s.ended()
		}
		return false, nil
	case s.VM:
		s.ExpiresAt = m.ExpiresAt
	default:
		s.take(m)
	}
	return true, nil
}

// Renew makes the lease last for Lease from now, and reports whether the machine
// still runs. Where the platform's cap does not allow as much, it is as long as
// that allows.
func (s *Sandbox) Renew(ctx workflow.Context) (runs bool, err error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	if s.VM == "" {
		return false, nil
	}
	var m machine
	if err := s.do(ctx, &m, activityRenew, s.Options, s.VM); err != nil {
		return false, err
	}
	if m.ID == "" {
		s.ended()
		return false, nil
	}
	s.hear(ctx, m)
	s.ExpiresAt = m.ExpiresAt
	return true, nil
}

// ended notes that the machine has ended by itself.
func (s *Sandbox) ended() { s.Ended, s.VM = s.VM, "" }

// Hibernate stops the machine with a snapshot of its files; the next call that
// needs it starts it again. One that does not run is not an error.
func (s *Sandbox) Hibernate(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if s.VM == "" && !s.Opening {
		return nil
	}
	var ran bool
	if err := s.do(ctx, &ran, activityStop, s.Options.Name, s.VM); err != nil {
		return err
	}
	if s.Opening = false; s.VM == "" {
		return nil
	}
	if s.ended(); ran {
		s.Ended = ""
	}
	return nil
}

// Refresh moves the files to a new machine, whose time begins anew: it stops the
// one that runs, with a snapshot, and starts another. What a machine that crashes
// loses is what was written since.
func (s *Sandbox) Refresh(ctx workflow.Context) error {
	if err := s.Hibernate(ctx); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Snapshot saves the files and returns the snapshot's ID, for the SnapshotID of
// other sandboxes. The machine ends with it, as that of any snapshot does; the
// next call starts it again.
func (s *Sandbox) Snapshot(ctx workflow.Context) (string, error) {
	if err := s.check(ctx); err != nil {
		return "", err
	}
	if s.VM == "" {
		if err := s.Resume(ctx); err != nil {
			return "", err
		}
	}
	var id string
	if err := s.do(ctx, &id, activitySnapshot, s.Options.Name, s.VM); err != nil {
		return "", err
	}
	s.VM = ""
	return id, nil
}

// Close stops the machine, also when ctx was cancelled, and keeps the sandbox.
// It is meant for defer.
func (s *Sandbox) Close(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	return s.Hibernate(ctx)
}

// Delete deletes the sandbox with its files, also when ctx was cancelled.
func (s *Sandbox) Delete(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if err := s.do(ctx, nil, activityDelete, s.Options.Name); err != nil {
		return err
	}
	s.VM, s.Opening = "", false
	return nil
}

// waiting makes calls return once their activity has ended, also when ctx is cancelled.
func waiting(ctx workflow.Context) workflow.Context {
	opts := workflow.GetActivityOptions(ctx)
	opts.WaitForCancellation = true
	return workflow.WithActivityOptions(ctx, opts)
}

// What follows a command, which others wait for, is tried again often: its attempts are
// those of a whole day.
const followPause = 10 * time.Second

// tryPause is how long at most the attempts of something else are apart. A thousand
// sandboxes that wake in an outage do not exceed the platform's limit so, and nothing that
// the outage has not lost is lost by a pause in addition.
func (o Options) tryPause() time.Duration {
	return min(max(o.lease()/6, followPause), 5*time.Minute)
}

func retries(longest time.Duration) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval: 200 * time.Millisecond, MaximumInterval: longest,
		NonRetryableErrorTypes: []string{errInvalid, errUnauthorized, errQuota, errRefused},
	}
}

// brief is for activities that do one thing and are retried for as long as it
// takes.
func (s *Sandbox) brief(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute, HeartbeatTimeout: s.Options.heartbeat(), RetryPolicy: retries(s.Options.tryPause()),
		WaitForCancellation: workflow.GetActivityOptions(ctx).WaitForCancellation,
	})
}

// followTime is after how long a command is followed anew, from its start.
const followTime = 24 * time.Hour

// of has an activity shown with the command that it is for.
func of(ctx workflow.Context, output string) workflow.Context {
	opts := workflow.GetActivityOptions(ctx)
	opts.Summary = path.Base(output)
	return workflow.WithActivityOptions(ctx, opts)
}

// long is for following a command.
func (s *Sandbox) long(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: s.Options.FollowQueue, StartToCloseTimeout: followTime, HeartbeatTimeout: s.Options.heartbeat(), RetryPolicy: retries(followPause),
	})
}

// Message returns what went wrong, without Temporal's wrapping around it.
func Message(err error) string {
	if e, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return e.Message()
	}
	return fmt.Sprint(err)
}
