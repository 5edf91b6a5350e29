package backend

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ThreadFS is the file system of the calling thread, which is in the box, so that names
// can't resolve to anything outside.
type ThreadFS struct{}

func (f ThreadFS) Open(name string) (*os.File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }
func (ThreadFS) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag|OpenFlags, perm)
}
func (ThreadFS) Mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (ThreadFS) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (ThreadFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (ThreadFS) Symlink(target, name string) error          { return os.Symlink(target, name) }
func (ThreadFS) Link(old, name string) error                { return os.Link(old, name) }
func (ThreadFS) Remove(name string) error                   { return os.Remove(name) }
func (ThreadFS) Chmod(name string, mode fs.FileMode) error  { return os.Chmod(name, mode) }
func (ThreadFS) Chtimes(name string, mtime time.Time) error { return os.Chtimes(name, mtime, mtime) }

// maxRead limits how much of a box's file the emulator reads for its own use.
const maxRead = 1 << 20

// ReadSystemFile reads a file of the thread's box that the emulator itself needs, such as
// /etc/group. A program in the box may have replaced it by an endless file, or by a pipe
// without a writer.
func ReadSystemFile(name string) ([]byte, error) {
	file, _, err := openRegular(ThreadFS{}, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// Reading a file on a disk never waits, so such a file has no deadline. Reading
	// /proc/kmsg, which claims to be a regular file, can wait.
	if file.SetReadDeadline(time.Now()) == nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	data, err := io.ReadAll(io.LimitReader(file, maxRead+1))
	if err == nil && len(data) > maxRead {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("longer than %d bytes", maxRead)}
	}
	return data, err
}

// setThreadGroups sets the groups of the calling thread only, unlike syscall.Setgroups.
func setThreadGroups(groups []uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	return nil
}

// DiskUsage returns the disk space of a tree.
func DiskUsage(dir string) (int64, error) {
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
			size += StoredSize(info)
		}
		return nil
	})
	return size, err
}

// SupplementaryGroups returns the user's groups in /etc/group.
func SupplementaryGroups(user string) []uint32 {
	data, err := ReadSystemFile("/etc/group")
	if err != nil {
		return nil
	}
	var groups []uint32
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 4 || !slices.Contains(strings.Split(fields[3], ","), user) {
			continue
		}
		if gid, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
			groups = append(groups, uint32(gid))
		}
	}
	return groups
}

// Descriptor returns a file's descriptor without making the file blocking, as Fd
// would.
func Descriptor(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(d uintptr) { fd = int(d) })
	return fd, err
}
