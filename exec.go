package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Cmd is a command to be run in a sandbox, or one that runs there, in the shape
// of [exec.Cmd]: code that uses that moves over by taking its Cmd from
// [Sandbox.CommandContext]. What is said there holds here, except that
//
//   - the program is looked for in the sandbox, when the command is started;
//   - Env adds to the sandbox's environment instead of replacing it;
//   - Stdin is carried to the sandbox as a whole before the command starts;
//   - a command that a signal ended has the exit code that a shell gives it,
//     128 plus the signal's number.
//
// The output survives cut connections, as that of [Sandbox.RunCommand] does. A
// Cmd can't be used again after Run, Output or CombinedOutput was called, and is
// for one goroutine at a time, save that Process may be used by any.
type Cmd struct {
	// Path is the program: a path, or a name that is looked for in the
	// sandbox's PATH.
	Path string
	// Args holds the command's arguments, the program's name being Args[0],
	// which is not sent.
	Args []string
	// Env holds "key=value" entries that are added to the sandbox's
	// environment. The last of several for one key counts.
	Env []string
	// Dir is the directory to start in; a relative one starts at the sandbox's
	// own, which is also what empty means.
	Dir string
	// Sudo runs the command as root.
	Sudo bool

	// Stdin is the command's standard input; nil means none. It has to come to
	// an end: it is carried to the sandbox in a file that only the command's
	// user can read, and that is gone when the command has begun. Nothing of it
	// appears in the command's arguments.
	//
	// A reader whose length can be told (one that can seek, or a
	// [bytes.Buffer]) is sent by Start. Any other is read to its end in the
	// background after Start has returned; the command begins then, and an
	// error of that is returned by Wait.
	Stdin io.Reader

	// Stdout and Stderr get the output as it comes; nil discards it. One
	// goroutine at a time calls Write, and the same writer for both sees the
	// output in its order.
	Stdout, Stderr io.Writer

	// Process is the command once it was started.
	Process *Process
	// ProcessState tells how it ended, after Wait or Run.
	ProcessState *ProcessState
	// Err is an error that Start returns.
	Err error

	// Cancel is called when the context ends while the command runs. The
	// default kills the command; nil does nothing. Its error is treated as that
	// of [exec.Cmd]'s Cancel is.
	Cancel func() error
	// WaitDelay limits how long Wait goes on after the context has ended or the
	// command has, for a command that does not end or whose children hold on to
	// its output. Zero means no limit, but a command that Cancel was called for
	// is given up after 30 seconds if the API does not tell of its end.
	WaitDelay time.Duration

	ctx     context.Context
	on      execTarget
	started atomic.Bool
	waited  bool
	stdin   *stdinPipe
	outputs []*outputPipe
	run     *execRun
}

// ErrWaitDelay is returned by [Cmd.Wait] when the command succeeded but its
// output had not come to an end within WaitDelay. It is [exec.ErrWaitDelay].
var ErrWaitDelay = exec.ErrWaitDelay

// CommandContext returns a Cmd that runs a program in the sandbox, resuming it
// if it is stopped. When ctx ends while the command runs, its Cancel function is
// called, which kills it unless set otherwise.
func (s *Sandbox) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return newCmd(ctx, s, name, arg)
}

// CommandContext is as [Sandbox.CommandContext], but fails when this session is
// stopped.
func (s *Session) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return newCmd(ctx, s, name, arg)
}

// CommandContext is as [Sandbox.CommandContext], but the program runs as the
// user, in the user's home directory; see [SandboxUser.RunCommand].
func (u *SandboxUser) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return newCmd(ctx, u, name, arg)
}

func newCmd(ctx context.Context, on execTarget, name string, arg []string) *Cmd {
	c := &Cmd{Path: name, Args: append([]string{name}, arg...), ctx: ctx, on: on}
	c.Cancel = func() error { return c.Process.Kill() }
	return c
}

// String returns the program and its arguments, for people to read.
func (c *Cmd) String() string {
	if len(c.Args) < 2 {
		return c.Path
	}
	return c.Path + " " + strings.Join(c.Args[1:], " ")
}

// GoString is String, so that %#v does not show the environment.
func (c *Cmd) GoString() string { return c.String() }

// LogValue shows the program only: arguments may hold secrets.
func (c *Cmd) LogValue() slog.Value { return slog.StringValue(c.Path) }

// Environ returns a copy of the entries that the command adds to the sandbox's
// environment, each key once.
func (c *Cmd) Environ() []string {
	env := c.environ()
	out := make([]string, 0, len(env))
	for i, kv := range env {
		key, _, _ := strings.Cut(kv, "=")
		last := !slices.ContainsFunc(env[i+1:], func(later string) bool {
			k, _, _ := strings.Cut(later, "=")
			return k == key
		})
		if last {
			out = append(out, kv)
		}
	}
	return out
}

func (c *Cmd) environ() []string {
	if c.Env == nil && c.Dir != "" {
		return []string{"PWD=" + c.dir()}
	}
	return c.Env
}

func (c *Cmd) dir() string {
	if c.Dir == "" || path.IsAbs(c.Dir) || c.on == nil {
		return c.Dir
	}
	return path.Join(c.on.Cwd(), c.Dir)
}

// options checks the fields and turns them into those of StartCommand.
func (c *Cmd) options() (*CommandOptions, error) {
	o := &CommandOptions{Cwd: c.dir(), Sudo: c.Sudo}
	for i, kv := range c.environ() {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, invalid("Env", "entry number %d is not key=value", i+1)
		}
		if o.Env == nil {
			o.Env = make(Env)
		}
		o.Env[key] = value
	}
	if c.WaitDelay < 0 {
		return nil, invalid("WaitDelay", "%v is negative", c.WaitDelay)
	}
	_, err := newCommandBody(c.Path, c.args(), o)
	return o, err
}

func (c *Cmd) args() []string {
	if len(c.Args) == 0 {
		return nil
	}
	return c.Args[1:]
}

// Run starts the command and waits for its end. A non-zero exit code is an
// error, of type [*ExitError].
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output. When it fails and
// Stderr was not set, the [*ExitError] has what it wrote to standard error.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("exec: Stdout already set")
	}
	var stdout bytes.Buffer
	c.Stdout = &stdout
	capture := c.Stderr == nil
	saver := &prefixSuffixSaver{limit: 32 << 10}
	if capture {
		c.Stderr = saver
	}
	err := c.Run()
	if e, ok := errors.AsType[*ExitError](err); ok && capture {
		e.Stderr = saver.bytes()
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard
// error in the order in which they came.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("exec: Stdout already set")
	}
	if c.Stderr != nil {
		return nil, errors.New("exec: Stderr already set")
	}
	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	err := c.Run()
	return both.Bytes(), err
}

// StdoutPipe returns a pipe that the command's standard output can be read
// from. Wait closes it when the command has ended, so all reading has to be done
// before Wait is called; it need not be closed otherwise.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) {
	return c.outputPipe("Stdout", &c.Stdout)
}

// StderrPipe returns a pipe that the command's standard error can be read from,
// as [Cmd.StdoutPipe] does.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) {
	return c.outputPipe("Stderr", &c.Stderr)
}

func (c *Cmd) outputPipe(name string, w *io.Writer) (io.ReadCloser, error) {
	if *w != nil {
		return nil, fmt.Errorf("exec: %s already set", name)
	}
	if c.started.Load() {
		return nil, fmt.Errorf("exec: %sPipe after process started", name)
	}
	p := newOutputPipe()
	c.outputs = append(c.outputs, p)
	*w = p
	return p, nil
}

// StdinPipe returns a pipe to write the command's standard input to. The
// command begins when the pipe is closed, since its input is carried to the
// sandbox as a whole: a conversation with the command is not possible this way,
// but in [Sandbox.Shell].
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil {
		return nil, errors.New("exec: Stdin already set")
	}
	if c.started.Load() {
		return nil, errors.New("exec: StdinPipe after process started")
	}
	c.stdin = newStdinPipe()
	c.Stdin = c.stdin.r
	return c.stdin, nil
}
