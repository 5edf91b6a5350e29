package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/wire"
)

// ErrChildren matches the error of a signal or kill that was to reach a process
// with its children, if it has reached the process alone: the sandbox has no
// program sh or no /proc, or the process can't be told from others there.
var ErrChildren = engine.ErrChildren

// SignalTree is like [Command.Signal], but sends the signal to the process and
// to all that descend from it: its children, and theirs. It makes two requests,
// since the service signals one process only: the first stops the process, and
// the second runs a script of sh in the sandbox that finds what descends from
// it, sends the signal to all of them and lets them continue. If that is not
// possible, the process alone gets the signal, and the error matches
// [ErrChildren]. Calls for commands of one session take turns.
//
// A child that has moved to a session or group of its own is reached for as long
// as it descends from the process. One whose parent has ended, as that of a
// daemon has, no longer does. If ctx ends meanwhile, SignalTree may take a
// second longer, to signal the process alone and not leave it stopped.
func (c *Command) SignalTree(ctx context.Context, sig Signal) error {
	if sig == SIGSTOP || sig == SIGCONT {
		return invalid("sig", "%v can't be sent to a tree, which is stopped and continued on the way", sig)
	}
	if sig <= 0 || sig > 64 {
		return invalid("sig", "%d is not a Linux signal", int(sig))
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return api.ContextError(ctx)
	}
	stopped := false
	end, err := client.trees.Take(ctx, c.session)
	if err == nil {
		defer end()
		if err = c.Signal(ctx, SIGSTOP); errors.Is(err, os.ErrProcessDone) {
			return err
		}
		if _, over := c.ExitStatus(); err == nil && over {
			return nil // what was lost is the response to its end
		}
		stopped = err == nil || isUnknown(err)
		if stopped && ctx.Err() == nil {
			if err = c.signalStopped(ctx, client, sig); err == nil {
				return nil
			}
		}
	}
	alone := ctx
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		alone, cancel = context.WithTimeout(context.WithoutCancel(ctx), engine.TreeGrace)
		defer cancel()
	}
	if aloneErr := c.signalAlone(alone, sig, stopped); aloneErr != nil {
		return aloneErr
	}
	return fmt.Errorf("sandbox: signal command %s: %w: %w", c.ID(), ErrChildren, err)
}

// signalStopped signals the process, which is stopped, and what descends from
// it.
func (c *Command) signalStopped(ctx context.Context, client *Client, sig Signal) error {
	data := c.wire()
	name, args := coreutils.Carry("sh", append([]string{"-c", engine.TreeScript, "sh", strconv.Itoa(int(sig)), data.Name}, data.Args...))
	res, err := program{name: name, args: args, spared: true}.run(ctx, newSession(client, wire.Session{ID: c.session}, nil))
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("sh ended with exit code %d", res.ExitCode)
	}
	return err
}

// signalAlone signals the process, which may be stopped, and lets it continue.
func (c *Command) signalAlone(ctx context.Context, sig Signal, stopped bool) error {
	err := c.Signal(ctx, sig)
	if stopped && sig != SIGKILL {
		if contErr := c.Signal(ctx, SIGCONT); err == nil && !errors.Is(contErr, os.ErrProcessDone) {
			err = contErr
		}
	}
	return err
}

// killLate kills a command of a call with KillOnCancel, and its children, after
// the call's context has ended or because its output can't be delivered. It
// returns why the call has failed, and that children were not reached; any other
// error of the kill would not help the caller.
func (c *Command) killLate(ctx context.Context, within time.Duration, why error) error {
	late, cancel := engine.Late(ctx, within)
	defer cancel()
	if err := c.SignalTree(late, SIGKILL); errors.Is(err, ErrChildren) {
		return fmt.Errorf("%w; %w", why, err)
	}
	return why
}
