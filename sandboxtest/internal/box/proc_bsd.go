//go:build unix && !linux

package box

import (
	"errors"
	"syscall"
	"time"
)

// hasMarker says that processes are found by what is in their environment.
const hasMarker = false

// stopSignal stops a process.
const stopSignal = syscall.SIGSTOP

// killTree kills a process and its group. Those that have left the group can't
// be found here.
func killTree(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// reaper has no way to find the processes of a box here.
type reaper struct{}

func (*reaper) kill(string) {}

// killMarked finds nobody here.
func killMarked(map[string]bool) {}

// processCPU is known only at the end here.
func processCPU(int) time.Duration { return 0 }

// isGone reports whether there is no such process.
func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
