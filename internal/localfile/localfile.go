// Package localfile finds the destination of a name on this machine, and the times that a
// file can have.
package localfile

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// Place is the destination of a name.
type Place struct {
	// Path is the name with the symbolic links at its end resolved, even if a link's
	// target does not exist.
	Path string
	// Info describes the file there. It is nil if there is none, or for a descriptor.
	Info fs.FileInfo
	// Special is set if the name is a device, a pipe, a socket, or a descriptor of a
	// process, such as /dev/stdout. It must be written in place, not replaced.
	Special bool

	descriptor int // -1 for none
}

// maxLinks limits how many symbolic links are followed.
const maxLinks = 40

// descriptors matches the directories in which systems show descriptors.
var descriptors = regexp.MustCompile(`^(/dev/fd|/proc/.+/fd)$`)

// Resolve finds the destination of a name.
func Resolve(name string) (Place, error) {
	at := name
	for range maxLinks {
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return Place{Path: at, descriptor: -1}, nil
		}
		if err != nil {
			return Place{}, err
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(at))
		if err != nil {
			return Place{}, err
		}
		if n, err := strconv.Atoi(filepath.Base(at)); err == nil && descriptors.MatchString(dir) {
			return Place{Path: at, Special: true, descriptor: n}, nil
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			special := !info.IsDir() && !info.Mode().IsRegular()
			return Place{Path: filepath.Join(dir, filepath.Base(at)), Info: info, Special: special, descriptor: -1}, nil
		}
		target, err := os.Readlink(at)
		if err != nil {
			return Place{}, err
		}
		if !filepath.IsAbs(target) {
			target = dir + string(filepath.Separator) + target // not cleaned, because the element before a .. may be a link
		}
		at = target
	}
	return Place{}, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// Open opens a special place for writing. A descriptor of this process continues at its
// current position.
func (p Place) Open() (*os.File, error) {
	if p.descriptor < 0 {
		return os.OpenFile(p.Path, os.O_WRONLY, 0)
	}
	return openDescriptor(p.descriptor, p.Path)
}

// Settable returns a file's time, or the nearest one that package os can set. Package os
// counts nanoseconds in 64 bits, so the range is from 1677 to 2262.
func Settable(t time.Time) time.Time {
	first, last := time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)
	switch {
	case t.After(last):
		return last
	case !t.IsZero() && t.Before(first):
		return first
	}
	return t
}
