//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package localfile

import (
	"os"
	"syscall"
)

// Hold keeps Sweep of any process from a file until release, which may come after
// the file was closed, or until this process has ended. It returns false if
// another holds the file. Release may be called in any case.
func Hold(f *os.File) (release func(), ok bool) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return func() {}, false
	}
	syscall.CloseOnExec(fd)
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	return func() { _ = syscall.Close(fd) }, err == nil
}
