//go:build unix && !linux

package box

import (
	"syscall"
	"time"
)

// hasMarker says that processes are found by what is in their environment.
const hasMarker = false

// killTree kills a process and its group. Those that have left the group can't
// be found here.
func killTree(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// reaper has no way to find the processes of a box here.
type reaper struct{}

func (*reaper) kill(string) {}

// processCPU is known only at the end here.
func processCPU(int) time.Duration { return 0 }
