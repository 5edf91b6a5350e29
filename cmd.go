package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/outputs"
)

// Cmd is a command that is to be run in a sandbox, or is running there. It
// mirrors [exec.Cmd]: existing code works once its Cmd comes from
// [Sandbox.CommandContext]. It behaves as documented in package exec, except
// that
//
//   - the program is looked up in the sandbox, when the command is started;
//   - Env adds to the sandbox's environment instead of replacing it;
//   - the exit code of a command that was ended by a signal is 128 plus the
//     signal's number, as in a shell;
//   - output that is not UTF-8 needs the field Binary;
//   - the output ends with the command: what its children write later is lost,
//     unless Binary is set;
//   - standard output and standard error are two streams in the sandbox, even if
//     both go to one writer.
//
// Output survives broken connections, as with [Sandbox.RunCommand]. A Cmd
// cannot be reused after calling Run, Output or CombinedOutput. It is not safe
// for concurrent use, except for Process.
type Cmd struct {
	// Path is the program to run: a path, or a name that is looked up in the
	// sandbox's PATH.
	Path string
	// Args holds the command line; Args[0] is the program's name and is not
	// sent.
	Args []string
	// Env holds "key=value" entries that are added to the sandbox's
	// environment. If a key appears more than once, the last value is used.
	Env []string `secret:"names"`
	// Dir is the working directory. Empty means the sandbox's working directory. A relative
	// Dir starts there.
	Dir string
	// Sudo runs the command as root.
	Sudo bool
	// Binary delivers every byte of the output. Otherwise bytes that are not UTF-8 arrive
	// as U+FFFD. See [CommandOptions.Binary] for what it changes. Start still reports a
	// missing program, with one more request.
	Binary bool

	// Stdin is the command's standard input; nil means none. It never appears
	// in the command's arguments.
	//
	// Start uploads a reader of known length (a [bytes.Buffer], a regular file, or any other
	// [io.Seeker]) to a file that only the command's user can read and that is removed when
	// the command begins. That takes two more requests, one of which looks for the program
	// during the upload. Any other reader is copied while the command runs, in requests of up
	// to 512 KiB. Each byte is delivered once, as with [Command.Stdin]. As in package exec,
	// Wait waits for a pending Read even after the command has ended, unless the context ends
	// or WaitDelay has passed. Input that the command did not read is not an error.
	//
	// If the service does not support input to running commands, such a reader
	// makes Start fail with an error that matches [errors.ErrUnsupported]: read it
	// into a [bytes.Buffer] or a file first.
	Stdin io.Reader

	// Stdout and Stderr receive the output as it arrives; nil discards it. At
	// most one goroutine at a time calls Write. If both are the same writer, it
	// receives the output in the order in which the service has read it.
	Stdout, Stderr io.Writer

	// Process is the command, once started.
	Process *Process
	// ProcessState describes how the command ended. It is set by Wait and Run.
	ProcessState *ProcessState

	// Cancel is called if the context ends while the command runs. It is set by
	// CommandContext to kill the command and its children, by [Process.SignalTree]; nil does
	// nothing. Its error is treated like that of Cancel in [exec.Cmd]. However, an error that
	// matches [ErrChildren] is always part of the result.
	Cancel func() error
	// WaitDelay limits how long Wait continues after the context or the command has ended:
	// for a command that does not exit, for output that still arrives, and for a Stdin whose
	// Read does not return. Children that hold the output open don't count, because the
	// service ends the output with the command. With Binary they do count, because the
	// command ends only when they do. After WaitDelay a command that still runs is killed
	// with its children. It is abandoned five seconds later if the API has not reported its
	// end. If the kill may have failed, the error matches [ErrOutcomeUnknown] or
	// [ErrChildren]. Zero means no limit, except after a call of Cancel: then the command is
	// killed and abandoned in the same way after 30 seconds, or abandoned after five if the
	// API does not respond to the kill at all. Wait always waits for a pending Write to
	// Stdout or Stderr.
	WaitDelay time.Duration

	ctx     context.Context
	on      execTarget
	started atomic.Bool
	waited  bool
	stdin   *pipe
	viaRun  bool // Run was called
	outputs []*pipe
	run     *execRun
}

// CommandContext returns a Cmd that runs a program in the sandbox, resuming the
// sandbox if it is stopped. It makes no request. If ctx ends while the command
// runs, its Cancel function is called, which by default kills the command.
func (s *Sandbox) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return newCmd(ctx, s, name, arg)
}

// CommandContext is like [Sandbox.CommandContext], but the command fails if
// this session is stopped.
func (s *Session) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return newCmd(ctx, s, name, arg)
}

// CommandContext is like [Sandbox.CommandContext], but the program runs as the
// user, in the user's home directory; see [User.RunCommand].
func (u *User) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return newCmd(ctx, u, name, arg)
}

func newCmd(ctx context.Context, on execTarget, name string, arg []string) *Cmd {
	c := &Cmd{Path: name, Args: append([]string{name}, arg...), ctx: ctx, on: on}
	c.Cancel = func() error { return c.Process.SignalTree(os.Kill) }
	return c
}

// String returns a human-readable description of the command.
func (c *Cmd) String() string {
	if len(c.Args) < 2 {
		return c.Path
	}
	return c.Path + " " + strings.Join(c.Args[1:], " ")
}

// Format writes String, whatever the verb: the environment is never shown.
func (c *Cmd) Format(f fmt.State, verb rune) { redact.String(f, verb, c.String()) }

// LogValue describes the command without its arguments, which may hold secrets.
func (c *Cmd) LogValue() slog.Value {
	if c == nil {
		return slog.StringValue("")
	}
	return slog.StringValue(c.Path)
}

// Environ returns a copy of the environment variables that the command adds to
// the sandbox's, each key once.
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
	return path.Join(c.on.cwd(), c.Dir)
}

// options checks the fields and converts them to the options of StartCommand.
func (c *Cmd) options() (*CommandOptions, error) {
	o := &CommandOptions{Cwd: c.dir(), Sudo: c.Sudo, Binary: c.Binary}
	if c.Env == nil {
		o.callerEnv = Env{} // PWD is no secret
	}
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

// Run starts the command and waits for it to end. If the exit code is not zero,
// the error is of type [*ExitError].
func (c *Cmd) Run() error {
	c.viaRun = true
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output. If it fails and
// Stderr was nil, the [*ExitError] holds what the command wrote to standard
// error.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("exec: Stdout already set")
	}
	var stdout bytes.Buffer
	c.Stdout = &stdout
	capture := c.Stderr == nil
	var saver outputs.HeadTail // keeps as much as os/exec does
	if capture {
		c.Stderr = &saver
	}
	err := c.Run()
	if e, ok := errors.AsType[*ExitError](err); ok && capture {
		e.Stderr = saver.Bytes()
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard
// error, in the order in which they arrived.
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

// Wait waits for the command to end, for its output to be delivered and for its
// input to be copied. The error is nil if the exit code is zero and of type
// [*ExitError] if it is not. Other errors come from the context, the
// connection, a writer or Stdin.
//
// A command whose output is no longer read, because a pipe was closed or a
// writer has failed, is sent SIGPIPE at its next write, as by a local pipe. If
// it keeps writing it is sent SIGTERM after one second and killed after five. The
// error of a writer is joined to the *ExitError of a command that SIGPIPE has
// ended.
func (c *Cmd) Wait() error {
	if c.run == nil {
		return errors.New("exec: not started")
	}
	if c.waited {
		return errors.New("exec: Wait was already called")
	}
	c.waited = true
	close(c.run.waiting)
	<-c.run.exited
	c.run.closePipes()
	<-c.run.done
	c.run.mu.Lock()
	c.ProcessState = c.run.state
	c.run.mu.Unlock()
	return c.run.err
}

// StdoutPipe returns a pipe that is connected to the command's standard output.
// Wait closes the pipe after the command has ended, so all reads must complete
// before Wait is called; it need not be closed otherwise.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) {
	return c.outputPipe("Stdout", &c.Stdout)
}

// StderrPipe returns a pipe that is connected to the command's standard error,
// like [Cmd.StdoutPipe].
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
	p := newPipe()
	c.outputs = append(c.outputs, p)
	*w = p
	return p, nil
}

// StdinPipe returns a pipe that is connected to the command's standard input
// while it runs. Closing it ends the input; Wait closes it after the command
// has ended. Where the service does not support input to running commands, Start
// fails; see the field Stdin.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil {
		return nil, errors.New("exec: Stdin already set")
	}
	if c.started.Load() {
		return nil, errors.New("exec: StdinPipe after process started")
	}
	c.stdin = newPipe()
	c.Stdin = c.stdin
	return &stdinPipe{p: c.stdin}, nil
}

// ProcessState describes how a command ended.
type ProcessState struct{ code int }

// ExitCode returns the exit code: 128 plus the signal's number if the command
// was ended by a signal, and -1 if p is nil because the command has not ended.
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

// String describes the state like package os: "exit status 3".
func (p *ProcessState) String() string {
	if p == nil {
		return "<nil>"
	}
	return "exit status " + strconv.Itoa(p.code)
}

// ExitError reports an unsuccessful exit of a command that a [Cmd] ran. Any other
// error of Cmd means that something else failed: the sandbox, the connection, a
// writer, or the start of the program. So
//
//	exit, ok := errors.AsType[*sandbox.ExitError](err)
//
// tells a program that failed from a sandbox that failed. If the program failed
// and its output was lost as well, the error matches both.
type ExitError struct {
	*ProcessState
	// Stderr holds the standard error of a command run by [Cmd.Output] with a nil Stderr, or
	// of a failed step of [Sandbox.CreateUser] and others. Long output is reduced to its
	// first and last 32 KiB.
	Stderr []byte
}

// Error returns a description such as "exit status 3".
func (e *ExitError) Error() string { return e.ProcessState.String() }

// LookPath looks for a program in the PATH of the sandbox's commands, resuming the
// sandbox if it is stopped, and returns its path, as [exec.LookPath] does. A name with a
// slash is checked directly. If there is no such program, the error is an [*exec.Error]
// that wraps [exec.ErrNotFound]. If the file can't be executed, it wraps
// [fs.ErrPermission]. LookPath makes one request, which runs sh.
func (s *Sandbox) LookPath(ctx context.Context, name string) (string, error) {
	return lookPath(ctx, s, name, nil)
}

// LookPath is like [Sandbox.LookPath], but looks in the PATH of the user's commands,
// as the user.
func (u *User) LookPath(ctx context.Context, name string) (string, error) {
	return lookPath(ctx, u, name, nil)
}

// lookPathScript prints the path of the program $1 for a command in the directory $2. It
// exits with 103 if there is no such program, and with 104 if it can't be executed.
const lookPathScript = `p=$1 dir=$2; set -f
case $p in
*/*) set -- "$p" ;;
*) IFS=:; set --; for d in $PATH; do set -- "$@" "${d:-.}/$p"; done ;;
esac
code=103
for f; do
	case $f in /*) at=$f;; *) at=$dir/$f;; esac
	[ ! -e "$at" ] || { code=104; [ -d "$at" ] || [ ! -x "$at" ] || { printf %s "$f"; exit 0; }; }
done
exit $code`

// lookPath looks for a program where a command with these options would find it.
func lookPath(ctx context.Context, t target, name string, o *CommandOptions) (string, error) {
	if _, err := enter(ctx, t); err != nil {
		return "", err
	}
	if err := checkText("name", name); err != nil {
		return "", err
	}
	if name == "" {
		return "", missingProgram(name, nil)
	}
	o = cmp.Or(o, &CommandOptions{})
	dir := o.Cwd
	if !path.IsAbs(dir) {
		dir = path.Join(t.cwd(), dir)
	}
	sh := program{name: "/bin/sh", sudo: o.Sudo, env: o.Env, outlives: true}
	done, err := sh.command(ctx, t, sh.name, []string{"-c", lookPathScript, "sh", name, dir})
	switch {
	case err != nil:
		return "", err
	case done.ExitCode == 103:
		return "", missingProgram(name, nil)
	case done.ExitCode == 104:
		return "", &exec.Error{Name: name, Err: fs.ErrPermission}
	}
	return done.Stdout, nil
}

// findProgram returns an error if a program can't be started. It does not look for
// a User's programs: sudo starts those, and reports such an error itself.
func findProgram(ctx context.Context, t target, name string, o *CommandOptions) error {
	if _, byUser := t.(*User); byUser && !o.Sudo {
		return nil
	}
	_, err := lookPath(ctx, t, name, o)
	if errors.Is(err, fs.ErrPermission) {
		return &fs.PathError{Op: "exec", Path: name, Err: fs.ErrPermission}
	}
	return err
}
