package durable

import (
	"errors"
	"strconv"

	"go.temporal.io/sdk/workflow"
)

// Losses of a workflow's sandbox. See [Sandbox.OnLoss].
var (
	// ErrReset means that all files are lost: their snapshot, or the sandbox, was deleted,
	// and a new, empty sandbox was created.
	ErrReset = errors.New("durable: the sandbox's files are lost: it was created again, empty")
	// ErrRolledBack means that everything written since the last snapshot is lost: the
	// machine ended without saving its files.
	ErrRolledBack = errors.New("durable: the sandbox's files are those of its last snapshot")
	// ErrRewound means that commands ran that this history does not contain: Temporal's
	// database lost its last writes, as after a power cut, or was restored from a copy.
	ErrRewound = errors.New("durable: commands ran that are missing from the workflow's history")
)

// checkLoss returns nil if a call continues after a loss, or the error to return.
func (s *Sandbox) checkLoss(ctx workflow.Context, loss error) error {
	if s.OnLoss != nil {
		return s.OnLoss(ctx, loss)
	}
	if errors.Is(loss, ErrRolledBack) {
		return nil
	}
	return loss
}

// ensureMachine starts the machine for a command unless it runs. An error means that the
// command must not run after a loss.
func (s *Sandbox) ensureMachine(ctx workflow.Context) error {
	if s.VM != "" {
		return nil
	}
	resets, rollbacks := s.Resets, s.Rollbacks
	if err := s.Resume(ctx); err != nil {
		return err
	}
	switch {
	case s.Resets != resets:
		return s.checkLoss(ctx, ErrReset)
	case s.Rollbacks != rollbacks:
		return s.checkLoss(ctx, ErrRolledBack)
	}
	return nil
}

// noteRewound counts a rewind. It also starts a new epoch, because the lost history has
// used keys of the current one.
func (s *Sandbox) noteRewound(ctx workflow.Context) {
	s.Rewinds++
	s.Epoch = timestamp(ctx)
}

// timestamp returns the workflow's current time as a text. Different histories of a
// workflow reach the same line of code at different times, so the text differs between
// them.
func timestamp(ctx workflow.Context) string {
	return strconv.FormatInt(workflow.Now(ctx).UnixNano(), 36)
}
