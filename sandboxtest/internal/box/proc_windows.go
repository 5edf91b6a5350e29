package box

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// hasMarker says that processes are found by what is in their environment.
const hasMarker = false

// stopSignal stops a process.
const stopSignal = syscall.Signal(19) // not there, which is not an error of those who send it

// openFlags is empty: no name in a folder is a pipe or a terminal here.
const openFlags = 0

// prepare gives a command a process group of its own.
func prepare(cmd *exec.Cmd, _ bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// hostEnv adds what programs can't do without.
func hostEnv(env []string) []string {
	var base []string
	for _, key := range []string{"SystemRoot", "SystemDrive", "ComSpec", "PATHEXT", "TEMP", "TMP"} {
		if value, ok := os.LookupEnv(key); ok {
			base = append(base, key+"="+value)
		}
	}
	return mergeEnv(base, env)
}

// signalGroup ends a process tree for the signals that end one; there are no
// others here.
func signalGroup(pid int, sig syscall.Signal) error {
	return endBy(pid, sig, func() error { killTree(pid); return nil })
}

// signalProcess is like signalGroup for one process.
func signalProcess(pid int, sig syscall.Signal) error {
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

// reaper has no way to find the processes of a box here.
type reaper struct{}

func (*reaper) kill(string) {}

// killMarked finds nobody here.
func killMarked(map[string]bool) {}

// processCPU is known only at the end here.
func processCPU(int) time.Duration { return 0 }

// readNow reads nothing: pipes have no deadlines here.
func readNow(*os.File, []byte) (int, error) { return 0, ErrUnsupported }

func openTerminal(Size) (*terminal, error) { return nil, ErrUnsupported }

func (t *terminal) resize(Size) error { return ErrUnsupported }

// isGone reports whether there is no such process.
func isGone(pid int) bool { return signalGroup(pid, 0) != nil }
