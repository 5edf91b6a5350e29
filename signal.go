package sandbox

import (
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
// program sh or no /proc, or the process can't be told from others there, since
// it was started without the variable by which it is known, or has overwritten
// its environment.
var ErrChildren = errors.New("the signal has reached the process alone, not its children")

// SignalTree is like [Command.Signal], but sends the signal to the process and
// to all that descend from it: its children, and theirs. It makes one request,
// which runs a script of sh in the sandbox, since the service signals one process
// only. The script knows the process by the variable GO_SANDBOX_COMMAND, which
// StartCommand, KillOnCancel and Cmd set, stops it and all that descends from it,
// sends the signal to all of them and lets them continue. If that is not possible,
// the process alone gets the signal, by a request more, and the error matches
// [ErrChildren].
//
// A child that has moved to a session or group of its own is reached for as long
// as it descends from the process. One whose parent has ended, as that of a
// daemon has, no longer does.
//
// If ctx ends, a script that has found the process goes on, and the error is nil.
// If it is not known whether it has, the error matches [ErrOutcomeUnknown]; but
// SIGKILL may take a second longer, to end the process alone and then what is left
// with its variable, daemons included.
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
	unknown, why := c.runTree(ctx, client, sig, "")
	switch {
	case why == nil:
		return nil
	case unknown && sig != SIGKILL:
		return why
	}
	// grace is the rest of ctx, or a while.
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
		if _, why = c.runTree(left, client, sig, "all"); why == nil {
			return nil
		}
	}
	return fmt.Errorf("sandbox: signal command %s: %w: %w", c.ID(), ErrChildren, why)
}

// runTree signals the process and what descends from it, or all that have its
// variable. unknown means that it may have done so, or may yet.
func (c *Command) runTree(ctx context.Context, client *Client, sig Signal, all string) (unknown bool, err error) {
	session := newSession(client, wire.Session{ID: c.session}, nil)
	for root := false; ; root = true {
		name, args := coreutils.Carry("sh", []string{"-c", engine.TreeScript, "sh", strconv.Itoa(int(sig)), c.treeToken(), all})
		found := &engine.TreeFound{}
		res, err := program{name: name, args: args, sudo: root, stdout: found, spared: true}.run(ctx, session)
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

// treeToken is the value of the variable by which the process is known in the
// sandbox. A handle that was not made by the start knows it by the command's ID,
// if the client has chosen that.
func (c *Command) treeToken() string {
	if c.token != "" {
		return c.token
	}
	return treeToken(c.session, c.ID())
}

// treeToken is the value for a command that is started with an ID, which is its
// own in the session, or without one.
func treeToken(session, id string) string {
	if id == "" {
		id = rand.Text()
	}
	return session + "/" + id
}

// killLate kills a command of a call with KillOnCancel, and its children, after
// the call's context has ended or because its output can't be delivered. It
// returns why, the call's error, and after it what may go on.
func (c *Command) killLate(ctx context.Context, within time.Duration, why error) error {
	late, cancel := engine.Late(ctx, within)
	defer cancel()
	return also(why, c.remains(c.SignalTree(late, SIGKILL)))
}

// remains returns what the error of a kill means for whoever gave a command up:
// nil unless it, or its children, may go on.
func (c *Command) remains(err error) error {
	switch {
	case err == nil, errors.Is(err, os.ErrProcessDone), errors.Is(err, ErrStopped), errors.Is(err, ErrNotFound):
		return nil
	case errors.Is(err, ErrChildren):
		return err
	}
	return fmt.Errorf("sandbox: command %s may go on: %w: %w", c.ID(), ErrOutcomeUnknown, err)
}

// also is an error and, unless it is nil, another one after it.
func also(err, more error) error {
	switch {
	case more == nil:
		return err
	case err == nil:
		return more
	}
	return fmt.Errorf("%w; %w", err, more)
}
