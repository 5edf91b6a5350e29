package backend

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/windows"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
)

// StopSignal stops a process.
const StopSignal = syscall.Signal(19) // Windows lacks it; sending it has no effect

// OpenFlags is empty: a name in a folder can't be a pipe or a terminal on Windows.
const OpenFlags = 0

// NewSession starts a command in a new process group.
func NewSession(cmd *exec.Cmd, _ bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// HostEnv adds the variables that programs need on this system.
func HostEnv(env []string) []string {
	var base []string
	for _, key := range []string{"SystemRoot", "SystemDrive", "ComSpec", "PATHEXT", "TEMP", "TMP"} {
		if value, ok := os.LookupEnv(key); ok {
			base = append(base, key+"="+value)
		}
	}
	return inside.MergeEnv(base, env)
}

// SignalGroup ends a process tree for signals that end a process. Windows has no others.
func SignalGroup(pid int, sig syscall.Signal) error {
	return endBy(pid, sig, func() error { killTree(pid); return nil })
}

// SignalProcess is like SignalGroup for one process.
func SignalProcess(pid int, sig syscall.Signal) error {
	return endBy(pid, sig, func() error {
		p, err := os.FindProcess(pid)
		if err != nil {
			return os.ErrProcessDone
		}
		return p.Kill()
	})
}

func endBy(pid int, sig syscall.Signal, end func() error) error {
	switch sig {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
		return end()
	case 0:
		h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
		if err != nil {
			return os.ErrProcessDone
		}
		return windows.CloseHandle(h)
	}
	return fmt.Errorf("signal %d: %w", sig, ErrUnsupported)
}

// killTree kills a process and its descendants.
func killTree(pid int) {
	if exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(pid)).Run() != nil {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// Reaper can't find the processes of a sandbox on this system.
type Reaper struct{}

func (*Reaper) Kill(string) {}

// KillMarked finds nobody here.
func KillMarked(map[string]bool) {}

// ProcessCPU is zero: this system reports the CPU time only of ended processes.
func ProcessCPU(int) time.Duration { return 0 }

// ReadAvailable reads nothing: pipes have no deadlines on Windows.
func ReadAvailable(*os.File, []byte) (int, error) { return 0, ErrUnsupported }

// OpenTerminal fails: the emulator has no pseudo terminals on Windows.
func OpenTerminal(Size) (*Terminal, error) { return nil, ErrUnsupported }

// Resize fails.
func (t *Terminal) Resize(Size) error { return ErrUnsupported }

// IsGone reports whether a process does not exist.
func IsGone(pid int) bool { return SignalGroup(pid, 0) != nil }
