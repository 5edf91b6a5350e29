package inside

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxRead limits the size of a sandbox's file that the emulator reads for itself.
const maxRead = 1 << 20

// ReadSystemFile reads a file of the thread's sandbox that the emulator needs for itself,
// such as /etc/group. A program of the sandbox may have replaced it by an endless file or
// by a pipe that nobody writes to.
func ReadSystemFile(name string) ([]byte, error) {
	file, err := OpenRegular(name, os.Stat, func(name string) (*os.File, error) {
		return os.OpenFile(name, syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// Reading a file on a disk never waits, and so has no deadline. Reading
	// /proc/kmsg, which calls itself a regular file, can wait.
	if file.SetReadDeadline(time.Now()) == nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	data, err := io.ReadAll(io.LimitReader(file, maxRead+1))
	if err == nil && len(data) > maxRead {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("longer than %d bytes", maxRead)}
	}
	return data, err
}

// SupplementaryGroups returns the groups of a user in /etc/group.
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
