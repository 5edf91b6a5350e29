//go:build unix

package inherited

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// passedOn returns the descriptors that a new process would inherit. Go itself opens no
// such descriptors. A descriptor near the limit, or beyond a lowered limit, is not
// returned but set to close on exec: package os/exec needs numbers above those that it
// closes.
func passedOn() (fds []int) {
	const above = 32
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = unix.RLIM_INFINITY
	}
	for _, fd := range openDescriptors() {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && fd > 2 && flags&unix.FD_CLOEXEC == 0 {
			if uint64(fd)+above >= uint64(limit.Cur) {
				unix.CloseOnExec(fd)
				continue
			}
			fds = append(fds, fd)
		}
	}
	return fds
}

// openDescriptors returns the descriptors in use, and perhaps others.
func openDescriptors() (fds []int) {
	dir, err := os.Open("/dev/fd")
	if err == nil {
		defer dir.Close()
		names, err := dir.Readdirnames(-1)
		for _, name := range names {
			if fd, err := strconv.Atoi(name); err == nil {
				fds = append(fds, fd)
			}
		}
		if err == nil && len(fds) > 0 {
			return fds
		}
	}
	const usual = 1024 // the limit of most processes
	for fd := range usual {
		fds = append(fds, fd)
	}
	return fds
}
