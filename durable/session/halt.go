package session

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// Values of [Policy].Halt: after which losses, of files or of what is known of
// commands, a session waits for [Client.Go].
const (
	// HaltAny halts after any loss, also one of what was written since the files were
	// saved.
	HaltAny = "any"
	// HaltNever goes on after any loss.
	HaltNever = "never"
)

// losses are how often something was lost.
type losses struct{ resets, rollbacks, rewinds int }

func (s *run) losses() losses {
	return losses{s.Sandbox.Resets, s.Sandbox.Rollbacks, s.Sandbox.Rewinds}
}

// lost reports whether an error says that something is lost.
func lost(err error) bool {
	return errors.Is(err, durable.ErrReset) || errors.Is(err, durable.ErrRolledBack) || errors.Is(err, durable.ErrRewound)
}

// halts reports whether commands wait after a loss until somebody says go.
func (p Policy) halts(loss error) bool {
	switch p.Halt {
	case HaltNever:
		return false
	case HaltAny:
		return lost(loss)
	}
	return errors.Is(loss, durable.ErrReset) || errors.Is(loss, durable.ErrRewound)
}

// onLoss is the sandbox's question whether the command is to run that found a loss.
func (s *run) onLoss(_ workflow.Context, loss error) error {
	if s.in.Policy.halts(loss) {
		return loss
	}
	return nil
}

// halt keeps the commands that wait from running after a loss, if the policy says so.
func (s *run) halt(ctx workflow.Context, loss error) {
	if loss == nil || !s.in.Policy.halts(loss) {
		return
	}
	s.Halted = loss.Error()
	s.emit(ctx, Event{Type: TypeStatus, State: StateHalted, Error: s.Halted})
}

// rewound says that commands were run of which the history knows nothing.
func (s *run) rewound(ctx workflow.Context, before losses) {
	if s.losses().rewinds == before.rewinds {
		return
	}
	s.emit(ctx, Event{Type: TypeStatus, State: StateRewound, Error: durable.ErrRewound.Error()})
	if !s.in.Policy.halts(durable.ErrRewound) {
		s.status(ctx, StateActive)
	}
	s.halt(ctx, durable.ErrRewound)
}

// acceptGo is the validator of a go.
func (s *run) acceptGo(workflow.Context, struct{}) error {
	if err := s.open(); err != nil {
		return err
	}
	if s.Halted == "" {
		return temporal.NewApplicationError("the session is not halted", errNothingType)
	}
	return nil
}

func (s *run) goOn(ctx workflow.Context, _ struct{}) error {
	s.calls++
	s.Halted = ""
	if s.Sandbox.VM == "" {
		s.status(ctx, StateHibernated)
	} else {
		s.status(ctx, StateActive)
	}
	return nil
}

// work reports whether the queue has something for which it is time.
func (s *run) work() bool { return len(s.Queue) > 0 && s.Halted == "" || s.waitsForHold() }

// Go has a session go on that has halted after a loss, as its Policy says: the commands
// that wait run, on what is left. One that has not is no error. Until then,
// [Client.Hold] gives the machine to whoever restores what is lost. It needs a worker
// to be up.
func (c *Client) Go(ctx context.Context, id string) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	err := c.update(ctx, id, updateGo, struct{}{}, nil)
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}
