package durable

import (
	"errors"
	"strconv"

	"go.temporal.io/sdk/workflow"
)

// What a sandbox of a workflow can lose. See [Sandbox.OnLoss].
var (
	// ErrReset matches when all files are lost: their snapshot, or the sandbox, was
	// deleted, and it was made anew, empty.
	ErrReset = errors.New("durable: the sandbox's files are lost, and it was made anew")
	// ErrRolledBack matches when what was written since the last snapshot is lost: the
	// machine has ended without saving its files.
	ErrRolledBack = errors.New("durable: the sandbox's files are those of its last snapshot")
	// ErrRewound matches when commands were run that this history knows nothing of:
	// Temporal's database has lost what came last, as after a power cut, or was put back
	// to an earlier copy.
	ErrRewound = errors.New("durable: commands were run that are lost from the workflow's history")
)

// lost decides whether a call goes on after a loss.
func (s *Sandbox) lost(ctx workflow.Context, loss error) error {
	if s.OnLoss != nil {
		return s.OnLoss(ctx, loss)
	}
	if errors.Is(loss, ErrRolledBack) {
		return nil
	}
	return loss
}

// awake starts the machine for a command unless it runs. An error says that the command
// is not to be run after what is lost.
func (s *Sandbox) awake(ctx workflow.Context) error {
	if s.VM != "" {
		return nil
	}
	resets, rollbacks := s.Resets, s.Rollbacks
	if err := s.Resume(ctx); err != nil {
		return err
	}
	switch {
	case s.Resets != resets:
		return s.lost(ctx, ErrReset)
	case s.Rollbacks != rollbacks:
		return s.lost(ctx, ErrRolledBack)
	}
	return nil
}

// rewound notes that the numbers of commands are used up by a history that is lost.
func (s *Sandbox) rewound(ctx workflow.Context) {
	s.Rewinds++
	s.Epoch = moment(ctx)
}

// moment is the time of a decision, which no other history of the workflow has made then.
func moment(ctx workflow.Context) string { return strconv.FormatInt(workflow.Now(ctx).UnixNano(), 36) }
