//go:build darwin

package terminal

import (
	"errors"

	"golang.org/x/sys/unix"
)

// waitReadable waits until fd is readable or the other end of wake is closed. macOS's
// poll does not support terminals.
func waitReadable(fd, wake int) (ready, stopped bool, err error) {
	if max(fd, wake) >= unix.FD_SETSIZE {
		return false, false, errors.New("too many open files to wait for a key")
	}
	var set unix.FdSet
	set.Set(fd)
	set.Set(wake)
	if _, err := unix.Select(max(fd, wake)+1, &set, nil, nil, nil); err != nil {
		return false, false, err
	}
	return set.IsSet(fd), set.IsSet(wake), nil
}
