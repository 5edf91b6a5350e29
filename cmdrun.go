package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/tarball"
	"github.com/go-vercel/sandbox/internal/wire"
)

// execRun is a started Cmd. The goroutine of supervise runs until the command ends.
type execRun struct {
	ctx     context.Context // the Cmd's
	on      execTarget
	name    string
	args    []string
	options *CommandOptions
	// stdout and stderr are nil for unwanted output.
	stdout, stderr io.Writer
	pipes          []*pipe
	// detached is set if the caller wants no output. The output is then not read, because it
	// may be large.
	detached  bool
	stdin     io.Reader // copied while the command runs; nil for none
	stdinPipe *pipe
	cancel    func() error
	waitDelay time.Duration

	// live is the context of all requests, which abandon cancels. The context
	// of the Cmd ends the command, not its requests.
	live    context.Context
	abandon context.CancelFunc

	// For observers.
	client   *Client
	event    api.Span
	received atomic.Int64

	remote *Command // nil if the command did not start
	mu     sync.Mutex
	state  *ProcessState // guarded by mu

	unread  atomic.Pointer[engine.Unread]
	stream  *follower     // the output from the start on; nil for none yet
	waiting chan struct{} // closed by Wait
	exited  chan struct{} // closed when the command's end is known, or can't become known
	once    sync.Once     // closes exited
	done    chan struct{} // closed at the end, when err is set
	err     error
}

// Start starts the command but does not wait for it to end. After a successful call to
// Start, [Cmd.Wait] must be called. If the sandbox does not have the program, the error is
// an [*exec.Error] that wraps [exec.ErrNotFound], and also [fs.ErrNotExist] if Path has a
// slash. The error matches [fs.ErrNotExist] if Dir does not exist, and [fs.ErrPermission]
// if the program can't be executed.
//
// Start makes one request, and two more for a Stdin of known length. Wait continues to
// read the output from the response to that request. If the context ends during the
// call, Start returns within five seconds and kills a command that has started.
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
	if c.on == nil {
		return invalid("Cmd", "was not made by CommandContext")
	}
	client, err := enter(c.ctx, c.on)
	if err != nil {
		return err
	}
	if c.Path == "" {
		return errors.New("exec: no command")
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	ctx, e := client.beginCommand(c.ctx, c.on, c.Path, c.args())
	r := &execRun{
		ctx: ctx, client: client, event: e, on: c.on, name: c.Path, args: c.args(), options: o, stdout: c.Stdout, stderr: c.Stderr,
		pipes: c.outputs, detached: !c.viaRun && c.Stdout == nil && c.Stderr == nil,
		stdinPipe: c.stdin, cancel: c.Cancel, waitDelay: c.WaitDelay,
		waiting: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}
	r.options.KillOnCancel = true // kill it even if ctx ends before the start is confirmed
	r.live, r.abandon = context.WithCancel(context.WithoutCancel(ctx))
	var in *input
	if c.Stdin != nil {
		if in, err = knownInput(c.Stdin); err == nil && in == nil {
			r.stdin, r.options.attach = c.Stdin, true
		}
	}
	if err == nil && o.Binary && in == nil {
		err = r.checkProgram()
	}
	if err == nil {
		err = r.launch(in)
	}
	if err != nil {
		r.abandon()
		r.finishEvent(err)
		return err
	}
	c.run, c.Process = r, &Process{r}
	go r.supervise()
	return nil
}

// checkProgram returns the error of a program that can't be started.
func (r *execRun) checkProgram() error {
	_, err := r.on.onSession(r.ctx, func(t target) (*Command, error) {
		return nil, findProgram(r.ctx, t, r.name, r.options)
	})
	return r.startError(err)
}

// launch asks the API to start the command.
func (r *execRun) launch(in *input) (err error) {
	begin := func(t target) (cmd *Command, err error) {
		cmd, r.stream, err = t.begin(r.ctx, r.live, r.name, r.args, r.options, !r.detached && !r.options.attach)
		return cmd, err
	}
	var cmd *Command
	if in == nil {
		cmd, err = begin(r.on)
	} else {
		cmd, err = startWithInput(r.ctx, r.on, in, r.name, r.options, begin)
		in.close()
	}
	if err != nil {
		return r.startError(err)
	}
	cmd.stdinKnown = r.options.attach
	r.remote = cmd
	return nil
}

// startError returns the error of a command that did not start. For a missing program it
// is the error that package exec returns.
func (r *execRun) startError(err error) error {
	if err != nil && r.ctx.Err() != nil {
		return api.ContextError(r.ctx)
	}
	if e, ok := errors.AsType[*APIError](err); ok && e.errorKind() == api.NoProgram {
		return missingProgram(r.name, e)
	}
	return err
}

// missingProgram returns the error that package exec returns for a missing program. cause
// may be nil.
func missingProgram(name string, cause *APIError) error {
	e := notFoundError{exec.ErrNotFound}
	if cause != nil {
		e = append(e, cause)
	}
	if strings.Contains(name, "/") {
		e = append(e, fs.ErrNotExist)
	}
	return &exec.Error{Name: name, Err: e}
}

// notFoundError matches all errors in its list, one of which is exec.ErrNotFound.
type notFoundError []error

func (e notFoundError) Error() string {
	if errors.Is(e, fs.ErrNotExist) {
		return "no such file, or " + noInterpreter
	}
	return exec.ErrNotFound.Error()
}

func (e notFoundError) Unwrap() []error { return e }

// finishEvent ends the event of the run. A non-zero exit code is not an error of the
// event.
func (r *execRun) finishEvent(err error) {
	e := r.event
	if cmd := r.remote; cmd != nil {
		e.Session, e.Command = cmd.SessionID(), cmd.ID()
	}
	r.mu.Lock()
	if r.state != nil {
		e.ExitCode = r.state.code
	}
	r.mu.Unlock()
	e.Received = r.received.Load()
	if _, exit := err.(*ExitError); exit { //nolint:errorlint // a joined error is reported
		err = nil
	}
	endEvent(&e, err)
}

// supervise waits until the command has ended and its input and output are copied.
func (r *execRun) supervise() {
	run := &engine.Run{
		Ctx: r.ctx, Live: r.live, Abandon: r.abandon, Cancel: r.cancel, WaitDelay: r.waitDelay,
		Copy: r.copy, End: r.waitEnd,
		// The kill continues after the process has ended, for the children.
		Kill: func(ctx context.Context) error {
			return r.signal(context.WithoutCancel(ctx), SIGKILL, (*Command).SignalTree)
		},
		Silent: func(err error) bool {
			_, silent := errors.AsType[*RequestError](err)
			return silent && !errors.Is(err, ErrChildren)
		},
		Alone: ErrChildren,
		OnEnd: r.setEnd, CloseOutput: r.closePipes,
		OnOutput: func() {
			r.once.Do(func() { close(r.exited) })
			for _, p := range r.pipes {
				p.end() // readers get the end of the data
			}
		},
		CloseInput: func() {
			if r.stdinPipe != nil {
				_ = r.stdinPipe.Close()
			}
		},
	}
	if r.stdin != nil {
		run.Feed = r.feed
	}
	if len(r.pipes) > 0 || r.waitDelay > 0 {
		run.Waiting = r.waiting
	}
	res := run.Supervise()
	r.finish(res, run.Cancellation(res, func(err error) error {
		if left := r.remote.stillRunningError(err); left != nil && run.Silent(err) {
			err = left
		}
		return errCancelling(err)
	}))
	if unread := r.unread.Load(); unread != nil {
		unread.Wait()
	}
}

func (r *execRun) waitEnd(ctx context.Context) (*wire.Command, error) {
	client, err := enter(ctx, r.remote)
	if err != nil {
		return nil, err
	}
	return client.waitCommand(ctx, r.remote.session, r.remote.ID())
}

// copy copies the output to its writers until it ends. After a writer has
// failed, the other one still gets its output.
func (r *execRun) copy(ctx context.Context) (res engine.Copied) {
	f := r.stream
	switch {
	case f != nil:
	case r.stdout == nil && r.stderr == nil:
		res.End, res.Stream = r.waitEnd(ctx)
		return res
	default:
		client, err := enter(ctx, r.remote)
		if err != nil {
			return engine.Copied{Stream: err}
		}
		f = newFollower(ctx, client, r.remote)
	}
	defer func() {
		r.received.Store(f.Bytes())
		f.Close()
	}()
	unread := &engine.Unread{Signal: func(sig int) {
		send := (*Command).Signal
		if Signal(sig) == SIGKILL {
			send = (*Command).SignalTree
		}
		_ = r.signal(r.live, Signal(sig), send)
	}}
	r.unread.Store(unread)
	writers := map[string]io.Writer{Stdout: r.stdout, Stderr: r.stderr}
	failed := map[string]bool{}
	res.Stream = f.each(func(stream string, data []byte) error {
		w := writers[stream]
		if w == nil {
			if failed[stream] {
				unread.Output()
			}
			return nil
		}
		if err := writeAll(w, data); err != nil {
			writers[stream], failed[stream] = nil, true
			if _, pipe := w.(*pipe); pipe {
				unread.Output()
			} else if res.Writer == nil {
				res.Writer = err
			}
		}
		return nil
	})
	if res.Stream == nil {
		res.End = f.End()
	}
	if res.End == nil && ctx.Err() == nil {
		// The output may be lost, but the exit code need not be.
		var err error
		if res.End, err = r.waitEnd(ctx); res.Stream == nil {
			res.Stream = err
		}
	}
	return res
}

// setEnd records how the command ended; nil means unknown.
func (r *execRun) setEnd(data *wire.Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if data == nil || data.ExitCode == nil || r.state != nil {
		return
	}
	r.state = &ProcessState{code: *data.ExitCode}
	r.once.Do(func() { close(r.exited) })
}

func (r *execRun) closePipes() {
	for _, p := range r.pipes {
		_ = p.Close()
	}
}

// finish determines what Wait returns.
func (r *execRun) finish(res engine.Result, cancelErr error) {
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	r.once.Do(func() { close(r.exited) })
	_, lost := errors.AsType[*engine.InputError](res.Input)
	switch {
	case lost:
		r.err = joinErrors(res.Input, r.remote.stillRunningError(res.Killed))
	case state != nil && !state.Success():
		r.err = &ExitError{ProcessState: state}
		if res.Stream != nil {
			r.err = joinErrors(r.err, res.Stream)
		} else if state.code == 128+13 {
			r.err = joinErrors(r.err, res.Writer) // why it got SIGPIPE
		}
		if errors.Is(res.Canceled, ErrChildren) {
			r.err = joinErrors(r.err, errCancelling(res.Canceled))
		} else {
			r.err = joinErrors(r.err, r.remote.stillRunningError(res.Killed))
		}
	case cancelErr != nil:
		r.err = cancelErr
	case state == nil && res.Stream != nil:
		r.err = res.Stream
	case state == nil && r.ctx.Err() != nil:
		r.err = joinErrors(r.ctx.Err(), r.remote.stillRunningError(res.Killed))
	case res.Overrun:
		r.err = exec.ErrWaitDelay
	case res.Stream != nil:
		r.err = res.Stream
	case res.Writer != nil:
		r.err = res.Writer
	default:
		r.err = res.Input
	}
	r.finishEvent(r.err)
	close(r.done)
}

// Process is a command that a [Cmd] has started. It is safe for concurrent use.
type Process struct{ run *execRun }

// Command returns the command as the API knows it.
func (p *Process) Command() *Command {
	if p == nil || p.run == nil {
		return nil
	}
	return p.run.remote
}

// Kill ends the command, and not its children, as [os.Process.Kill] does; see
// SignalTree. It does not wait for the command to end. If the command is known
// to have ended, it returns [os.ErrProcessDone].
func (p *Process) Kill() error { return p.Signal(SIGKILL) }

// Signal sends a signal: a [Signal], [os.Interrupt], [os.Kill] or one of
// package syscall.
func (p *Process) Signal(sig os.Signal) error { return p.send(sig, (*Command).Signal) }

// SignalTree is like Signal, but sends the signal to the command and all of its
// descendants; see [Command.SignalTree]. When the context of a Cmd ends, it is killed by
// SignalTree(os.Kill).
func (p *Process) SignalTree(sig os.Signal) error { return p.send(sig, (*Command).SignalTree) }

func (p *Process) send(sig os.Signal, send func(*Command, context.Context, Signal) error) error {
	if p == nil || p.run == nil {
		return fmt.Errorf("sandbox: %w: the Process was not started by a Cmd", ErrInvalid)
	}
	n, err := linuxSignal(sig)
	if err != nil {
		return err
	}
	return p.run.signal(context.WithoutCancel(p.run.ctx), n, send)
}

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
	// The numbers differ on other systems, but not the names of the signals
	// that the API knows.
	if s, ok := signalTexts[sig.String()]; ok {
		return s, nil
	}
	return 0, invalid("sig", "%v is not known; use a Signal of this package", sig)
}

// signalTexts maps package syscall's names of signals on Unix systems.
var signalTexts = map[string]Signal{
	"hangup": SIGHUP, "interrupt": SIGINT, "quit": SIGQUIT, "killed": SIGKILL, "terminated": SIGTERM,
	"continued": SIGCONT, "stopped (signal)": SIGSTOP, "suspended (signal)": SIGSTOP,
	"user defined signal 1": 10, "user defined signal 2": 12, "alarm clock": 14,
}

// signal sends a signal to the command.
func (r *execRun) signal(ctx context.Context, sig Signal, send func(*Command, context.Context, Signal) error) error {
	r.mu.Lock()
	ended := r.state != nil
	r.mu.Unlock()
	if ended {
		return os.ErrProcessDone
	}
	ctx, cancel := context.WithTimeout(ctx, engine.KillTimeout-2*engine.TreeGrace)
	defer cancel()
	err := send(r.remote, ctx, sig)
	if errors.Is(err, os.ErrProcessDone) {
		return os.ErrProcessDone
	}
	return err
}

func errCancelling(err error) error { return fmt.Errorf("exec: canceling Cmd: %w", err) }

// execTarget is a Sandbox, a Session or a User, on which a Cmd runs.
type execTarget interface {
	target
	// onSession performs the steps of a start. If the target is a sandbox, which may be
	// resumed between two steps, all steps use one session.
	onSession(ctx context.Context, fn func(target) (*Command, error)) (*Command, error)
}

func (s *Sandbox) onSession(ctx context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return withResume(ctx, s, func(cur *Session) (*Command, error) { return fn(cur) })
}

func (s *Session) onSession(_ context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return fn(s)
}

func (u *User) onSession(_ context.Context, fn func(target) (*Command, error)) (*Command, error) {
	return fn(u)
}

// input is a standard input of known length.
type input struct {
	content
	close func()
}

// largeInput is the length of input from which the program is looked up before the
// upload, not during it: a missing program would make a long upload useless.
const largeInput = 32 << 20

// trustedSize is the minimum size of a file for which the reported size is trusted.
// Smaller files are read, because files in /proc and /sys report any size.
const trustedSize = 64 << 10

// knownInput returns r as an input if its length can be determined without waiting.
// Otherwise it returns nil.
func knownInput(r io.Reader) (*input, error) {
	if b, ok := r.(*bytes.Buffer); ok {
		r = bytes.NewReader(b.Next(b.Len()))
	}
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return nil, err
		}
		if info.Size() < trustedSize {
			data, err := io.ReadAll(io.LimitReader(f, trustedSize))
			if err != nil {
				return nil, fmt.Errorf("sandbox: reading standard input: %w", err)
			}
			if len(data) == trustedSize { // it has grown, or reported a wrong size
				_, err := f.Seek(-trustedSize, io.SeekCurrent)
				return nil, err
			}
			r = bytes.NewReader(data)
		}
	}
	if s, ok := r.(io.ReadSeeker); ok {
		if c, err := contentOf(s); err == nil {
			return &input{content: c, close: func() {}}, nil
		}
	}
	return nil, nil
}

// startWithInput starts a command with its input in a file. It looks for the program at
// the same time, because the start itself only starts a shell. Each attempt uploads to a
// new name, and the files of failed attempts are removed. When ctx ends, nothing more is
// started.
func startWithInput(ctx context.Context, on execTarget, in *input, name string, o *CommandOptions, begin func(target) (*Command, error)) (*Command, error) {
	return on.onSession(ctx, func(t target) (cmd *Command, err error) {
		found := make(chan error, 1)
		go func() { found <- findProgram(ctx, t, name, o) }()
		if in.size >= largeInput {
			if err := <-found; err != nil {
				return nil, err
			}
			found <- nil
		}
		var files []string
		err = send(ctx, t, func(string) (iter.Seq2[tarball.Entry, error], error) {
			o.input = "/tmp/.stdin-" + rand.Text()
			files = append(files, o.input)
			return singleEntry(tarball.Entry{Name: o.input[1:], Mode: 0o600, Size: in.size, ModTime: time.Now(), Open: in.open}), nil
		}, nil)
		if err = cmp.Or(err, <-found, ctx.Err()); err == nil {
			if cmd, err = begin(t); err == nil {
				files = files[:len(files)-1]
			}
		}
		(&FileSystem{t: t}).discard(ctx, files...)
		return cmd, err
	})
}

// feed copies the input to the command.
func (r *execRun) feed(ctx context.Context) error {
	w := r.remote.Stdin(ctx)
	to := &inputWriter{Writer: w}
	_, err := io.Copy(to, r.stdin)
	if r.stdinPipe != nil {
		err = nil // a pipe of ours fails only because Wait has closed it
	}
	closeErr := w.Close()
	if to.err == nil && err == nil {
		to.err = closeErr
	}
	_, gone := errors.AsType[closedPipeError](to.err)
	switch {
	case to.err == nil:
		return err // the reader's error counts even if the command has ended
	case gone || ctx.Err() != nil:
		return nil // like os/exec, which ignores EPIPE
	}
	return &engine.InputError{Err: fmt.Errorf("sandbox: delivering standard input: %w", to.err)}
}

// inputWriter distinguishes a writer's error from a reader's.
type inputWriter struct {
	io.Writer
	err error
}

func (w *inputWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}
