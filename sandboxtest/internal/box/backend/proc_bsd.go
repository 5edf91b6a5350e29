//go:build unix && !linux

package backend

import (
	"errors"
	"syscall"
	"time"
)

// HasMarker says that processes can be found by a variable of their environment.
const HasMarker = false

// StopSignal stops a process.
const StopSignal = syscall.SIGSTOP

// KillTree kills a process and its group. Those that have left the group can't
// be found here.
func KillTree(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// Reaper has no way to find the processes of a box here.
type Reaper struct{}

func (*Reaper) Kill(string) {}

// KillMarked finds nobody here.
func KillMarked(map[string]bool) {}

// ProcessCPU is zero: this system tells a process's CPU time only when it has ended.
func ProcessCPU(int) time.Duration { return 0 }

// IsGone reports whether there is no such process.
func IsGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
