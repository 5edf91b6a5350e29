package agent

import (
	"context"

	"github.com/go-vercel/sandbox"
)

func machineTools() []*tool {
	return []*tool{
		newTool("port_url", "Return the public address of a port, exposing the port if need be, and wait until something answers there", portURL),
		newTool("create_snapshot", "Save the files as they are. This stops the sandbox: all of its processes end.", createSnapshot),
		newTool("restore_snapshot", "Restore the files of a snapshot of this sandbox. All of its processes end.", restoreSnapshot).asDestructive(),
		newTool("stop_sandbox", "Stop the sandbox, so that it costs nothing. Its files are kept; the next call starts it again.", stopSandbox).asDestructive().asFindingSandbox(),
	}
}

type noInput struct{}

// stopper is implemented by Sessions that can stop a sandbox without resuming it first.
type stopper interface {
	// stop returns the sandbox that it found, even if stopping it failed. It returns nil
	// if there is nothing to stop.
	stop(ctx context.Context, conversation string) (*sandbox.Sandbox, error)
}

func stopSandbox(ctx context.Context, c *call, _ *noInput) (Result, error) {
	sb, err := c.t.stop(ctx, c.Conversation)
	if err != nil && sb != nil {
		c.sb, c.state = sb, c.t.stateFor(c.Conversation)
		return c.t.checkEnd(ctx, c, Result{}, err)
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Text: "The sandbox stopped. The next call starts it again, with its files."}, nil
}

// stop stops the sandbox of a conversation. It returns the same as the method of stopper.
func (t *Toolset) stop(ctx context.Context, conversation string) (*sandbox.Sandbox, error) {
	if s, ok := t.sessions.(stopper); ok {
		sb, err := s.stop(ctx, conversation)
		if err != nil && sb == nil && t.client == nil {
			err = &sessionError{err}
		}
		return sb, err
	}
	sb, release, err := t.acquire(ctx, conversation)
	if err != nil {
		return nil, err
	}
	defer release()
	_, err = sb.Stop(ctx, nil)
	return sb, err
}

func (e *diskError) Error() string { return "agent: artifacts: " + e.err.Error() }
