package untar

import (
	"os"

	"golang.org/x/sys/unix"
)

// setCapability gives a program capabilities, as the kernel writes them.
func setCapability(f *os.File, value string) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { err = unix.Fsetxattr(int(fd), "security.capability", []byte(value), 0) })
	if cerr != nil {
		return cerr
	}
	if err != nil {
		return &os.PathError{Op: "setxattr security.capability", Path: f.Name(), Err: err}
	}
	return nil
}
