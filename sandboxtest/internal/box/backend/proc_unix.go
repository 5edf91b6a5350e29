//go:build unix

package backend

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// OpenFlags keep open from waiting for the other end of a pipe, and from making a
// terminal this process's controlling terminal.
const OpenFlags = unix.O_NONBLOCK | unix.O_NOCTTY

// NewSession starts a command in a new session, and so in a process group that can be
// signaled.
func NewSession(cmd *exec.Cmd, tty bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: tty}
}

// HostEnv adds the variables that programs need on this system.
func HostEnv(env []string) []string { return env }

// SignalGroup signals a process group by its leader.
func SignalGroup(pid int, sig syscall.Signal) error { return SignalProcess(-pid, sig) }

// SignalProcess signals one process.
func SignalProcess(pid int, sig syscall.Signal) error {
	err := syscall.Kill(pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// ReadAvailable reads what is in a pipe, whatever its deadline. If the pipe is empty, the
// error is EAGAIN. At its end, n is 0 and err is nil.
func ReadAvailable(pipe *os.File, buf []byte) (n int, err error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) {
		for {
			if n, err = unix.Read(int(fd), buf); err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return 0, cerr
	}
	return max(n, 0), err
}

// OpenTerminal opens a pseudo terminal.
func OpenTerminal(size Size) (*Terminal, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	t := &Terminal{Master: master, Slave: slave}
	err = t.Resize(size)
	if err == nil && runtime.GOOS == "linux" { // kqueue does not take terminals
		t.Master, err = Pollable(master)
	}
	if err != nil {
		return nil, errors.Join(err, t.Master.Close(), slave.Close())
	}
	return t, nil
}

// Pollable returns a non-blocking file for the descriptor of f, and closes f. Goroutines
// that read or write it wait without a thread, so that deadlines and Close end the wait.
// If Pollable fails, it returns f unchanged.
func Pollable(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return f, err
	}
	fd := -1
	var failed error
	err = raw.Control(func(d uintptr) {
		if fd, failed = unix.FcntlInt(d, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
			failed = unix.SetNonblock(fd, true)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
		return f, err
	}
	return os.NewFile(uintptr(fd), f.Name()), f.Close()
}

// Resize changes the size of the terminal.
func (t *Terminal) Resize(size Size) error {
	// Use the raw connection, because the terminal may be closed at the same time.
	conn, err := t.Master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows})
	})
	return errors.Join(err, failed)
}
