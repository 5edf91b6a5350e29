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
	startGrace = 3 * time.Second
	// cancelGrace is how long the end of a cancelled command is waited for.
	cancelGrace = 30 * time.Second
	// killTimeout is how long the request to kill a command may take.
	killTimeout = 5 * time.Second
	// brokenPipe is the signal of a write that nobody reads.
	brokenPipe Signal = 13
	// termAfter and killAfter are how long a command may go on writing what
	// nobody reads after that signal, before it is told to end, and is ended.
	termAfter, killAfter = time.Second, 5 * time.Second
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
	pipes          []*pipe
	// detached: nobody wants the output, and what there is of it may be long.
	detached  bool
	stdin     io.Reader // is copied while the command runs; nil for none
	stdinPipe *pipe
	cancel    func() error
	waitDelay time.Duration

	// live is the context of all requests, which abandon ends: that of the Cmd
	// ends the command instead.
	live    context.Context
	abandon context.CancelFunc

	inputCtx            context.Context // ends when the input is not waited for any more
	stopWaitingForInput context.CancelFunc

	mu      sync.Mutex
	remote  *Command // nil until the command has begun
	dropped bool     // killed before that
	state   *ProcessState

	signals sync.WaitGroup // requests of unread
	stream  *follower      // the output from the start on; nil for none yet
	waiting chan struct{}  // closed when somebody waits
	exited  chan struct{}  // closed when the end of the command is known, or will not be
	exit    sync.Once
	done    chan struct{} // closed when there is nothing more to do; then:
	err     error
}

// Start starts the command and returns while it runs. After a Start that
// succeeded, [Cmd.Wait] has to be called. A program that the sandbox does not
// have is an [*exec.Error] over [exec.ErrNotFound], and a missing Dir matches
// [fs.ErrNotExist].
//
// The start is one request, and its answer is the output as well, which Wait
// goes on reading. When the context ends meanwhile, Start returns after at most
// five seconds: a command that has started all the same is killed.
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
			_ = c.stdin.Close()
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
		pipes: c.outputs, detached: !c.runs && c.Stdout == nil && c.Stderr == nil,
		stdinPipe: c.stdin, cancel: c.Cancel, waitDelay: c.WaitDelay,
		waiting: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}
	r.live, r.abandon = context.WithCancel(context.WithoutCancel(c.ctx))
	r.inputCtx, r.stopWaitingForInput = context.WithCancel(c.ctx)
	c.run, c.Process = r, &Process{r}
	var in *input
	known := true
	if c.Stdin != nil {
		if in, known, err = knownInput(c.Stdin); err == nil && !known {
			r.stdin, r.options.AttachStdin = c.Stdin, true
		}
	}
	if err == nil {
		err = r.launch(in)
	}
	if e, ok := errors.AsType[*APIError](err); ok && !known && e.noStdin() {
		// Neither the service nor its sandboxes have always known of an input
		// that is written to. The whole of it goes before the command then.
		r.stdin, r.options.AttachStdin = nil, false
		go func() {
			in, err := spool(r.inputCtx, c.Stdin)
			if c.stdin != nil {
				_ = c.stdin.Close()
			}
			if err == nil {
				err = r.launch(in)
			}
			r.stopWaitingForInput()
			if err != nil {
				r.notStarted(err)
				return
			}
			r.supervise()
		}()
		return nil
	}
	r.stopWaitingForInput()
	if err != nil {
		r.abandon()
		c.run, c.Process = nil, nil
		return err
	}
	go r.supervise()
	return nil
}

// noStdin reports whether a command was refused because the service does not
// know of an input that is written to.
func (e *APIError) noStdin() bool {
	return e.Status == http.StatusBadRequest && strings.Contains(e.Message, "attachStdin")
}

func (r *execRun) command() *Command {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remote
}

// launch asks the API to start the command.
func (r *execRun) launch(in *input) error {
	// The request is not broken off with the context: nobody would know then
	// whether there is a command to kill.
	var late *time.Timer
	var mu sync.Mutex
	started := false
	stop := context.AfterFunc(r.ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !started {
			late = time.AfterFunc(startGrace, r.abandon)
		}
	})
	begin := func(t target, name string, args []string) (cmd *Command, err error) {
		if r.detached || r.options.AttachStdin {
			return t.StartCommand(r.live, name, args, r.options)
		}
		cmd, r.stream, err = t.startFollowed(r.live, name, args, r.options)
		return cmd, err
	}
	var cmd *Command
	var err error
	if in == nil {
		cmd, err = begin(r.on, r.name, r.args)
	} else {
		cmd, err = startWithInput(r.ctx, r.on, in, r.name, r.args, begin)
		in.close()
	}
	stop()
	mu.Lock()
	started = true
	if late != nil {
		late.Stop()
	}
	mu.Unlock()
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
	if e, ok := errors.AsType[*APIError](err); ok && e.noProgram() {
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
	r.abandon()
	r.endPipes()
	r.err = err
	r.exit.Do(func() { close(r.exited) })
	close(r.done)
}

// supervise copies the output and the input, waits for the command's end and
// calls Cancel.
func (r *execRun) supervise() {
	defer r.signals.Wait()
	defer r.abandon()
	feeding, stopFeeding := context.WithCancel(r.live)
	defer stopFeeding()
	fed := r.feed(feeding)
	copying := make(chan copied, 1)
	go func() { copying <- r.copy(r.live) }()
	watch := (<-chan struct{})(r.waiting)
	if r.waitDelay > 0 {
		now := make(chan struct{})
		close(now)
		watch = now
	} else if len(r.pipes) == 0 {
		watch = nil // nothing holds up the output, whose end is the command's
	}
	ended := make(chan *wire.Command, 1)

	var (
		res       copied
		inErr     error
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
	for copying != nil || fed != nil {
		select {
		case res = <-copying:
			copying, watch = nil, nil
			r.setEnd(res.end)
			r.exit.Do(func() { close(r.exited) })
			r.endPipes()
			stopFeeding() // what is not delivered by now never is
			if r.stdinPipe != nil {
				_ = r.stdinPipe.Close()
			}
			switch {
			case overrun || r.ctx.Err() != nil:
				fed = nil // a reader can't be interrupted
			case timer == nil && r.waitDelay > 0:
				timer = time.After(r.waitDelay)
			}
		case inErr = <-fed:
			fed = nil
			if _, lost := errors.AsType[*inputError](inErr); lost && copying != nil {
				// The command would wait for the rest for ever.
				killing.Go(func() { _ = r.signal(r.live, SIGKILL) })
			}
		case <-watch:
			watch = nil
			go func() {
				// When that fails the end of the output has to tell.
				if data, err := r.waitEnd(r.live); err == nil {
					ended <- data
				}
			}()
		case data := <-ended:
			r.setEnd(data)
			if timer == nil && r.waitDelay > 0 {
				timer = time.After(r.waitDelay)
			}
			if killed {
				r.abandon()
			}
		case <-ctxDone:
			ctxDone = nil
			if copying == nil {
				fed = nil
				continue
			}
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
			watchErr = r.cancelError(err)
			if _, silent := errors.AsType[*RequestError](err); silent && r.waitDelay == 0 {
				r.abandon() // the API that does not answer will not tell the end either
			}
		case <-timer:
			timer, overrun = nil, true
			r.closePipes()
			if copying == nil {
				fed = nil
				continue
			}
			if r.hasEnded() || killed {
				r.abandon()
				continue
			}
			// A command that did not heed Cancel is killed, and given up if it
			// does not end even then.
			killed = true
			killing.Go(func() { _ = r.signal(r.live, SIGKILL) })
			timer = time.After(killTimeout)
		}
	}
	if cancelled != nil {
		watchErr = r.cancelError(<-cancelled)
	}
	killing.Wait()
	r.finish(res, inErr, watchErr, overrun)
}

// cancelError is what Wait returns of a command that Cancel was called for.
func (r *execRun) cancelError(err error) error {
	switch _, silent := errors.AsType[*RequestError](err); {
	case err == nil:
		return r.ctx.Err()
	case errors.Is(err, os.ErrProcessDone):
		return nil
	case silent:
		return errors.Join(r.ctx.Err(), errCancelling(err))
	}
	return errCancelling(err)
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

// endPipes tells the readers that no more will come.
func (r *execRun) endPipes() {
	for _, p := range r.pipes {
		p.end()
	}
}

// finish works out what Wait returns.
func (r *execRun) finish(res copied, inErr, watchErr error, overrun bool) {
	if r.live.Err() != nil {
		res.stream = nil
	}
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	r.exit.Do(func() { close(r.exited) })
	_, lost := errors.AsType[*inputError](inErr)
	switch {
	case lost:
		r.err = inErr
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
	case res.writer != nil:
		r.err = res.writer
	default:
		r.err = inErr
	}
	close(r.done)
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

func errCancelling(err error) error { return fmt.Errorf("exec: canceling Cmd: %w", err) }
