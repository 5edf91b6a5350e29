//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package localfile

import (
	"os"
	"syscall"
)

// Hold keeps Sweep from removing a file, in any process, until release is called or this
// process ends. The file may be closed earlier. Hold returns false if another process
// holds the file. release may be called in any case.
func Hold(f *os.File) (release func(), ok bool) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return func() {}, false
	}
	syscall.CloseOnExec(fd)
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	return func() { _ = syscall.Close(fd) }, err == nil
}
