package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Process is a command that was started. It is safe for concurrent use.
type Process struct {
	box   *Box
	cmd   *exec.Cmd
	pid   int
	term  *backend.Terminal
	input *os.File
	code  int           // set before done is closed
	done  chan struct{} // see Done

	mu     sync.Mutex
	exited bool
}

// After the process has exited, its output ends when the pipe has been silent for
// graceAfterExit. If a daemon still holds the pipe, the daemon's later output is lost.
// maxAfterExit is the capacity of a pipe, and so the most output that the process itself
// can have left in it.
const (
	graceAfterExit = 250 * time.Millisecond
	maxAfterExit   = 1 << 20
)

// Start starts a command. If the program or the working directory is missing, the error
// is of type *[backend.LaunchError]. ctx limits only the start.
func (b *Box) Start(ctx context.Context, spec backend.Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	if err := spec.Complete(b.Account(), backend.SearchPath()); err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	done, err := b.use()
	if err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	defer done()
	p := &Process{box: b, done: make(chan struct{})}
	p.cmd = &exec.Cmd{Args: append([]string{spec.Path}, spec.Args...)}
	pipes, err := p.openPipes(&spec)
	if err != nil {
		return nil, fmt.Errorf("box: start: %w", err)
	}
	proc, err := b.machine.Launch(p.cmd, &spec)
	pipes.closeChild()
	if err != nil {
		pipes.closeParent()
		if failure, ok := errors.AsType[*backend.LaunchError](err); ok {
			return nil, failure
		}
		if !b.Running() {
			err = backend.ErrStopped // instead of the kernel's error
		}
		return nil, fmt.Errorf("box: start: %w", err)
	}
	p.pid = proc.Pid()
	b.mu.Lock()
	b.procs[p] = struct{}{}
	b.mu.Unlock()
	go p.wait(proc, pipes)
	return p, nil
}

// wait waits for the end of the process and of its output.
func (p *Process) wait(proc backend.Running, pipes *pipes) {
	pipes.startCopying()
	end := proc.Wait()
	p.mu.Lock()
	p.exited = true
	p.mu.Unlock()
	p.box.machine.Ended(p.pid)
	pipes.finish()

	p.box.mu.Lock()
	delete(p.box.procs, p)
	p.box.cpu += end.CPU
	p.box.mu.Unlock()
	p.code = end.Code
	close(p.done)
}

// Pid is the process ID as the host sees it.
func (p *Process) Pid() int { return p.pid }

// Done returns a channel that is closed when the command has ended and its output was
// delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for Done and returns the exit code: that of the process, or as in a shell
// 128 + n if signal n ended it.
func (p *Process) Wait() int {
	<-p.done
	return p.code
}

// Signal sends signal n to the process alone, not to its children. It returns
// os.ErrProcessDone if the process has exited.
func (p *Process) Signal(n int) error { return p.signal(n, backend.SignalProcess) }

// SignalGroup sends signal n to the process and to its process group. It returns
// os.ErrProcessDone if the process has exited.
func (p *Process) SignalGroup(n int) error { return p.signal(n, backend.SignalGroup) }

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

// Input returns the writing end of a standard input that was left open, or nil. A write
// blocks while the process does not read; a deadline ends that. The file is closed once
// the process has exited.
func (p *Process) Input() *os.File { return p.input }

// Write writes to the process's terminal.
func (p *Process) Write(data []byte) (int, error) {
	if p.term == nil {
		return 0, fmt.Errorf("box: write: %w", backend.ErrUnsupported)
	}
	return p.term.Master.Write(data)
}

// Resize changes the size of the process's terminal.
func (p *Process) Resize(size backend.Size) error {
	if p.term == nil {
		return fmt.Errorf("box: resize: %w", backend.ErrUnsupported)
	}
	return p.term.Resize(size)
}
