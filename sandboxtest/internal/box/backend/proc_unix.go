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

// OpenFlags keep the opening of a pipe from waiting for its other end, and that of
// a terminal from making it this process's.
const OpenFlags = unix.O_NONBLOCK | unix.O_NOCTTY

// NewSession gives a command a session of its own, and so a process group that can
// be signaled.
func NewSession(cmd *exec.Cmd, tty bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: tty}
}

// HostEnv adds what programs can't do without.
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

// ReadAvailable reads what is in a pipe, whatever its deadline. If the pipe is empty,
// the error is EAGAIN; at its end there are neither bytes nor an error.
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

// Pollable returns a file for what f has open, and closes f. The goroutines that
// read and write it wait without a thread, so that deadlines and Close end that.
// If it fails, f is returned as it was.
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
	// Through the connection, since the terminal may be closed at the same time.
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
