// Package localfile has what files on this machine need: where one goes that is to
// have a name, and the times that it may get.
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

// Place is what a name leads to.
type Place struct {
	// Path is the name after the symbolic links at its end were followed. A link
	// whose target does not exist is followed, too.
	Path string
	// Info is of what is there, nil if there is nothing, or a descriptor.
	Info fs.FileInfo
	// Special says that there is a device, a pipe, a socket, or a descriptor of a
	// process, such as /dev/stdout: something that is written to where it is. A
	// file that took its place, or that of the file which a descriptor stands for,
	// would be another one.
	Special bool

	descriptor int // -1 for none
}

// maxLinks is how many symbolic links are followed.
const maxLinks = 40

// descriptors are the directories that systems show descriptors in.
var descriptors = regexp.MustCompile(`^(/dev/fd|/proc/.+/fd)$`)

// Resolve finds out what a name leads to.
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
			target = dir + string(filepath.Separator) + target // as it is: what .. is of may be a link
		}
		at = target
	}
	return Place{}, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// Open opens a special place to write to it: a descriptor of this process where it
// has come to, with what others have written before.
func (p Place) Open() (*os.File, error) {
	if p.descriptor < 0 {
		return os.OpenFile(p.Path, os.O_WRONLY, 0)
	}
	return openDescriptor(p.descriptor, p.Path)
}

// Settable returns a file's time, or the closest one that package os can set, since
// it counts nanoseconds: between the years 1677 and 2262.
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
