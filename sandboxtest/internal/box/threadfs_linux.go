package box

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadFS is the file system of the calling thread, which is in the box, so that
// names can't resolve to anything outside.
type threadFS struct{}

func (f threadFS) Open(name string) (*os.File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }
func (threadFS) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag|openFlags, perm)
}
func (threadFS) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (threadFS) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (threadFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (threadFS) Symlink(target, name string) error          { return os.Symlink(target, name) }
func (threadFS) Link(old, name string) error                { return os.Link(old, name) }
func (threadFS) Remove(name string) error                   { return os.Remove(name) }
func (threadFS) Chmod(name string, mode fs.FileMode) error  { return os.Chmod(name, mode) }
func (threadFS) Chtimes(name string, mtime time.Time) error { return os.Chtimes(name, mtime, mtime) }

// maxRead is the most that the emulator reads of a file of a box for itself.
const maxRead = 1 << 20

// readOwn reads a file of the thread's box that the emulator needs for itself,
// such as /etc/group. A program of the box may have replaced it by something
// endless, or by something that is never written.
func readOwn(name string) ([]byte, error) {
	file, _, err := openRegular(threadFS{}, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// Reading a file on a disk never waits, and so has no deadline. Reading
	// /proc/kmsg, which calls itself a regular file, can wait.
	if file.SetReadDeadline(time.Now()) == nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errNotRegular}
	}
	data, err := io.ReadAll(io.LimitReader(file, maxRead+1))
	if err == nil && len(data) > maxRead {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("longer than %d bytes", maxRead)}
	}
	return data, err
}

// setThreadGroups sets the groups of the calling thread only, other than
// syscall.Setgroups.
func setThreadGroups(groups []uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	return nil
}

// diskUsage is what a tree takes on the disk.
func diskUsage(dir string) (int64, error) {
	var size int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			size += storedSize(info)
		}
		return nil
	})
	return size, err
}
