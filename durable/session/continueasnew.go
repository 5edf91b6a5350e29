package session

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// historyFull reports whether it is time to continue as new.
func (s *run) historyFull(ctx workflow.Context) bool {
	if workflow.Now(ctx).Before(s.rollAfter) {
		return false
	}
	info := workflow.GetInfo(ctx)
	limit := s.in.Policy.HistoryLimit
	return info.GetContinueAsNewSuggested() || s.calls >= rollCalls || limit > 0 && info.GetCurrentHistoryLength() > limit || eventsSize(s.Events) > historyBytes
}

// mustContinueAsNew reports whether to continue as new even if commands wait, because the
// queue of a busy session may never be empty.
func (s *run) mustContinueAsNew(ctx workflow.Context) bool {
	return (s.ran || s.calls >= rollCalls) && s.historyFull(ctx)
}

// continueAsNew moves the oldest events to the store and then continues the workflow as
// new.
func (s *run) continueAsNew(ctx workflow.Context) error {
	s.rolling = true
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	if s.hasWork() && !s.mustContinueAsNew(ctx) || s.destroy != nil {
		return s.stayInRun(ctx)
	}
	had := s.hasWork()
	s.rolling = false // accept messages while the store works
	if err := s.archive(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.rollAfter = workflow.Now(ctx).Add(rollPause)
		before := s.describe().State
		s.emit(ctx, Event{Type: TypeStatus, State: StateBlocked, Error: durable.Message(err)})
		s.status(ctx, before)
		return s.stayInRun(ctx)
	}
	s.rolling = true
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	if !had && s.hasWork() || s.destroy != nil {
		return s.stayInRun(ctx)
	}
	s.Interrupts = s.queuedInterrupts()
	carried := *s.state
	carried.Events = slices.Clone(s.Events) // a copy: queries of this run still use the original events
	for i := range carried.Events {
		carried.Events[i].Decision = 0
	}
	s.in.State = &carried
	return workflow.NewContinueAsNewError(ctx, workflowName, s.in)
}

// If the store fails for archiveWithin, the session keeps its history for another rollPause.
const (
	archiveWithin = time.Minute
	rollPause     = 5 * time.Minute
)

// archive moves the oldest events to the store.
func (s *run) archive(ctx workflow.Context) error {
	brief := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: archiveWithin, ScheduleToCloseTimeout: archiveWithin, RetryPolicy: &temporal.RetryPolicy{MaximumInterval: 10 * time.Second},
	})
	for len(s.Events) > s.in.Policy.KeepEvents || eventsSize(s.Events) > keepBytes {
		n := pageLength(s.Events)
		var kept bool
		if err := workflow.ExecuteActivity(brief, activityArchive, s.dir, s.Base, s.Events[:n]).Get(ctx, &kept); err != nil {
			return err
		}
		if kept {
			s.Pages = append(s.Pages, s.Base)
		}
		s.Base, s.Events = s.Base+n, s.Events[n:]
	}
	return nil
}

// queuedInterrupts returns one interrupt for each interrupted command in the queue.
func (s *run) queuedInterrupts() (kept []interrupt) {
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

// stayInRun continues this run, because messages arrived while it was about to end.
func (s *run) stayInRun(ctx workflow.Context) error {
	s.rolling = false
	return s.runUntilEnd(ctx)
}
