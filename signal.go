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

// Signal is the number of a Linux signal.
type Signal int

// The signals that the API names; others may be given by number.
const (
	SIGHUP  Signal = 1
	SIGINT  Signal = 2
	SIGQUIT Signal = 3
	SIGKILL Signal = 9
	SIGTERM Signal = 15
	SIGCONT Signal = 18
	SIGSTOP Signal = 19
)

var signalNames = map[Signal]string{
	SIGHUP: "SIGHUP", SIGINT: "SIGINT", SIGQUIT: "SIGQUIT", SIGKILL: "SIGKILL", SIGTERM: "SIGTERM", SIGCONT: "SIGCONT", SIGSTOP: "SIGSTOP",
}

// String returns the signal's name, or "signal N" if it is not one of the
// above.
func (s Signal) String() string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// Signal implements [os.Signal].
func (s Signal) Signal() {}

// ParseSignal returns the signal with the given name, such as "SIGTERM".
func ParseSignal(name string) (Signal, error) {
	for s, n := range signalNames {
		if n == name {
			return s, nil
		}
	}
	return 0, invalid("signal", "Unknown signal name: %s", name)
}

// Kill ends the command with [SIGKILL]; see [Command.Signal].
func (c *Command) Kill(ctx context.Context) error { return c.Signal(ctx, SIGKILL) }

// Signal sends a signal to the command: [SIGTERM] asks it to end, [SIGKILL] ends
// it. It does not wait for the command to end. If the command has already
// ended, the error matches [os.ErrProcessDone].
//
// A signal is delivered at most once, except for SIGKILL, which can safely be
// sent again. If the response is lost, the command is looked up: if it has
// ended the error is nil, and if it still runs the error matches
// [ErrOutcomeUnknown]. The signal may then be delivered later: a SIGSTOP even
// after the SIGCONT that was to end it.
func (c *Command) Signal(ctx context.Context, sig Signal) error {
	if sig <= 0 || sig > 64 {
		return invalid("sig", "%d is not a Linux signal", int(sig))
	}
	client, err := clientFor(ctx, c)
	if err != nil {
		return err
	}
	op := api.SignalCommand
	if sig == SIGKILL {
		op = api.KillCommand
	}
	req := &api.Request{Op: op, Path: []string{c.session, c.ID()}, Body: struct {
		Signal int `json:"signal"`
	}{int(sig)}}
	err = client.do(ctx, req, nil)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case req.Uncertain && errors.Is(err, os.ErrProcessDone):
		return nil // the signal whose response was lost may have done it
	case isUnknown(err):
		if data, lookErr := client.lookAtCommand(ctx, c.session, c.ID()); lookErr == nil && data.ExitCode != nil {
			c.finish(*data)
			return nil
		}
	}
	return err
}

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
	client, err := clientFor(ctx, c)
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
