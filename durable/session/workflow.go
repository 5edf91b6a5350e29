package session

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// Names of the workflow, its messages and its activities. Histories contain them, so they
// must not change. Their common prefix avoids conflicts with other workflows.
const (
	workflowName    = "sandbox.Session"
	queryEvents     = workflowName + ".events"
	queryState      = workflowName + ".state"
	updateCommand   = workflowName + ".command"
	updateInterrupt = workflowName + ".interrupt"
	updateDestroy   = workflowName + ".destroy"
	updateHold      = workflowName + ".hold"
	updateRelease   = workflowName + ".release"
	activityArchive = workflowName + ".Archive"
	activityClear   = workflowName + ".Clear"
)

// Types of errors in a session's answers.
const (
	errDestroyedType = "Destroyed"
	errQueueFullType = "QueueFull"
	errRollingType   = "Rolling"
	errNoCommandType = "NoCommand"
	errNothingType   = "NothingToInterrupt"
)

// input is the input of a run of the workflow. State is carried over continue-as-new.
type input struct {
	Options durable.Options `json:"options"`
	Policy  Policy          `json:"policy"`
	State   *state          `json:"state,omitempty"`
}

// DestroyOptions says what to delete with a session.
type DestroyOptions struct {
	// DeleteSandbox deletes the sandbox with its files.
	DeleteSandbox bool `json:"deleteSandbox,omitempty"`
	// RemoveOutput removes the stored output and events.
	RemoveOutput bool `json:"removeOutput,omitempty"`
}

// run is one run of the workflow.
type run struct {
	*state
	in         input
	id, run    string
	dir        string // the folder in the store, for this session only
	closed     bool
	rolling    bool
	destroy    *DestroyOptions
	interrupts []interrupt
	begun      string // the command that was taken from the queue
	current    string // the running command
	ran        bool   // a command ran in this run of the workflow
	refused    refused
	calls      int       // accepted commands, interrupts and holds
	rollAfter  time.Time // do not continue as new earlier, because the store failed
	// waitingHolds counts the updates that wait for their hold.
	waitingHolds int
	renewAfter   time.Time // do not renew the lease of a held machine earlier
	// replayed is the last decision that was replayed from the history. decided is the
	// state after the last decision. guesses says that the workflow has gone further than
	// the history's last decision.
	replayed int
	decided  decided
	guesses  bool
}

// Workflow is the Temporal workflow of a session, which [Register] registers and
// [Client.Start] starts.
func Workflow(ctx workflow.Context, in input) error {
	in.Policy = in.Policy.withDefaults()
	in.Options.Lease = cmp.Or(in.Options.Lease, in.Policy.lease())
	s := &run{state: in.State, in: in, id: workflow.GetInfo(ctx).WorkflowExecution.ID, run: workflow.GetInfo(ctx).OriginalRunID}
	if s.state == nil {
		now := workflow.Now(ctx)
		s.state = &state{StartedAt: now, LastUse: now}
	}
	s.dir = s.id + "/" + timestamp(s.StartedAt)
	s.interrupts, s.Interrupts = s.Interrupts, nil
	s.decided.State = s.describe()
	workflow.Go(ctx, s.noteDecisions)
	if err := s.setHandlers(ctx); err != nil {
		return err
	}
	if s.Sandbox != nil {
		s.Sandbox.OnRefused, s.Sandbox.OnLoss = s.onRefused, runAnyway
	}
	err := s.runUntilEnd(ctx)
	if workflow.IsContinueAsNewError(err) {
		return err
	}
	if errors.Is(err, errGivenUp) {
		err = nil
	}
	return s.end(ctx, err)
}

// runUntilEnd runs the session until it is destroyed, fails, or continues as new.
func (s *run) runUntilEnd(ctx workflow.Context) error {
	if s.Sandbox == nil {
		if err := s.create(ctx); err != nil {
			return err
		}
	}
	for s.destroy == nil {
		var err error
		held := s.isHeld(ctx)
		switch {
		case !held && s.pastMaxAge(ctx):
			s.destroy = &DestroyOptions{DeleteSandbox: true, RemoveOutput: true}
		case !held && s.Lent:
			err = s.endHold(ctx)
		case held && s.waitsForHold():
			err = s.grantHold(ctx)
		case held && s.historyFull(ctx) && (!s.hasWork() || s.mustContinueAsNew(ctx)):
			return s.continueAsNew(ctx)
		case held:
			err = s.keepHeld(ctx)
		case s.hasWork() && s.needsRefresh(ctx):
			err = s.refresh(ctx)
		case s.waitsForHold() && !s.mustContinueAsNew(ctx):
			err = s.grantHold(ctx)
		case s.hasWork() && !s.mustContinueAsNew(ctx):
			next := s.Queue[0]
			s.Queue = s.Queue[1:]
			err = s.runCommand(ctx, next)
		case s.historyFull(ctx):
			return s.continueAsNew(ctx)
		default:
			err = s.waitForWork(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// create creates the session's sandbox.
func (s *run) create(ctx workflow.Context) error {
	sb, err := durable.Open(ctx, &s.in.Options)
	if err != nil {
		return err
	}
	s.Sandbox = sb
	sb.OnRefused, sb.OnLoss = s.onRefused, runAnyway
	s.emit(ctx, Event{
		Type: TypeCreated, SandboxID: sb.Options.Name, Runtime: cmp.Or(sb.Options.Runtime, sb.Runtime), StartedAt: millis(s.StartedAt),
		SandboxExpiresAt: millis(sb.ExpiresAt), HibernateAfterMs: s.in.Policy.IdleAfter.Milliseconds(),
	})
	s.status(ctx, StateActive)
	return nil
}

// hasWork reports whether the queue is not empty.
func (s *run) hasWork() bool { return len(s.Queue) > 0 }

func (s *run) ready() bool { return s.destroy != nil || s.hasWork() }

// maxAgeAt returns when the session reaches its MaxAge, or the zero time if it has none.
func (s *run) maxAgeAt() time.Time {
	if s.in.Policy.MaxAge == 0 {
		return time.Time{}
	}
	return s.StartedAt.Add(s.in.Policy.MaxAge)
}

// pastMaxAge reports whether the session has reached its MaxAge.
func (s *run) pastMaxAge(ctx workflow.Context) bool {
	ends := s.maxAgeAt()
	return !ends.IsZero() && !workflow.Now(ctx).Before(ends)
}

// awaitUntil waits for ready or for the first nonzero deadline. It reports whether ready came
// first.
func awaitUntil(ctx workflow.Context, ready func() bool, deadlines ...time.Time) (bool, error) {
	deadlines = slices.DeleteFunc(deadlines, time.Time.IsZero)
	if len(deadlines) == 0 {
		return true, workflow.Await(ctx, ready)
	}
	first := slices.MinFunc(deadlines, time.Time.Compare)
	return workflow.AwaitWithTimeout(ctx, max(first.Sub(workflow.Now(ctx)), 0), ready)
}

// waitForWork waits for work, and hibernates or moves to a new machine when that is due. A
// hibernated session has a timer only for MaxAge.
func (s *run) waitForWork(ctx workflow.Context) error {
	s.interrupts = s.queuedInterrupts() // drop those of commands that have ended
	var idle, refresh time.Time
	if s.Sandbox.VM != "" {
		idle, refresh = s.LastUse.Add(s.in.Policy.IdleAfter), s.refreshAt()
	}
	ok, err := awaitUntil(ctx, s.ready, s.maxAgeAt(), idle, refresh)
	switch {
	case err != nil:
		return err
	case ok || s.pastMaxAge(ctx):
		return nil
	case refresh.Before(idle):
		return s.refresh(ctx)
	}
	s.status(ctx, StateHibernating)
	if err := s.Sandbox.Hibernate(ctx); err != nil {
		return err
	}
	s.status(ctx, StateHibernated)
	return nil
}

// refreshAt returns when to move to a new machine, which saves the files: before the
// machine's time is up, or for a checkpoint.
func (s *run) refreshAt() time.Time {
	p := s.in.Policy
	began := s.Sandbox.StartedAt.Add(s.Sandbox.Ahead)
	switch last := began.Add(p.MaxLifetime - p.RefreshMargin); {
	case p.CheckpointCommands > 0 && s.Unsaved >= p.CheckpointCommands:
		return began
	case p.CheckpointEvery > 0 && s.Unsaved > 0 && p.CheckpointEvery < p.MaxLifetime-p.RefreshMargin:
		return began.Add(p.CheckpointEvery)
	default:
		return last
	}
}

// needsRefresh reports whether to move to a new machine before the next command. A busy
// session never waits for work, so it moves between two commands.
func (s *run) needsRefresh(ctx workflow.Context) bool {
	return s.Sandbox.VM != "" && !workflow.Now(ctx).Before(s.refreshAt())
}

func (s *run) noteUse(ctx workflow.Context) {
	s.LastUse = workflow.Now(ctx)
	s.emit(ctx, Event{Type: TypeActivity})
}

// end stops the machine and emits the session's result.
func (s *run) end(ctx workflow.Context, cause error) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	result := Event{Type: TypeResult, Status: StateDestroyed, DurationMs: workflow.Now(ctx).Sub(s.StartedAt).Milliseconds()}
	if temporal.IsCanceledError(cause) {
		cause = nil
	}
	s.destroy = cmp.Or(s.destroy, &DestroyOptions{}) // refuse further messages
	destroy := s.destroy
	// Updates that wait for a hold return first.
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	if s.Sandbox != nil {
		stop := s.Sandbox.Close
		s.refused.until = workflow.Now(ctx).Add(s.in.Options.Lease) // by then, the end of its lease has stopped the machine
		if destroy.DeleteSandbox {
			stop = s.Sandbox.Delete
			s.refused.until = workflow.Now(ctx).Add(deleteWithin)
		}
		if err := stop(ctx); cause == nil {
			cause = err
		}
	}
	if destroy.RemoveOutput {
		brief := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: deleteWithin})
		if err := workflow.ExecuteActivity(brief, activityClear, s.id).Get(ctx, nil); cause == nil {
			cause = err
		}
	}
	if cause != nil {
		result.Status, result.Error = "failed", durable.Message(cause)
	}
	s.status(ctx, StateDestroyed)
	s.emit(ctx, result)
	s.closed = true
	return cause
}
