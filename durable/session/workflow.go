package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// Names of the workflow, its messages and its activity. They are part of
// histories, and stay as they are.
const (
	workflowName     = "sandbox.Session"
	queryEvents      = "events"
	queryState       = "state"
	updateCommand    = "command"
	updateInterrupt  = "interrupt"
	updateDestroy    = "destroy"
	signalInterrupt  = "interrupt"
	signalTouch      = "touch"
	signalDestroy    = "destroy"
	activityArchive  = "session.Archive"
	activityClear    = "session.Clear"
	errDestroyedType = "Destroyed"
	errQueueFullType = "QueueFull"
	errRollingType   = "Rolling"
	errNoCommandType = "NoCommand"
	errNothingType   = "NothingToInterrupt"
)

// Changes of what the workflow decides, for workflow.GetVersion.
const (
	changeRollSignals  = "signals-while-rolling"
	changeRollQueue    = "rolls-with-queue"
	changeRefreshQueue = "refreshes-with-queue"
	changeRefusedKill  = "outlasts-refused-signals"
	changeSwollen      = "measures-events-as-json"
	changeEscalates    = "escalates-interrupts"
)

// input begins a run of the workflow; State is carried over continue-as-new.
type input struct {
	Options durable.Options `json:"options"`
	Policy  Policy          `json:"policy"`
	State   *state          `json:"state,omitempty"`
}

type state struct {
	Sandbox   *durable.Sandbox `json:"sandbox,omitempty"`
	StartedAt time.Time        `json:"startedAt"`
	LastUse   time.Time        `json:"lastUse"`
	// Base is the number of the first event that is kept here.
	Base   int      `json:"base"`
	Events []stored `json:"events"`
	// Pages are the numbers of the first events of the pages in the store.
	Pages   []int    `json:"pages,omitempty"`
	Counter int      `json:"counter"`
	Queue   []queued `json:"queue,omitempty"`
	// Keys are the last idempotency keys, with the command that each made.
	Keys []keyed `json:"keys,omitempty"`
	// Unsaved is how many commands were started since the files were saved.
	Unsaved int `json:"unsaved,omitempty"`
	// Interrupts are those of commands in the queue.
	Interrupts []interrupt `json:"interrupts,omitempty"`
}

// stored is an event as the workflow keeps it, with the handle that its stream
// does not show.
type stored struct {
	Event  Event  `json:"event"`
	Handle []byte `json:"handle,omitempty"`
	// Decision is the number of the event of Temporal's history with which the
	// decision began that made the event; 0 if it is of a run before.
	Decision int `json:"decision,omitempty"`
}

type queued struct{ ID, Command string }

type keyed struct{ Key, ID string }

// keepKeys is how many idempotency keys are remembered.
const keepKeys = 1000

type commandUpdate struct{ Key, Command string }

type interrupt struct {
	ID     string
	Signal int
}

// DestroyOptions says what is left of a destroyed session.
type DestroyOptions struct {
	// DeleteSandbox deletes the sandbox with its files, which are kept
	// otherwise.
	DeleteSandbox bool `json:"deleteSandbox,omitempty"`
	// RemoveOutput removes the stored output and events.
	RemoveOutput bool `json:"removeOutput,omitempty"`
}

// run is one run of the workflow.
type run struct {
	*state
	in         input
	id, run    string
	closed     bool
	rolling    bool
	destroy    *DestroyOptions
	interrupts []interrupt
	touched    bool
	begun      string // the command that has left the queue
	current    string // the command that runs
	ran        bool   // a command has, in this run
	refused    refused
	calls      int       // commands and interrupts that were taken
	rollAfter  time.Time // not before, since the store was away
}

// Workflow is the session. It is registered by [Register] and started by
// [Client.Start].
func Workflow(ctx workflow.Context, in input) error {
	in.Policy = in.Policy.withDefaults()
	if in.Options.Lease == 0 {
		in.Options.Lease = in.Policy.IdleAfter + 2*time.Minute
	}
	s := &run{state: in.State, in: in, id: workflow.GetInfo(ctx).WorkflowExecution.ID, run: workflow.GetInfo(ctx).OriginalRunID}
	if s.state == nil {
		now := workflow.Now(ctx)
		s.state = &state{StartedAt: now, LastUse: now}
	}
	s.interrupts, s.Interrupts = s.Interrupts, nil
	if err := s.listen(ctx); err != nil {
		return err
	}
	if s.Sandbox != nil {
		s.Sandbox.OnRefused = s.onRefused
	}
	err := s.live(ctx)
	if workflow.IsContinueAsNewError(err) {
		return err
	}
	if errors.Is(err, errGivenUp) {
		err = nil
	}
	return s.end(ctx, err)
}

// listen installs the handlers of messages.
func (s *run) listen(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, queryEvents, func(from int) (page, error) { return s.page(from), nil }); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(ctx, queryState, func() (State, error) { return s.describe(), nil }); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, updateCommand, s.enqueue, workflow.UpdateHandlerOptions{Validator: s.accept}); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, updateInterrupt, s.interrupt, workflow.UpdateHandlerOptions{Validator: s.acceptInterrupt}); err != nil {
		return err
	}
	end := func(_ workflow.Context, o DestroyOptions) error { s.destroy = &o; return nil }
	if err := workflow.SetUpdateHandlerWithOptions(ctx, updateDestroy, end, workflow.UpdateHandlerOptions{
		Validator: func(workflow.Context, DestroyOptions) error { return s.open() },
	}); err != nil {
		return err
	}
	// The signals are those of clients that know no updates, and the touch.
	workflow.Go(ctx, func(ctx workflow.Context) {
		sel := workflow.NewSelector(ctx)
		sel.AddReceive(workflow.GetSignalChannel(ctx, signalDestroy), func(c workflow.ReceiveChannel, _ bool) {
			var o DestroyOptions
			c.Receive(ctx, &o)
			s.destroy = &o
		})
		sel.AddReceive(workflow.GetSignalChannel(ctx, signalTouch), func(c workflow.ReceiveChannel, _ bool) {
			c.Receive(ctx, nil)
			s.touched, s.refused.hurry = true, true
		})
		sel.AddReceive(workflow.GetSignalChannel(ctx, signalInterrupt), func(c workflow.ReceiveChannel, _ bool) {
			var i interrupt
			c.Receive(ctx, &i)
			s.interrupts = append(s.interrupts, i)
		})
		for {
			sel.Select(ctx)
		}
	})
	return nil
}

// takeSignals lets the coroutine of listen take the signals that have come with
// this task of the workflow.
func takeSignals(ctx workflow.Context) error {
	taken := false
	workflow.Go(ctx, func(workflow.Context) { taken = true }) // runs behind that one
	return workflow.Await(ctx, func() bool { return taken })
}

// open refuses what comes too late for the session, or for this run of it.
func (s *run) open() error {
	switch {
	case s.destroy != nil || s.closed:
		return temporal.NewApplicationError("the session is destroyed", errDestroyedType)
	case s.rolling:
		return temporal.NewApplicationError("the session is continuing as new", errRollingType)
	}
	return nil
}

// maxInterrupts is how many may wait to be passed on.
const maxInterrupts = 100

// One run of a workflow takes 2,000 updates, and begins no other while a command runs.
// Its owner must still be able to interrupt that, and to destroy the session, whatever
// was sent.
const (
	maxCommandCalls   = 1000
	maxInterruptCalls = 1500
)

// acceptInterrupt is the validator of an interrupt.
func (s *run) acceptInterrupt(_ workflow.Context, i interrupt) error {
	if err := s.open(); err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscanf(i.ID, "cmd-%d", &n); i.ID != "" && (err != nil || n < 1 || n > s.Counter) {
		return temporal.NewApplicationError("the session has no such command", errNoCommandType)
	}
	if s.target(i.ID) == "" {
		return temporal.NewApplicationError("there is nothing to interrupt", errNothingType)
	}
	if len(s.interrupts) >= maxInterrupts || s.calls >= maxInterruptCalls {
		return temporal.NewApplicationError("too many interrupts wait", errQueueFullType)
	}
	return nil
}

// interrupt takes an interrupt for one command, the one that runs unless it is
// named, and reports whether there is one that is not over. It never hits the
// next one.
func (s *run) interrupt(_ workflow.Context, i interrupt) (taken bool, err error) {
	s.calls++
	if i.ID = s.target(i.ID); i.ID == "" {
		return false, nil
	}
	s.interrupts = append(s.interrupts, i)
	return true, nil
}

// target is the command that an interrupt is for, the one that runs if it names
// none, and empty if that is over.
func (s *run) target(id string) string {
	if id == "" || id == s.begun || slices.ContainsFunc(s.Queue, func(q queued) bool { return q.ID == id }) {
		return cmp.Or(id, s.begun)
	}
	return ""
}

// accept is the validator of a command: what it refuses leaves no trace.
func (s *run) accept(_ workflow.Context, c commandUpdate) error {
	if err := s.open(); err != nil {
		return err
	}
	switch {
	case s.begun != "" && s.calls >= maxCommandCalls:
		return temporal.NewApplicationError("too many commands and interrupts until the command that runs has ended", errQueueFullType)
	case s.known(c.Key) != "":
	case len(s.Queue) >= s.in.Policy.QueueLimit, len(s.Queue) > 0 && s.queueSize()+queued{Command: c.Command}.size() > queueBytes:
		return temporal.NewApplicationError("the session's queue is full", errQueueFullType)
	}
	return nil
}

func (s *run) known(key string) string {
	short := keyOf(key)
	if i := slices.IndexFunc(s.Keys, func(k keyed) bool { return k.Key == short || k.Key == key }); key != "" && i >= 0 {
		return s.Keys[i].ID
	}
	return ""
}

// enqueue takes a command, once for each key.
func (s *run) enqueue(ctx workflow.Context, c commandUpdate) (string, error) {
	s.calls++
	if id := s.known(c.Key); id != "" {
		return id, nil
	}
	s.Counter++
	id := fmt.Sprintf("cmd-%d", s.Counter)
	if c.Key != "" {
		s.Keys = append(s.Keys[max(len(s.Keys)+1-keepKeys, 0):], keyed{keyOf(c.Key), id})
	}
	s.Queue = append(s.Queue, queued{id, c.Command})
	s.refused.hurry = true
	s.emit(ctx, Event{Type: TypeCommandQueued, ID: id, Command: c.Command})
	return id, nil
}

func (s *run) emit(ctx workflow.Context, e Event) { s.keep(ctx, stored{Event: e}) }

func (s *run) keep(ctx workflow.Context, e stored) {
	e.Event.Seq, e.Event.At = s.Base+len(s.Events), millis(workflow.Now(ctx))
	e.Decision = workflow.GetInfo(ctx).GetCurrentHistoryLength()
	s.Events = append(s.Events, e)
	countEvent(ctx, e.Event)
}

// status emits the state that the sandbox is in.
func (s *run) status(ctx workflow.Context, state string) {
	e := Event{Type: TypeStatus, State: state}
	if state == StateActive {
		e.SandboxID, e.SessionID, e.SandboxExpiresAt = s.Sandbox.Options.Name, s.Sandbox.VM, millis(s.Sandbox.ExpiresAt)
	}
	s.emit(ctx, e)
}

// live goes on until the session is destroyed, fails, or continues as new.
func (s *run) live(ctx workflow.Context) error {
	if s.Sandbox == nil {
		sb, err := durable.Open(ctx, &s.in.Options)
		if err != nil {
			return err
		}
		s.Sandbox = sb
		sb.OnRefused = s.onRefused
		s.emit(ctx, Event{
			Type: TypeCreated, SandboxID: sb.Options.Name, Runtime: cmp.Or(sb.Options.Runtime, sb.Runtime), StartedAt: millis(s.StartedAt),
			SandboxExpiresAt: millis(sb.ExpiresAt), HibernateAfterMs: s.in.Policy.IdleAfter.Milliseconds(),
		})
		s.status(ctx, StateActive)
	}
	for s.destroy == nil {
		switch {
		case len(s.Queue) > 0 && s.aging(ctx):
			if err := s.refresh(ctx); err != nil {
				return err
			}
		case len(s.Queue) > 0 && !s.overdue(ctx):
			next := s.Queue[0]
			s.Queue = s.Queue[1:]
			if err := s.command(ctx, next); err != nil {
				return err
			}
		case s.full(ctx):
			return s.roll(ctx)
		default:
			if err := s.rest(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *run) ready() bool { return s.destroy != nil || s.touched || len(s.Queue) > 0 }

// rest waits for a command, and hibernates or refreshes when it is time. While
// hibernated there is no timer at all.
func (s *run) rest(ctx workflow.Context) error {
	s.interrupts = nil // none is for a command that is over
	if s.Sandbox.VM == "" {
		s.touched = false // a touch does not wake it
		return workflow.Await(ctx, s.ready)
	}
	idle := s.LastUse.Add(s.in.Policy.IdleAfter)
	refresh := s.refreshAt()
	wake := idle
	if refresh.Before(wake) {
		wake = refresh
	}
	ok, err := workflow.AwaitWithTimeout(ctx, max(wake.Sub(workflow.Now(ctx)), 0), s.ready)
	switch {
	case err != nil:
		return err
	case s.touched:
		s.touched = false
		return s.used(ctx)
	case ok:
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

// refreshAt is when the machine is left for a new one, which saves the files: before
// its time is up, or for a checkpoint.
func (s *run) refreshAt() time.Time {
	p := s.in.Policy
	switch last := s.Sandbox.StartedAt.Add(p.MaxLifetime - p.RefreshMargin); {
	case p.CheckpointCommands > 0 && s.Unsaved >= p.CheckpointCommands:
		return s.Sandbox.StartedAt
	case p.CheckpointEvery > 0 && s.Unsaved > 0 && p.CheckpointEvery < p.MaxLifetime-p.RefreshMargin:
		return s.Sandbox.StartedAt.Add(p.CheckpointEvery)
	default:
		return last
	}
}

// aging reports whether the machine is too old for a command that waits. Runs of
// before this was seen to moved to a new one only when none did, which in a busy
// session is never.
func (s *run) aging(ctx workflow.Context) bool {
	return s.Sandbox.VM != "" && !workflow.Now(ctx).Before(s.refreshAt()) &&
		workflow.GetVersion(ctx, changeRefreshQueue, workflow.DefaultVersion, 1) == 1
}

// refresh moves to a new machine.
func (s *run) refresh(ctx workflow.Context) error {
	before := s.losses()
	s.status(ctx, StateRefreshing)
	if err := s.Sandbox.Refresh(ctx); err != nil {
		return err
	}
	s.awake(ctx, before)
	return nil
}

// used notes that the machine was used, and renews its lease.
func (s *run) used(ctx workflow.Context) error {
	s.noteUse(ctx)
	runs, err := s.Sandbox.Renew(ctx)
	if err == nil && !runs {
		s.status(ctx, StateHibernated) // its time was up
	}
	return err
}

func (s *run) noteUse(ctx workflow.Context) {
	s.LastUse = workflow.Now(ctx)
	s.emit(ctx, Event{Type: TypeActivity})
}

// command runs one command to its end.
func (s *run) command(ctx workflow.Context, c queued) error {
	s.begun = c.ID
	defer func() {
		s.begun = ""
		s.interrupts = slices.DeleteFunc(s.interrupts, func(i interrupt) bool { return i.ID == c.ID })
	}()
	if i := slices.IndexFunc(s.interrupts, func(i interrupt) bool { return i.ID == c.ID }); i >= 0 {
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: durable.Killed})
		return nil // before it began
	}
	if s.Sandbox.VM == "" {
		if err := s.wake(ctx); err != nil {
			return err
		}
	}
	s.current, s.ran = c.ID, true
	defer func() { s.current = "" }()
	vm, before := s.Sandbox.VM, s.losses()
	cmd, err := s.Sandbox.Start(ctx, "bash", []string{"-c", c.Command}, &durable.RunOptions{
		Key: workflow.GetInfo(ctx).FirstRunID + "." + c.ID, Output: s.id + "/" + c.ID, NoTail: true, MaxOutput: s.in.Policy.MaxOutput,
	})
	if errors.Is(err, errGivenUp) {
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: durable.Lost})
	}
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, errGivenUp) {
			return err
		}
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: "rejected", Error: durable.Message(err)})
		return nil
	}
	if s.Sandbox.VM != vm && s.Sandbox.VM != "" {
		s.status(ctx, StateResuming) // the machine had ended by itself
		s.awake(ctx, before)
	}
	s.Unsaved++
	s.keep(ctx, stored{Event: Event{
		Type: TypeCommandStart, ID: c.ID, Command: c.Command, SessionID: cmd.VM, CommandID: cmd.ID, Output: cmd.Output,
	}, Handle: cmd.Handle})
	res, err := s.follow(ctx, cmd)
	if errors.Is(err, errGivenUp) {
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: durable.Lost, Truncated: true})
	}
	if err != nil {
		return err
	}
	e := Event{
		Type: TypeCommandEnd, ID: c.ID, Outcome: res.Outcome, DurationMs: res.Duration.Milliseconds(), Bytes: res.Bytes,
		Archived: res.Archived, Output: res.Output, Tail: res.Tail, Truncated: res.Outcome == durable.Lost || res.Truncated,
	}
	if res.Outcome != durable.Lost {
		e.ExitCode = &res.ExitCode
	}
	if res.Archived {
		e.Tail = "" // the output is in the stream
	}
	s.emit(ctx, e)
	if s.Sandbox.VM == "" {
		s.status(ctx, StateHibernated)
		return nil
	}
	if !res.ExpiresAt.IsZero() { // the lease is renewed
		s.noteUse(ctx)
		return nil
	}
	return s.used(ctx)
}

// wake starts the machine again.
func (s *run) wake(ctx workflow.Context) error {
	before := s.losses()
	s.status(ctx, StateResuming)
	if err := s.Sandbox.Resume(ctx); err != nil {
		return err
	}
	s.awake(ctx, before)
	return nil
}

// losses are how often files were lost.
type losses struct{ resets, rollbacks int }

func (s *run) losses() losses { return losses{s.Sandbox.Resets, s.Sandbox.Rollbacks} }

// awake says that another machine runs, and which files it does not have.
func (s *run) awake(ctx workflow.Context, before losses) {
	s.Unsaved = 0
	switch now := s.losses(); {
	case now.resets != before.resets:
		s.status(ctx, StateReset)
	case now.rollbacks != before.rollbacks:
		s.emit(ctx, Event{Type: TypeStatus, State: StateRolledBack, SavedAt: millis(s.Sandbox.SavedAt)})
	}
	s.status(ctx, StateActive)
}

// follow waits for the command's end, passing interrupts on to it: the first as it
// is, one that comes later as SIGKILL, as the command has not ended of the first.
// A session that is destroyed meanwhile kills it.
func (s *run) follow(ctx workflow.Context, cmd *durable.Command) (*durable.Result, error) {
	done := s.Sandbox.Follow(ctx, cmd)
	killed, asked := false, false
	for {
		mine := func(i interrupt) bool { return i.ID == s.current || i.ID == "" }
		err := workflow.Await(ctx, func() bool {
			return done.IsReady() || s.destroy != nil && !killed || slices.ContainsFunc(s.interrupts, mine)
		})
		switch {
		case err != nil: // cancelled
			_ = s.Sandbox.Kill(ctx, cmd, sandbox.SIGKILL)
			return nil, err
		case done.IsReady():
			res, err := s.Sandbox.Result(ctx, cmd, done)
			again, err := s.Sandbox.Outlast(ctx, err)
			if !again {
				return res, err
			}
			done = s.Sandbox.Follow(ctx, cmd)
		case s.destroy != nil && !killed:
			killed = true
			if err := s.Sandbox.Kill(ctx, cmd, sandbox.SIGKILL); err != nil {
				if s.outlastsKills(ctx) {
					err = errGivenUp // the machine is stopped, and ends it
				}
				return nil, err
			}
		default:
			i := slices.IndexFunc(s.interrupts, mine)
			sig := sandbox.Signal(s.interrupts[i].Signal)
			s.interrupts = slices.Delete(s.interrupts, i, i+1)
			asks := sig == sandbox.SIGINT || sig == sandbox.SIGTERM
			if asks && asked && escalates(ctx) {
				sig = sandbox.SIGKILL
			}
			asked = asked || asks
			err := s.Sandbox.Kill(ctx, cmd, sig)
			if slices.ContainsFunc(s.interrupts, mine) && escalates(ctx) {
				// What came before the first has arrived is no second request.
				s.interrupts = slices.DeleteFunc(s.interrupts, func(i interrupt) bool { return mine(i) && sandbox.Signal(i.Signal) == sig })
			}
			if err != nil {
				if !s.outlastsKills(ctx) {
					return nil, err
				}
				s.emit(ctx, Event{Type: TypeStatus, State: StateBlocked, Error: durable.Message(err)})
				s.status(ctx, StateActive)
			}
		}
	}
}

// escalates reports whether a second interrupt of a command kills it, which it did
// not before.
func escalates(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, changeEscalates, workflow.DefaultVersion, 1) == 1
}

// outlastsKills reports whether the session goes on after a signal that was
// refused, as those of before this was seen to did not.
func (s *run) outlastsKills(ctx workflow.Context) bool {
	return ctx.Err() == nil && workflow.GetVersion(ctx, changeRefusedKill, workflow.DefaultVersion, 1) == 1
}

// full reports whether the history is long enough to begin a new one.
func (s *run) full(ctx workflow.Context) bool {
	if workflow.Now(ctx).Before(s.rollAfter) {
		return false
	}
	info := workflow.GetInfo(ctx)
	limit := s.in.Policy.HistoryLimit
	return info.GetContinueAsNewSuggested() || limit > 0 && info.GetCurrentHistoryLength() > limit || sizeOf(s.Events) > maxBytes
}

// overdue reports whether a new history is to begin although commands wait. A
// busy session always has waiting commands, so waiting for an empty queue would
// never roll over. Histories recorded before this check must still wait on replay.
func (s *run) overdue(ctx workflow.Context) bool {
	return s.ran && s.full(ctx) && workflow.GetVersion(ctx, changeRollQueue, workflow.DefaultVersion, 1) == 1
}

// roll continues as new, with the oldest events put into the store.
func (s *run) roll(ctx workflow.Context) error {
	s.rolling = true
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	if len(s.Queue) > 0 && !s.overdue(ctx) || s.destroy != nil || s.touched {
		return s.unroll(ctx)
	}
	had := len(s.Queue)
	s.rolling = false // the store may take its time
	if err := s.archive(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.rollAfter = workflow.Now(ctx).Add(rollPause)
		before := s.describe().State
		s.emit(ctx, Event{Type: TypeStatus, State: StateBlocked, Error: durable.Message(err)})
		s.status(ctx, before)
		return s.unroll(ctx)
	}
	s.rolling = true
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	if had == 0 && len(s.Queue) > 0 {
		return s.unroll(ctx)
	}
	// A signal received in the meantime would be lost with this run. Histories
	// recorded before this check must still continue as new on replay.
	if err := takeSignals(ctx); err != nil {
		return err
	}
	if (s.destroy != nil || s.touched) && workflow.GetVersion(ctx, changeRollSignals, workflow.DefaultVersion, 1) == 1 {
		return s.unroll(ctx)
	}
	s.Interrupts = s.waiting()
	carried := *s.state
	carried.Events = slices.Clone(s.Events) // queries still see those of this run
	for i := range carried.Events {
		carried.Events[i].Decision = 0
	}
	s.in.State = &carried
	return workflow.NewContinueAsNewError(ctx, workflowName, s.in)
}

// A store that fails for archiveWithin is away, and the session goes on with the
// history that it has for rollPause.
const (
	archiveWithin = time.Minute
	rollPause     = 5 * time.Minute
)

// archive puts the oldest events into the store.
func (s *run) archive(ctx workflow.Context) error {
	brief := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: archiveWithin, ScheduleToCloseTimeout: archiveWithin, RetryPolicy: &temporal.RetryPolicy{MaximumInterval: 10 * time.Second},
	})
	for len(s.Events) > s.in.Policy.KeepEvents || sizeOf(s.Events) > keepBytes || s.swollen(ctx) {
		n := pageOf(s.Events)
		var kept bool
		if err := workflow.ExecuteActivity(brief, activityArchive, s.id, s.Base, s.Events[:n]).Get(ctx, &kept); err != nil {
			return err
		}
		if kept {
			s.Pages = append(s.Pages, s.Base)
		}
		s.Base, s.Events = s.Base+n, s.Events[n:]
	}
	return nil
}

// swollen reports whether the events are too large for a payload although their
// texts are not, because of what JSON escapes. Histories recorded before this
// check must still keep them on replay.
func (s *run) swollen(ctx workflow.Context) bool {
	return jsonSizeOf(s.Events) > 2*keepBytes && workflow.GetVersion(ctx, changeSwollen, workflow.DefaultVersion, 1) == 1
}

// waiting returns the interrupts of commands in the queue, one each: those of
// others are over, or are of none.
func (s *run) waiting() (kept []interrupt) {
	first := map[string]interrupt{}
	for _, i := range slices.Backward(s.interrupts) {
		first[i.ID] = i
	}
	for _, q := range s.Queue {
		if i, ok := first[q.ID]; ok {
			kept = append(kept, i)
		}
	}
	return kept
}

// unroll goes on with this run for what came in while it was about to end.
func (s *run) unroll(ctx workflow.Context) error {
	s.rolling = false
	if s.touched { // live would roll again before it looks
		s.touched = false
		if s.Sandbox.VM != "" {
			if err := s.used(ctx); err != nil {
				return err
			}
		}
	}
	return s.live(ctx)
}

// end stops the machine and says how the session ended.
func (s *run) end(ctx workflow.Context, cause error) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	result := Event{Type: TypeResult, Status: StateDestroyed, DurationMs: workflow.Now(ctx).Sub(s.StartedAt).Milliseconds()}
	if cause != nil && !temporal.IsCanceledError(cause) {
		result.Status, result.Error = "failed", durable.Message(cause)
	} else {
		cause = nil
	}
	destroy := s.destroy
	if destroy == nil {
		destroy = &DestroyOptions{}
	}
	if s.Sandbox != nil {
		stop := s.Sandbox.Close
		s.refused.until = workflow.Now(ctx).Add(s.in.Options.Lease) // it has stopped by itself then
		if destroy.DeleteSandbox {
			stop = s.Sandbox.Delete
			s.refused.until = workflow.Now(ctx).Add(deleteWithin)
		}
		if err := stop(ctx); err != nil && cause == nil {
			cause = err
			result.Status, result.Error = "failed", durable.Message(err)
		}
	}
	if destroy.RemoveOutput {
		brief := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: deleteWithin})
		if err := workflow.ExecuteActivity(brief, activityClear, s.id).Get(ctx, nil); err != nil && cause == nil {
			cause = err
			result.Status, result.Error = "failed", durable.Message(err)
		}
	}
	s.status(ctx, StateDestroyed)
	s.emit(ctx, result)
	s.closed = true
	return cause
}
