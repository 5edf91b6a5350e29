//go:build unix

package localfile

import (
	"os"
	"syscall"
)

// openDescriptor returns a copy of a descriptor of this process.
func openDescriptor(n int, name string) (*os.File, error) {
	fd, err := syscall.Dup(n)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}
