package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
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
	if _, err := enter(ctx, c); err != nil {
		return err
	}
	if c.binary() && sig != SIGSTOP && sig != SIGCONT {
		return c.SignalTree(ctx, sig)
	}
	return c.signalOne(ctx, sig)
}

// signalOne signals the process alone.
func (c *Command) signalOne(ctx context.Context, sig Signal) error {
	client, err := enter(ctx, c)
	if err != nil {
		return err
	}
	if sig <= 0 || sig > 64 {
		return invalid("sig", "%d is not a Linux signal", int(sig))
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
		return nil // the signal whose response was lost may have ended it
	case isUnknown(err):
		if data, lookErr := client.lookAtCommand(ctx, c.session, c.ID()); lookErr == nil && data.ExitCode != nil {
			c.finish(*data)
			return nil
		}
	}
	return err
}

// ErrChildren matches the error of a signal or kill that was meant for a process and its
// children but reached only the process. The sandbox has no program sh or no /proc, or
// the process can't be identified: it was started without the variable that marks it, or
// has overwritten its environment.
var ErrChildren = errors.New("the signal has reached the process alone, not its children")

// SignalTree is like [Command.Signal], but sends the signal to the process and all of its
// descendants. The service signals only one process, so SignalTree runs a shell script in
// the sandbox, with one request. The script finds the process by the variable
// GO_SANDBOX_COMMAND, which StartCommand, KillOnCancel and Cmd set. It stops the process
// and its descendants, sends the signal to all of them and lets them continue. If that is
// not possible, one more request signals the process alone, and the error matches
// [ErrChildren].
//
// SignalTree also reaches a child that has moved to its own session or process group.
// It does not reach a daemon, whose parent has ended.
//
// If ctx ends after the script has found the process, the script completes and the error
// is nil. If SignalTree can't tell, the error matches [ErrOutcomeUnknown]. With SIGKILL it
// may then take a second longer, to kill the process alone and then every process that
// still has the variable, daemons included.
func (c *Command) SignalTree(ctx context.Context, sig Signal) error {
	client, err := enter(ctx, c)
	if err != nil {
		return err
	}
	if sig == SIGSTOP || sig == SIGCONT {
		return invalid("sig", "%v can't be sent to a tree, which is stopped and continued on the way", sig)
	}
	if sig <= 0 || sig > 64 {
		return invalid("sig", "%d is not a Linux signal", int(sig))
	}
	if ctx.Err() != nil {
		return api.ContextError(ctx)
	}
	unknown, why := c.runTreeScript(ctx, client, sig, "")
	switch {
	case why == nil:
		return nil
	case unknown && sig != SIGKILL:
		return why
	}
	// grace returns a context for the rest of ctx, or for a limited time.
	grace := func() (context.Context, context.CancelFunc) {
		if ctx.Err() == nil {
			return ctx, func() {}
		}
		return context.WithTimeout(context.WithoutCancel(ctx), engine.TreeGrace)
	}
	alone, cancel := grace()
	defer cancel()
	if err := c.signalOne(alone, sig); err != nil {
		return err
	}
	if unknown {
		left, cancel := grace()
		defer cancel()
		if _, why = c.runTreeScript(left, client, sig, "all"); why == nil {
			return nil
		}
	}
	return fmt.Errorf("sandbox: signal command %s: %w: %w", c.ID(), ErrChildren, why)
}

// runTreeScript signals the process and its descendants or, if all is not empty, all
// processes with its variable. unknown means that it may have done so, or may still do so.
func (c *Command) runTreeScript(ctx context.Context, client *Client, sig Signal, all string) (unknown bool, err error) {
	session := newSession(client, wire.Session{ID: c.session}, nil)
	for root := false; ; root = true {
		name, args := coreutils.Carry("sh", []string{"-c", engine.TreeScript, "sh", strconv.Itoa(int(sig)), c.treeToken(), all})
		found := &engine.TreeFound{}
		res, err := program{name: name, args: args, sudo: root, stdout: found, outlives: true}.run(ctx, session)
		if err != nil {
			if found.Found() {
				return false, nil
			}
			_, broken := errors.AsType[*StreamError](err)
			return broken || isUnknown(err) || ctx.Err() != nil, err
		}
		if res.ExitCode == 0 {
			return false, nil
		}
		err = fmt.Errorf("sh ended with exit code %d", res.ExitCode)
		if root || res.ExitCode != engine.TreeHidden && res.ExitCode != engine.TreeRefused {
			return false, err
		}
	}
}

// treeToken returns the value of the variable that marks the process. A handle that did
// not start the process derives it from the command's ID, if a client chose the ID.
func (c *Command) treeToken() string {
	if c.token != "" {
		return c.token
	}
	return treeToken(c.session, c.ID())
}

// treeToken returns the value for a command that is started with an ID, which is unique
// in the session, or without one.
func treeToken(session, id string) string {
	id = cmp.Or(id, rand.Text())
	return session + "/" + id
}

// killAfterCancel kills the command of a call with KillOnCancel, and its children. The
// call's context has ended, or its output can't be delivered. killAfterCancel returns
// why, the call's error, joined with an error if processes may still be running.
func (c *Command) killAfterCancel(ctx context.Context, within time.Duration, why error) error {
	late, cancel := engine.Late(ctx, within)
	defer cancel()
	return joinErrors(why, c.stillRunningError(c.SignalTree(late, SIGKILL)))
}

// stillRunningError turns the error of a kill into the error for the call that gave the
// command up. It is nil unless the command or its children may still be running.
func (c *Command) stillRunningError(err error) error {
	switch {
	case err == nil, errors.Is(err, os.ErrProcessDone), errors.Is(err, ErrStopped), errors.Is(err, ErrNotFound):
		return nil
	case errors.Is(err, ErrChildren):
		return err
	}
	return fmt.Errorf("sandbox: command %s may still be running: %w: %w", c.ID(), ErrOutcomeUnknown, err)
}

// joinErrors joins two errors in one line. Either may be nil.
func joinErrors(err, more error) error {
	switch {
	case more == nil:
		return err
	case err == nil:
		return more
	}
	return fmt.Errorf("%w; %w", err, more)
}
