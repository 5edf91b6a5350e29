//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package localfile

import (
	"os"
	"syscall"
)

// Hold keeps the Sweep of any process from removing a file, until release is called,
// which may be after the file was closed, or until this process ends. It returns false if
// another process holds the file. Release may be called in any case.
func Hold(f *os.File) (release func(), ok bool) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return func() {}, false
	}
	syscall.CloseOnExec(fd)
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	return func() { _ = syscall.Close(fd) }, err == nil
}
