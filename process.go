package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"

	"github.com/go-vercel/sandbox/internal/api"
)

const (
	// startGrace is how long the answer to a start is waited for after the
	// context has ended: a command that did start can then be killed.
	startGrace = 5 * time.Second
	// cancelGrace is how long the end of a cancelled command is waited for.
	cancelGrace = 30 * time.Second
)

var errDropped = errors.New("exec: killed before its standard input came to an end")

// execRun is a Cmd that was started. One goroutine, supervise, sees it to its
// end.
type execRun struct {
	ctx     context.Context // the Cmd's
	on      execTarget
	name    string
	args    []string
	options *CommandOptions
	// stdout and stderr are nil for output that nobody wants.
	stdout, stderr io.Writer
	pipes          []*outputPipe
	cancel         func() error
	waitDelay      time.Duration

	inputCtx            context.Context // ends when the input is not waited for any more
	stopWaitingForInput context.CancelFunc

	mu      sync.Mutex
	remote  *Command // nil until the command has begun
	dropped bool     // killed before that
	state   *ProcessState

	exited chan struct{} // closed when the end of the command is known, or will not be
	exit   sync.Once
	done   chan struct{} // closed when there is nothing more to do; then:
	err    error
}

// Start starts the command and returns while it runs. After a Start that
// succeeded, [Cmd.Wait] has to be called. A program that the sandbox does not
// have is an [*exec.Error] over [exec.ErrNotFound].
func (c *Cmd) Start() error {
	if c.started.Swap(true) {
		return errors.New("exec: already started")
	}
	err := c.start()
	if err != nil {
		for _, p := range c.outputs {
			_ = p.Close()
		}
		if c.stdin != nil {
			_ = c.stdin.r.Close()
		}
	}
	return err
}

func (c *Cmd) start() error {
	if c.Err == nil && c.Path == "" {
		c.Err = errors.New("exec: no command")
	}
	if c.Err != nil {
		return c.Err
	}
	if c.on == nil {
		return invalid("Cmd", "was not made by CommandContext")
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	r := &execRun{
		ctx: c.ctx, on: c.on, name: c.Path, args: c.args(), options: o, stdout: c.Stdout, stderr: c.Stderr,
		pipes: c.outputs, cancel: c.Cancel, waitDelay: c.WaitDelay,
		exited: make(chan struct{}), done: make(chan struct{}),
	}
	r.inputCtx, r.stopWaitingForInput = context.WithCancel(c.ctx)
	c.run, c.Process = r, &Process{r}
	var in *input
	if c.Stdin != nil {
		var known bool
		if in, known = knownInput(c.Stdin); !known {
			go func() {
				in, err := spool(r.inputCtx, c.Stdin)
				if c.stdin != nil {
					_ = c.stdin.r.Close()
				}
				if err == nil {
					err = r.launch(in)
				}
				if err != nil {
					r.notStarted(err)
					return
				}
				r.supervise()
			}()
			return nil
		}
	}
	if err := r.launch(in); err != nil {
		r.stopWaitingForInput()
		c.run, c.Process = nil, nil
		return err
	}
	go r.supervise()
	return nil
}

func (r *execRun) command() *Command {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remote
}

// launch asks the API to start the command.
func (r *execRun) launch(in *input) error {
	defer r.stopWaitingForInput()
	if in != nil {
		defer in.close()
	}
	// The request is not broken off with the context: nobody would know then
	// whether there is a command to kill.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	defer cancel()
	stop := context.AfterFunc(r.ctx, func() {
		timer := time.AfterFunc(startGrace, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	})
	defer stop()
	var cmd *Command
	var err error
	if in == nil {
		cmd, err = r.on.StartCommand(ctx, r.name, r.args, r.options)
	} else {
		cmd, err = startWithInput(ctx, r.on, in, r.name, r.args, r.options)
	}
	if err != nil {
		if r.ctx.Err() != nil {
			return api.ContextError(r.ctx)
		}
		return execError(r.name, err)
	}
	r.mu.Lock()
	r.remote = cmd
	dropped := r.dropped
	r.mu.Unlock()
	if dropped {
		return r.signal(context.WithoutCancel(r.ctx), SIGKILL)
	}
	return nil
}

// execError gives a missing program the error that it has in os/exec.
func execError(name string, err error) error {
	e, ok := errors.AsType[*APIError](err)
	if ok && e.Status == http.StatusBadRequest && (e.Code == "executable_not_found" || strings.Contains(e.Message, exec.ErrNotFound.Error())) {
		return &exec.Error{Name: name, Err: notFoundError{e}}
	}
	return err
}

// notFoundError reads as exec.ErrNotFound and unwraps to what the API said.
type notFoundError struct{ api *APIError }

func (e notFoundError) Error() string   { return exec.ErrNotFound.Error() }
func (e notFoundError) Unwrap() []error { return []error{exec.ErrNotFound, e.api} }

// notStarted ends a run whose command did not begin.
func (r *execRun) notStarted(err error) {
	r.mu.Lock()
	if r.dropped && r.ctx.Err() == nil {
		err = errDropped
	}
	r.mu.Unlock()
	r.stopWaitingForInput()
	for _, p := range r.pipes {
		p.end()
	}
	r.err = err
	r.exit.Do(func() { close(r.exited) })
	close(r.done)
}

// supervise copies the output, waits for the command's end and calls Cancel.
func (r *execRun) supervise() {
	live, abandon := context.WithCancel(context.WithoutCancel(r.ctx))
	defer abandon()
	copying := make(chan copied, 1)
	go func() { copying <- r.copy(live) }()
	ended := make(chan *wire.Command, 1)
	if r.watchesEnd() {
		go func() {
			if data, err := r.waitEnd(live); err == nil {
				ended <- data
			} else {
				close(ended)
			}
		}()
	}

	var (
		res       copied
		watchErr  error
		overrun   bool
		cancelled chan error
		timer     <-chan time.Time
		killed    bool
		killing   sync.WaitGroup
	)
	ctxDone := r.ctx.Done()
	if r.cancel == nil && r.waitDelay == 0 {
		ctxDone = nil
	}
	for going := true; going; {
		select {
		case res = <-copying:
			going = false
		case data := <-ended:
			ended = nil
			r.setEnd(data)
			r.exit.Do(func() { close(r.exited) })
			if timer == nil && r.waitDelay > 0 && data != nil {
				timer = time.After(r.waitDelay)
			}
			if killed {
				abandon()
			}
		case <-ctxDone:
			ctxDone = nil
			if timer == nil {
				delay := r.waitDelay
				if delay == 0 {
					delay = cancelGrace
				}
				timer = time.After(delay)
			}
			if r.cancel != nil {
				cancelled = make(chan error, 1)
				go func() { cancelled <- r.cancel() }()
			}
		case err := <-cancelled:
			cancelled = nil
			switch {
			case err == nil:
				watchErr = r.ctx.Err()
			case !errors.Is(err, os.ErrProcessDone):
				watchErr = errCancelling(err)
			}
		case <-timer:
			timer, overrun = nil, true
			r.closePipes()
			if r.hasEnded() || killed {
				abandon()
				continue
			}
			// A command that did not heed Cancel is killed, and given up if it
			// does not end even then.
			killed = true
			killing.Go(func() { _ = r.signal(live, SIGKILL) })
			timer = time.After(killTimeout)
		}
	}
	if cancelled != nil {
		if err := <-cancelled; err == nil {
			watchErr = r.ctx.Err()
		}
	}
	killing.Wait()
	r.finish(live, res, watchErr, overrun)
}

// setEnd records how the command ended; nil is not known.
func (r *execRun) setEnd(data *wire.Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if data == nil || data.ExitCode == nil || r.state != nil {
		return
	}
	r.state = &ProcessState{code: *data.ExitCode}
	if data.DurationMs != nil {
		r.state.duration = time.Duration(*data.DurationMs)
	}
	r.exit.Do(func() { close(r.exited) })
}

func (r *execRun) hasEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state != nil
}

func (r *execRun) closePipes() {
	for _, p := range r.pipes {
		_ = p.Close()
	}
}

// finish decides what Wait returns, in the order of os/exec: the command's own
// failure, that of the context, that of the output.
func (r *execRun) finish(live context.Context, res copied, watchErr error, overrun bool) {
	r.setEnd(res.end)
	if res.stream != nil && !r.hasEnded() && live.Err() == nil {
		// The output is lost, but the exit code may not be.
		if data, err := r.waitEnd(live); err == nil {
			r.setEnd(data)
		}
	}
	if live.Err() != nil {
		res.stream = nil
	}
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	r.exit.Do(func() { close(r.exited) })
	switch {
	case state != nil && !state.Success():
		r.err = &ExitError{ProcessState: state}
		if res.stream != nil {
			r.err = errors.Join(r.err, res.stream)
		}
	case watchErr != nil:
		r.err = watchErr
	case state == nil && res.stream != nil:
		r.err = res.stream
	case state == nil && r.ctx.Err() != nil:
		r.err = r.ctx.Err()
	case overrun:
		r.err = exec.ErrWaitDelay
	case res.stream != nil:
		r.err = res.stream
	default:
		r.err = res.writer
	}
	close(r.done)
}

// Wait waits until the command has ended and its output was delivered. The
// error is nil for exit code zero, an [*ExitError] for any other, and one of the
// context, of the connection or of a writer if it was that which failed.
func (c *Cmd) Wait() error {
	if c.run == nil {
		return errors.New("exec: not started")
	}
	if c.waited {
		return errors.New("exec: Wait was already called")
	}
	c.waited = true
	<-c.run.exited
	c.run.closePipes()
	<-c.run.done
	c.run.mu.Lock()
	c.ProcessState = c.run.state
	c.run.mu.Unlock()
	return c.run.err
}

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
	if errors.Is(err, os.ErrProcessDone) {
		return os.ErrProcessDone
	}
	return err
}

// killTimeout is how long the request to kill a command may take.
const killTimeout = 10 * time.Second

func errCancelling(err error) error { return fmt.Errorf("exec: canceling Cmd: %w", err) }
