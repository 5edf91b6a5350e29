//go:build unix

package backend

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// IsOurs reports whether a file belongs to the user of this process.
func IsOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// storedSize returns the disk space of a file, which is less than its length if the file
// is sparse.
func storedSize(info fs.FileInfo) int64 {
	const block = 512 // of Blocks, whatever the file system's are
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), int64(stat.Blocks)*block) //nolint:unconvert // other systems have other widths
	}
	return info.Size()
}

// hardLinkID identifies a file that has more than one name. It returns false for others.
func hardLinkID(info fs.FileInfo) (fileID, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink < 2 {
		return fileID{}, false
	}
	return fileID{uint64(stat.Dev), stat.Ino}, true //nolint:unconvert // other systems have other widths
}

// makePipe makes a named pipe.
func makePipe(name string) error { return syscall.Mkfifo(name, 0o600) }

// setLinkTime sets the time of a symlink, not of its target.
func setLinkTime(name string, t time.Time) error {
	at := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}
