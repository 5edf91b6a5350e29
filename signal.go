package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/wire"
)

// ErrChildren matches the error of [Command.SignalTree] if the signal has
// reached the process alone: the sandbox has no program sh or no /proc, or the
// process can't be told from others there.
var ErrChildren = errors.New("the signal has reached the process alone, not its children")

// treeGrace is how long SignalTree may take after its context has ended, so that
// the process does not stay stopped.
const treeGrace = 2 * time.Second

// SignalTree is like [Command.Signal], but sends the signal to the process and
// to all that descend from it: its children, and theirs. It makes two requests,
// since the service signals one process only: the first stops the process, and
// the second runs a script of sh in the sandbox that finds what descends from
// it, sends the signal to all of them and lets them continue. If that is not
// possible, the process alone gets the signal, and the error matches
// [ErrChildren].
//
// A child that has moved to a session or group of its own is reached for as long
// as it descends from the process. One whose parent has ended, as that of a
// daemon has, no longer does. If ctx ends meanwhile, SignalTree may take two
// seconds longer, so that the process does not stay stopped.
func (c *Command) SignalTree(ctx context.Context, sig Signal) error {
	if sig == SIGSTOP || sig == SIGCONT {
		return invalid("sig", "%v can't be sent to a tree, which is stopped and continued on the way", sig)
	}
	if sig <= 0 || sig > 64 {
		return invalid("sig", "%d is not a Linux signal", int(sig))
	}
	err := c.Signal(ctx, SIGSTOP)
	if err == nil {
		if err = c.signalStopped(ctx, sig); err == nil {
			return nil
		}
	} else if !isUnknown(err) {
		return err // it is not stopped, and what has ended sends nothing more
	}
	alone, cancel := ctx, context.CancelFunc(func() {})
	if ctx.Err() != nil {
		alone, cancel = context.WithTimeout(context.WithoutCancel(ctx), treeGrace)
	}
	defer cancel()
	aloneErr := c.Signal(alone, sig)
	if sig != SIGKILL {
		if contErr := c.Signal(alone, SIGCONT); aloneErr == nil && !errors.Is(contErr, os.ErrProcessDone) {
			aloneErr = contErr
		}
	}
	if aloneErr != nil {
		return aloneErr
	}
	return fmt.Errorf("sandbox: signal command %s: %w: %w", c.ID(), ErrChildren, err)
}

// signalStopped signals the process, which is stopped, and what descends from
// it.
func (c *Command) signalStopped(ctx context.Context, sig Signal) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	data := c.wire()
	name, args := coreutils.Carry("sh", append([]string{"-c", engine.TreeScript, "sh", strconv.Itoa(int(sig)), data.Name}, data.Args...))
	res, err := program{name: name, args: args, spared: true}.run(ctx, newSession(client, wire.Session{ID: c.session}, nil))
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("sh ended with exit code %d", res.ExitCode)
	}
	return err
}
