package backend

import (
	"io/fs"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ThreadFS is the file system of the calling thread, which is in the sandbox, so that names
// can't resolve to anything outside.
type ThreadFS struct{}

func (ThreadFS) Open(name string) (*os.File, error)         { return os.OpenFile(name, OpenFlags, 0) }
func (ThreadFS) Create(name string) (*os.File, error)       { return os.OpenFile(name, CreateFlags, 0o600) }
func (ThreadFS) Mkdir(name string) error                    { return os.Mkdir(name, 0o755) }
func (ThreadFS) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (ThreadFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (ThreadFS) Symlink(target, name string) error          { return os.Symlink(target, name) }
func (ThreadFS) Link(old, name string) error                { return os.Link(old, name) }
func (ThreadFS) Remove(name string) error                   { return os.Remove(name) }
func (ThreadFS) Chmod(name string, mode fs.FileMode) error  { return os.Chmod(name, mode) }
func (ThreadFS) Chtimes(name string, mtime time.Time) error { return os.Chtimes(name, mtime, mtime) }

// setThreadGroups sets the groups of the calling thread only, while
// syscall.Setgroups sets those of all threads.
func setThreadGroups(groups []uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	return nil
}

// Descriptor returns a file's descriptor. Unlike Fd, it does not make the file
// blocking.
func Descriptor(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(d uintptr) { fd = int(d) })
	return fd, err
}
