//go:build unix

package inherited

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// passedOn are the descriptors that a new process would have. Go opens none of
// that kind.
func passedOn() (fds []int) {
	for _, fd := range open() {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && fd > 2 && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// open are the descriptors in use, and perhaps others.
func open() (fds []int) {
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
