package session

import "go.temporal.io/sdk/temporal"

// maxInterrupts limits the interrupts that the command has not received yet.
const maxInterrupts = 100

// A run of a workflow can take 2,000 updates, and no other run begins while a command runs or
// the platform refuses. These limits leave room for interrupts and a destroy. The next run
// begins after rollCalls, if it can.
const (
	rollCalls         = 900
	maxCalls          = 1000
	maxInterruptCalls = 1500
)

// checkCalls refuses a call that would leave no room for interrupts and a destroy.
func (s *run) checkCalls() error {
	if s.calls < maxCalls {
		return nil
	}
	return temporal.NewApplicationError("too many calls: wait until the running command has ended", errQueueFullType)
}
