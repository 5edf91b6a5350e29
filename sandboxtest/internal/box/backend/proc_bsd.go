//go:build unix && !linux

package backend

import (
	"errors"
	"syscall"
	"time"
)

// StopSignal stops a process.
const StopSignal = syscall.SIGSTOP

// Reaper has no way to find the processes of a sandbox here.
type Reaper struct{}

func (*Reaper) Kill(string) {}

// KillMarked finds nobody here.
func KillMarked(map[string]bool) {}

// ProcessCPU is zero: this system reports the CPU time only of ended processes.
func ProcessCPU(int) time.Duration { return 0 }

// IsGone reports whether there is no such process.
func IsGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
