//go:build unix && !darwin

package terminal

import "golang.org/x/sys/unix"

// waitReadable waits until fd is readable or the other end of wake is closed.
func waitReadable(fd, wake int) (ready, stopped bool, err error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, -1); err != nil {
		return false, false, err
	}
	return fds[0].Revents != 0, fds[1].Revents != 0, nil
}
