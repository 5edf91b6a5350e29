package session

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// runCommand runs a command to its end.
func (s *run) runCommand(ctx workflow.Context, c queued) error {
	s.begun = c.ID
	defer func() {
		s.begun = ""
		s.interrupts = slices.DeleteFunc(s.interrupts, func(i interrupt) bool { return i.ID == c.ID })
	}()
	if i := slices.IndexFunc(s.interrupts, func(i interrupt) bool { return i.ID == c.ID }); i >= 0 {
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: durable.Killed})
		return nil // it never starts
	}
	if s.Sandbox.VM == "" {
		if err := s.wake(ctx); err != nil {
			return err
		}
	}
	s.current, s.ran = c.ID, true
	defer func() { s.current = "" }()
	before := s.losses()
	cmd, err := s.startCommand(ctx, c, before)
	if err != nil || cmd == nil {
		return err
	}
	return s.followToEnd(ctx, c, cmd, before)
}

// startCommand starts a command. It returns nil if the command was rejected or given up.
func (s *run) startCommand(ctx workflow.Context, c queued, before losses) (*durable.Command, error) {
	vm := s.Sandbox.VM
	args, from := []string{"-c", c.Command}, ""
	if c.Text != "" {
		args, from = args[:1], textKey(s.id, c.Text)
	}
	cmd, err := s.Sandbox.Start(ctx, "bash", args, &durable.RunOptions{
		Output: s.outputKey(ctx, c.ID), NoTail: true, MaxOutput: s.in.Policy.MaxOutput, ArgFrom: from, Timeout: s.in.Policy.MaxRun,
	})
	if s.Sandbox.VM != vm && s.Sandbox.VM != "" {
		s.status(ctx, StateResuming) // the machine had ended by itself
		s.noteAwake(ctx, before)
	}
	s.noteRewound(ctx, before)
	switch {
	case err == nil:
	case errors.Is(err, errGivenUp):
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: durable.Lost})
		return nil, err
	case ctx.Err() != nil:
		return nil, err
	default:
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: "rejected", Error: durable.Message(err)})
		return nil, nil //nolint:nilnil // there is none
	}
	s.Unsaved++
	s.appendEvent(ctx, stored{Event: Event{
		Type: TypeCommandStart, ID: c.ID, Command: c.Command, SessionID: cmd.VM, CommandID: cmd.ID, Output: cmd.Output,
	}, Handle: cmd.Handle, Text: c.Text})
	return cmd, nil
}

// followToEnd follows a command to its end.
func (s *run) followToEnd(ctx workflow.Context, c queued, cmd *durable.Command, before losses) error {
	res, err := s.follow(ctx, cmd)
	if errors.Is(err, errGivenUp) {
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: durable.Lost, Truncated: true})
	}
	if errors.Is(err, durable.ErrRewound) { // only on a service without command IDs: the command did not run
		s.emit(ctx, Event{Type: TypeCommandEnd, ID: c.ID, Outcome: "rejected", Error: err.Error()})
		s.noteRewound(ctx, before)
		return nil
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
	s.noteUse(ctx)
	if !res.ExpiresAt.IsZero() {
		return nil // following the command has renewed the lease
	}
	return s.renew(ctx)
}

// wake starts the machine again.
func (s *run) wake(ctx workflow.Context) error {
	return s.startMachine(ctx, StateResuming, s.Sandbox.Resume)
}

// refresh moves to a new machine.
func (s *run) refresh(ctx workflow.Context) error {
	return s.startMachine(ctx, StateRefreshing, s.Sandbox.Refresh)
}

func (s *run) startMachine(ctx workflow.Context, state string, start func(workflow.Context) error) error {
	before := s.losses()
	s.status(ctx, state)
	if err := start(ctx); err != nil {
		return err
	}
	s.noteAwake(ctx, before)
	return nil
}

// noteAwake emits that a new machine runs, and whether it has lost files.
func (s *run) noteAwake(ctx workflow.Context, before losses) {
	s.Unsaved = 0
	switch now := s.losses(); {
	case now.resets != before.resets:
		s.status(ctx, StateReset)
	case now.rollbacks != before.rollbacks:
		s.emit(ctx, Event{Type: TypeStatus, State: StateRolledBack, SavedAt: millis(s.Sandbox.SavedAt)})
	}
	s.status(ctx, StateActive)
}

// losses counts the sandbox's losses.
type losses struct{ resets, rollbacks, rewinds int }

func (s *run) losses() losses {
	return losses{s.Sandbox.Resets, s.Sandbox.Rollbacks, s.Sandbox.Rewinds}
}

// runAnyway is the OnLoss of a session's sandbox: events report the loss, and the next
// command runs.
func runAnyway(workflow.Context, error) error { return nil }

// noteRewound emits that commands ran that are missing from the history.
func (s *run) noteRewound(ctx workflow.Context, before losses) {
	if s.losses().rewinds == before.rewinds {
		return
	}
	s.emit(ctx, Event{Type: TypeStatus, State: StateRewound, Error: durable.ErrRewound.Error()})
	s.status(ctx, StateActive)
}

// outputKey returns the key of a command's stored output. It contains the time, so it
// differs from the key of a command with the same number in a lost history, or in an
// earlier session with the same ID.
func (s *run) outputKey(ctx workflow.Context, id string) string {
	return s.dir + "/" + id + "-" + timestamp(workflow.Now(ctx))
}

// timestamp returns a time as part of a name.
func timestamp(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 36) }

// follow waits for the command's end and sends it the interrupts. For the second interrupt,
// it sends SIGKILL, because the first one did not end the command. Destroying the session
// kills the command.
func (s *run) follow(ctx workflow.Context, cmd *durable.Command) (*durable.Result, error) {
	done := s.Sandbox.Follow(ctx, cmd)
	killed, asked := false, false
	for {
		mine := func(i interrupt) bool { return i.ID == s.current || i.ID == "" }
		err := workflow.Await(ctx, func() bool {
			return done.IsReady() || s.destroy != nil && !killed || slices.ContainsFunc(s.interrupts, mine)
		})
		switch {
		case err != nil: // canceled
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
				if ctx.Err() == nil {
					err = errGivenUp // stopping the machine ends the command
				}
				return nil, err
			}
		default:
			i := slices.IndexFunc(s.interrupts, mine)
			sig := sandbox.Signal(s.interrupts[i].Signal)
			s.interrupts = slices.Delete(s.interrupts, i, i+1)
			asks := sig == sandbox.SIGINT || sig == sandbox.SIGTERM
			if asks && asked {
				sig = sandbox.SIGKILL
			}
			asked = asked || asks
			err := s.Sandbox.Kill(ctx, cmd, sig)
			if slices.ContainsFunc(s.interrupts, mine) {
				// Interrupts that came before the first one reached the command do not
				// count as a second one.
				s.interrupts = slices.DeleteFunc(s.interrupts, func(i interrupt) bool { return mine(i) && sandbox.Signal(i.Signal) == sig })
			}
			if err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				s.emit(ctx, Event{Type: TypeStatus, State: StateBlocked, Error: durable.Message(err)})
				s.status(ctx, StateActive)
			}
		}
	}
}
