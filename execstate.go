package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Process is a command that a [Cmd] has started. It is safe for concurrent use.
type Process struct{ run *execRun }

// Command returns the command as the API knows it. It is nil as long as the
// command has not begun because its standard input has not come to its end.
func (p *Process) Command() *Command { return p.run.command() }

// Kill ends the command at once. It does not wait for that. For a command that
// is known to have ended it returns [os.ErrProcessDone].
func (p *Process) Kill() error { return p.Signal(SIGKILL) }

// Signal sends a signal: a [Signal], [os.Interrupt], [os.Kill] or one of package
// syscall.
func (p *Process) Signal(sig os.Signal) error {
	n, err := linuxSignal(sig)
	if err != nil {
		return err
	}
	return p.run.signal(context.WithoutCancel(p.run.ctx), n)
}

// ProcessState tells how a command ended.
type ProcessState struct {
	code     int
	duration time.Duration
}

// ExitCode returns the exit code: 128 plus the signal's number when a signal
// ended the command, and -1 for a nil state, of a command that has not ended.
func (p *ProcessState) ExitCode() int {
	if p == nil {
		return -1
	}
	return p.code
}

// Success reports whether the exit code is zero.
func (p *ProcessState) Success() bool { return p.ExitCode() == 0 }

// Exited reports whether the command has ended.
func (p *ProcessState) Exited() bool { return p != nil }

// Duration returns how long the command ran; 0 when the API did not say.
func (p *ProcessState) Duration() time.Duration {
	if p == nil {
		return 0
	}
	return p.duration
}

// String describes the state as that of package os does: "exit status 3".
func (p *ProcessState) String() string {
	if p == nil {
		return "<nil>"
	}
	return "exit status " + strconv.Itoa(p.code)
}

// ExitError reports a command that ended with an exit code other than zero.
type ExitError struct {
	*ProcessState
	// Stderr holds standard error of a command run by [Cmd.Output] if it was
	// not collected otherwise: all of it, or if it is long its first and last
	// 32 KiB.
	Stderr []byte
}

// Error is "exit status 3".
func (e *ExitError) Error() string { return e.ProcessState.String() }

func linuxSignal(sig os.Signal) (Signal, error) {
	switch sig {
	case nil:
		return 0, invalid("sig", "is nil")
	case os.Interrupt:
		return SIGINT, nil
	case os.Kill:
		return SIGKILL, nil
	}
	if s, ok := sig.(Signal); ok {
		return s, nil
	}
	// The numbers of other systems differ; the names of those that the API
	// knows do not.
	if s, ok := signalTexts[sig.String()]; ok {
		return s, nil
	}
	return 0, invalid("sig", "%v is not known; use a Signal of this package", sig)
}

// signalTexts is what package syscall calls the signals on Unix systems.
var signalTexts = map[string]Signal{
	"hangup": SIGHUP, "interrupt": SIGINT, "quit": SIGQUIT, "killed": SIGKILL, "terminated": SIGTERM,
	"continued": SIGCONT, "stopped (signal)": SIGSTOP, "suspended (signal)": SIGSTOP,
	"user defined signal 1": 10, "user defined signal 2": 12, "alarm clock": 14,
}

// signal sends a signal to the command. One that has not begun does not begin.
func (r *execRun) signal(ctx context.Context, sig Signal) error {
	r.mu.Lock()
	cmd, ended := r.remote, r.state != nil
	if cmd == nil && !ended {
		r.dropped = true
		r.stopWaitingForInput()
	}
	r.mu.Unlock()
	switch {
	case ended:
		return os.ErrProcessDone
	case cmd == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	err := cmd.Kill(ctx, sig)
	if e, ok := errors.AsType[*APIError](err); ok && e.Status >= 400 && e.Status < 500 {
		if client, clientErr := cmd.client(); clientErr == nil {
			if data, getErr := client.getCommand(ctx, cmd.session, cmd.ID(), false); getErr == nil && data.ExitCode != nil {
				return os.ErrProcessDone
			}
		}
	}
	return err
}

// killTimeout is how long the request to kill a command may take.
const killTimeout = 10 * time.Second

func errCancelling(err error) error { return fmt.Errorf("exec: canceling Cmd: %w", err) }
