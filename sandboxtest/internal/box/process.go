package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Size is that of a terminal in characters.
type Size struct{ Cols, Rows uint16 }

// Spec describes a command.
type Spec struct {
	// Path is the program: a path, or a name that is looked up in PATH.
	Path string
	Args []string
	// Env is the environment as "KEY=value"; of two with the same key the last
	// counts. PATH, HOME, USER, LOGNAME, SHELL and LANG have defaults.
	Env []string
	// Dir is the working directory, relative to that of the box's account. Empty
	// means the account's.
	Dir string
	// User is "" for the box's user, or "root". Folder mode runs both as the user
	// that the host runs as.
	User string
	// Timeout ends the command and its children with SIGKILL. Zero means no
	// timeout.
	Timeout time.Duration
	// Stdin is read until the command has exited; nil means empty input. The
	// goroutine that copies it ends when Read returns.
	Stdin io.Reader
	// OpenStdin, in place of Stdin, leaves the input open for [Process.Input].
	OpenStdin bool
	// Stdout and Stderr receive the output as it is written: on Linux from one
	// goroutine, in the order of arrival, elsewhere from a goroutine each, so
	// that both may be the same writer only if it is safe for concurrent use. Nil
	// discards. With TTY all output goes to Stdout. A writer that blocks blocks
	// the command; output that a writer fails to write is lost.
	Stdout, Stderr io.Writer
	// TTY runs the command on a pseudo terminal of this size.
	TTY *Size
}

// Result is how a command ended.
type Result struct {
	// ExitCode is that of the process, or as in a shell 128 + n when signal n
	// ended it, 127 when the program was not found, 126 when it could not be
	// started.
	ExitCode int
	// TimedOut says that the timeout ended it.
	TimedOut bool
	Duration time.Duration
	// CPU is the user and system time of the process and of the children for
	// which it waited.
	CPU time.Duration
}

// Process is a command that was started. It is safe for concurrent use.
type Process struct {
	box   *Box
	cmd   *exec.Cmd
	pid   int
	start time.Time
	term  *terminal
	input *os.File
	done  chan struct{}

	mu     sync.Mutex
	exited bool
	result Result
}

// launchError is a command that could not be started, as a shell reports it.
type launchError struct {
	code    int
	message string
}

func (e *launchError) Error() string { return e.message }

// graceAfterExit is how long a pipe may be silent after the process has exited
// before its holder counts as a daemon; what that writes later is lost.
// maxAfterExit is the capacity of a pipe, which is the most that the process can
// have left in it.
const (
	graceAfterExit = 250 * time.Millisecond
	maxAfterExit   = 1 << 20
)

// Start starts a command. If the program or the working directory is missing,
// Start returns a command that exits at once, with a message on Stderr. ctx
// limits only the start.
func (b *Box) Start(ctx context.Context, spec Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	if err := spec.complete(b.Account(), searchPath()); err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	done, err := b.use()
	if err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	defer done()
	p := &Process{box: b, done: make(chan struct{}), start: time.Now()}
	p.cmd = &exec.Cmd{Args: append([]string{spec.Path}, spec.Args...)}
	pipes, err := p.connect(&spec)
	if err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	proc, err := b.machine.launch(p.cmd, &spec)
	pipes.closeChild()
	if failure, ok := errors.AsType[*launchError](err); ok {
		pipes.closeParent()
		p.term = nil
		return p.failed(&spec, failure), nil
	}
	if err != nil {
		pipes.closeParent()
		if !b.Running() {
			err = ErrStopped // whatever the kernel's error
		}
		return nil, fmt.Errorf("box: start: %w", err)
	}
	p.pid = proc.pid()
	b.mu.Lock()
	b.procs[p] = struct{}{}
	b.mu.Unlock()
	go p.wait(proc, pipes, &spec)
	return p, nil
}

func (s *Spec) check() error {
	if s.Path == "" {
		return errors.New("empty program name")
	}
	if s.User != "" && s.User != rootUser {
		return fmt.Errorf("user %q, want %q or empty", s.User, rootUser)
	}
	if s.OpenStdin && (s.Stdin != nil || s.TTY != nil) {
		return errors.New("OpenStdin excludes Stdin and TTY")
	}
	if s.Timeout < 0 {
		return fmt.Errorf("negative timeout %v", s.Timeout)
	}
	if strings.ContainsRune(s.Path+s.Dir, 0) {
		return errors.New("NUL byte in the program name or directory")
	}
	for _, arg := range s.Args {
		if strings.ContainsRune(arg, 0) {
			return errors.New("NUL byte in an argument")
		}
	}
	for _, kv := range s.Env {
		// The value may be a secret, so it is not shown.
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" || strings.ContainsRune(kv, 0) {
			return errors.New("an environment entry is not of the form KEY=value, or has a NUL byte")
		}
	}
	return nil
}

// complete makes the directory absolute and puts the defaults into the
// environment.
func (s *Spec) complete(account Account, path string) (err error) {
	s.Env = defaultEnv(s, account, path)
	s.Dir, err = cleanPath(".", s.Dir, account.WorkDir)
	return err
}

// failed is a process that ended without having started.
func (p *Process) failed(spec *Spec, failure *launchError) *Process {
	w := spec.Stderr
	if spec.TTY != nil {
		w = spec.Stdout
	}
	if w != nil {
		_, _ = io.WriteString(w, failure.message+"\n")
	}
	p.exited = true
	p.result = Result{ExitCode: failure.code, Duration: time.Since(p.start)}
	close(p.done)
	return p
}

// wait sees the process through to its end.
func (p *Process) wait(proc running, pipes *pipes, spec *Spec) {
	var timer *time.Timer
	if spec.Timeout > 0 {
		timer = time.AfterFunc(spec.Timeout, p.timeout)
	}
	pipes.run()
	end := proc.wait()
	duration := time.Since(p.start)
	p.mu.Lock()
	p.exited = true
	p.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	p.box.machine.ended(p.pid)
	pipes.finish()

	p.mu.Lock()
	p.result.ExitCode, p.result.CPU, p.result.Duration = end.Code, end.CPU, duration
	p.mu.Unlock()
	p.box.mu.Lock()
	delete(p.box.procs, p)
	p.box.cpu += end.CPU
	p.box.mu.Unlock()
	close(p.done)
}

func (p *Process) timeout() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited {
		return
	}
	p.result.TimedOut = true
	killTree(p.pid)
}

// Pid is the process ID as the host sees it, 0 when it could not be started.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the command has ended and its output was delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for Done.
func (p *Process) Wait() Result {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// Signal sends signal n to the process alone, not to its children. When the
// process has exited it is os.ErrProcessDone.
func (p *Process) Signal(n int) error { return p.signal(n, signalProcess) }

// SignalGroup sends signal n to the process and to its process group. When the
// process has exited it is os.ErrProcessDone.
func (p *Process) SignalGroup(n int) error { return p.signal(n, signalGroup) }

func (p *Process) signal(n int, send func(pid int, sig syscall.Signal) error) error {
	if n < 1 || n > 64 {
		return fmt.Errorf("box: signal %d is not in 1..64", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited {
		return os.ErrProcessDone
	}
	return send(p.pid, syscall.Signal(n))
}

// Input returns the writing end of a standard input that was left open, or else
// nil. Writing to it blocks while the process does not read; a deadline ends
// that. Once the process has exited it is closed.
func (p *Process) Input() *os.File { return p.input }

// Write writes to the terminal of a process that has one.
func (p *Process) Write(data []byte) (int, error) {
	if p.term == nil {
		return 0, fmt.Errorf("box: write: %w", ErrUnsupported)
	}
	return p.term.master.Write(data)
}

// Resize changes the size of the terminal of a process that has one.
func (p *Process) Resize(size Size) error {
	if p.term == nil {
		return fmt.Errorf("box: resize: %w", ErrUnsupported)
	}
	return p.term.resize(size)
}

// exitCode is that of a shell.
func exitCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(interface {
		Signaled() bool
		Signal() syscall.Signal
	}); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}
