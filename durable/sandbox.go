package durable

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/internal/entry"
)

// Sandbox is a sandbox of a workflow. Only the workflow that opened it may use it, from
// one coroutine at a time.
type Sandbox struct {
	Options Options `json:"options"`
	// VM is the ID of the running session. It is empty while the sandbox hibernates.
	VM string `json:"vm,omitempty"`
	// StartedAt is the start of that session, and ExpiresAt the end of its lease.
	StartedAt time.Time `json:"startedAt,omitzero"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Ahead is how far the workflow's clock is ahead of the service's clock, which
	// StartedAt and ExpiresAt come from. Differences below five minutes count as zero,
	// because slow responses can cause them.
	Ahead time.Duration `json:"ahead,omitempty"`
	// CreatedAt is when the sandbox was created. It changes if the files were lost,
	// because their snapshot expired or was deleted, and a new, empty sandbox was created.
	// Resets counts that.
	CreatedAt time.Time `json:"createdAt"`
	Resets    int       `json:"resets,omitempty"`
	// Rollbacks counts the machines that ended without saving their files, such as those
	// that crashed. The files that the last one began with were saved at SavedAt. See
	// [Sandbox.Refresh].
	Rollbacks int       `json:"rollbacks,omitempty"`
	SavedAt   time.Time `json:"savedAt,omitzero"`
	// Rewinds counts how often the sandbox had run commands that the history has lost.
	// Epoch is when the numbering of keys began: at the opening, or at the last rewind.
	Rewinds int    `json:"rewinds,omitempty"`
	Epoch   string `json:"epoch,omitempty"`
	// Ended is the session that ended by itself, until the next one starts.
	Ended string `json:"ended,omitempty"`
	// Opening says that an unknown machine may run: a call that starts one was canceled or
	// has failed.
	Opening bool `json:"opening,omitempty"`
	// Commands counts the started commands. The count is part of their keys.
	Commands int `json:"commands,omitempty"`
	// Runtime is the image or runtime of the sandbox.
	Runtime string `json:"runtime,omitempty"`

	// OnRefused, if not nil, is called when the platform refuses a request of a sandbox
	// that was open before, for example because of a quota. err says why. OnRefused waits,
	// usually for pause, and returns nil to retry, or the error to give up with. After the
	// refusals it is called once more with a nil err. Nil waits for pause. It is not part
	// of the JSON.
	OnRefused func(ctx workflow.Context, err error, pause time.Duration) error `json:"-"`

	// OnLoss, if not nil, is called before the first command after a loss. err matches
	// [ErrReset], [ErrRolledBack] or [ErrRewound]. OnLoss returns nil to run the command,
	// or the error to return instead. If OnLoss is nil, the command runs only after
	// ErrRolledBack. It is not part of the JSON.
	OnLoss func(ctx workflow.Context, err error) error `json:"-"`

	refusals int // in a row
}

// DefaultName returns the name of a workflow's sandbox if its Options have none.
func DefaultName(workflowID string) string { return "durable-" + workflowID }

// Open creates the sandbox, or starts the one that has its name. If it fails, or ctx is
// canceled, it leaves no running machine, and no sandbox that it has created.
func Open(ctx workflow.Context, o *Options) (*Sandbox, error) {
	if err := entry.Check(ctx, true, "durable", ""); err != nil {
		return nil, err
	}
	s := &Sandbox{Options: *cmp.Or(o, new(Options))}
	s.Options.Name = cmp.Or(s.Options.Name, DefaultName(workflow.GetInfo(ctx).WorkflowExecution.ID))
	s.Epoch = timestamp(ctx)
	err := s.Resume(ctx)
	if err != nil {
		s.abandon(ctx)
	}
	return s, err
}

// abandonWithin limits how long a failed opening tries to abandon its sandbox. After that,
// the lease stops the machine.
const abandonWithin = 10 * time.Minute

// abandon undoes a failed opening.
func (s *Sandbox) abandon(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	opts := workflow.GetActivityOptions(s.withShortOptions(ctx))
	opts.ScheduleToCloseTimeout = abandonWithin
	_ = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), activityAbandon, s.Options.Name, s.Epoch).Get(ctx, nil)
}

// check returns an error for a nil Sandbox. Without it, the call would panic, and Temporal
// retries a workflow that panics for ever.
func (s *Sandbox) check(ctx workflow.Context) error {
	return entry.Check(ctx, s != nil && s.Options.Name != "", "durable", "the Sandbox")
}

// Resume starts the machine unless it runs. Calls that need the machine start it
// themselves.
func (s *Sandbox) Resume(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	var m machine
	if s.VM != "" {
		s.Ended = s.VM // the machine may have ended; the activity finds out
	}
	// After a cancellation, Close has to know that a machine may run.
	s.Opening = true
	if err := s.execute(withCancelWait(ctx), &m, activityOpen, s.Options, s.Epoch, s.Ended, s.StartedAt); err != nil {
		return err
	}
	s.Opening = false
	s.noteClock(ctx, m)
	s.setMachine(m)
	return nil
}

// noteClock sets Ahead, the difference between the workflow's clock and the service's.
func (s *Sandbox) noteClock(ctx workflow.Context, m machine) {
	const slow = 5 * time.Minute
	if m.Now.IsZero() {
		return
	}
	if s.Ahead = workflow.Now(ctx).Sub(m.Now); s.Ahead.Abs() < slow {
		s.Ahead = 0
	}
}

// setMachine records the new machine, and counts a reset or a rollback.
func (s *Sandbox) setMachine(m machine) {
	switch {
	case !s.CreatedAt.IsZero() && !m.CreatedAt.Equal(s.CreatedAt):
		s.Resets++
	case !m.SavedAt.IsZero():
		s.Rollbacks, s.SavedAt = s.Rollbacks+1, m.SavedAt
	}
	s.Ended = ""
	s.VM, s.StartedAt, s.ExpiresAt, s.CreatedAt, s.Runtime = m.ID, m.StartedAt, m.ExpiresAt, m.CreatedAt, m.Runtime
}

// Renew makes the lease last for Options.Lease from now, or for as long as the platform
// allows. It reports whether a machine runs, which may be another one if others use the
// sandbox with the SDK.
func (s *Sandbox) Renew(ctx workflow.Context) (runs bool, err error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	var m machine
	if err := s.execute(ctx, &m, activityRenew, s.Options, cmp.Or(s.VM, s.Ended), s.StartedAt); err != nil {
		return false, err
	}
	s.noteClock(ctx, m)
	switch m.ID {
	case "":
		if s.VM != "" {
			s.noteEnded()
		}
		return false, nil
	case s.VM:
		s.ExpiresAt = m.ExpiresAt
	default:
		s.setMachine(m)
	}
	return true, nil
}

// noteEnded records that the machine has ended by itself.
func (s *Sandbox) noteEnded() { s.Ended, s.VM = s.VM, "" }

// Hibernate stops the machine with a snapshot of its files. The next call that needs the
// machine starts it again. It is not an error if the machine does not run.
func (s *Sandbox) Hibernate(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if s.VM == "" && !s.Opening {
		return nil
	}
	var ran bool
	if err := s.execute(ctx, &ran, activityStop, s.Options.Name, s.VM); err != nil {
		return err
	}
	if s.Opening = false; s.VM == "" {
		return nil
	}
	if s.noteEnded(); ran {
		s.Ended = ""
	}
	return nil
}

// Refresh moves the files to a new machine with a full lifetime: it stops the running
// machine with a snapshot, and starts another. A machine that crashes loses only what was
// written since.
func (s *Sandbox) Refresh(ctx workflow.Context) error {
	if err := s.Hibernate(ctx); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Snapshot saves the files and returns the snapshot's ID, for the SnapshotID of other
// sandboxes. This ends the machine. The next call starts it again.
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
	if err := s.execute(ctx, &id, activitySnapshot, s.Options.Name, s.VM); err != nil {
		return "", err
	}
	s.VM = ""
	return id, nil
}

// Close stops the machine, even if ctx was canceled, and keeps the sandbox. It is meant
// for defer.
func (s *Sandbox) Close(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	return s.Hibernate(ctx)
}

// Delete deletes the sandbox with its files, even if ctx was canceled.
func (s *Sandbox) Delete(ctx workflow.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if err := s.execute(ctx, nil, activityDelete, s.Options.Name); err != nil {
		return err
	}
	s.VM, s.Opening = "", false
	return nil
}

// Message returns the text of an error without what Temporal wraps around it.
func Message(err error) string {
	if e, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return e.Message()
	}
	return fmt.Sprint(err)
}
