package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// cleanUpTimeout limits the time for stopping or removing a sandbox after its command.
const cleanUpTimeout = 30 * time.Second

// cleanUp returns the function that removes or stops a sandbox after its command, or nil if
// the sandbox continues to run.
func cleanUp(remove, stop bool) func(context.Context, *sandbox.Sandbox) error {
	switch {
	case remove:
		return func(ctx context.Context, sb *sandbox.Sandbox) error { return sb.Delete(ctx, nil) }
	case stop:
		return func(ctx context.Context, sb *sandbox.Sandbox) error {
			_, err := sb.Stop(ctx, nil)
			return err
		}
	}
	return nil
}

// runAndCleanUp calls work and then cleanUp, even if work fails. If both fail, it returns
// the error of work and prints the other as a warning.
func (p *deps) runAndCleanUp(ctx context.Context, sb *sandbox.Sandbox, work func() error, cleanUp func(context.Context, *sandbox.Sandbox) error) error {
	err := work()
	if cleanUp == nil {
		return err
	}
	late, cancel := withDeadline(ctx, cleanUpTimeout)
	defer cancel()
	if cleanErr := cleanUp(late, sb); cleanErr != nil {
		if err == nil {
			return cleanErr
		}
		p.screen.Warn(fmt.Sprintf("cleaning up %s failed: %v", sb.Name(), cleanErr), "try "+screen.Try("rm %s", sb.Name()))
	}
	return err
}
