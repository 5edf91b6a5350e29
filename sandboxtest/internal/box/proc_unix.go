//go:build unix

package box

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// openFlags keep the opening of a pipe from waiting for its other end, and that of
// a terminal from making it this process's.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY

// prepare gives a command a session of its own, and so a process group that can
// be signaled.
func prepare(cmd *exec.Cmd, tty bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: tty}
}

// hostEnv adds what programs can't do without.
func hostEnv(env []string) []string { return env }

// signalGroup signals a process group by its leader.
func signalGroup(pid int, sig syscall.Signal) error { return signalProcess(-pid, sig) }

// signalProcess signals one process.
func signalProcess(pid int, sig syscall.Signal) error {
	err := syscall.Kill(pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// readNow reads what is in a pipe, whatever its deadline. If the pipe is empty,
// the error is EAGAIN; at its end there are neither bytes nor an error.
func readNow(pipe *os.File, buf []byte) (n int, err error) {
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

func openTerminal(size Size) (*terminal, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	t := &terminal{master: master, slave: slave}
	err = t.resize(size)
	if err == nil && runtime.GOOS == "linux" { // kqueue does not take terminals
		t.master, err = awaited(master)
	}
	if err != nil {
		return nil, errors.Join(err, t.master.Close(), slave.Close())
	}
	return t, nil
}

// awaited returns a file for what f has open, and closes f. The goroutines that
// read and write it wait without a thread, so that deadlines and Close end that.
// If it fails, f is returned as it was.
func awaited(f *os.File) (*os.File, error) {
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

func (t *terminal) resize(size Size) error {
	// Through the connection, since the terminal may be closed at the same time.
	conn, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows})
	})
	return errors.Join(err, failed)
}
