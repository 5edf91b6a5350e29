package box

import (
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

func (threadFS) Open(name string) (*os.File, error) { return os.OpenFile(name, os.O_RDONLY, 0) }
func (threadFS) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}
func (threadFS) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (threadFS) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (threadFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (threadFS) Symlink(target, name string) error          { return os.Symlink(target, name) }
func (threadFS) Link(old, name string) error                { return os.Link(old, name) }
func (threadFS) Remove(name string) error                   { return os.Remove(name) }
func (threadFS) Chmod(name string, mode fs.FileMode) error  { return os.Chmod(name, mode) }
func (threadFS) Chtimes(name string, mtime time.Time) error { return os.Chtimes(name, mtime, mtime) }

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
