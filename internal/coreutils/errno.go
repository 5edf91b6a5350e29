package coreutils

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// Error reports that a program failed.
type Error struct {
	// Errno is the cause. It is zero if the program's message was not
	// recognized.
	Errno syscall.Errno
	// Command is the program and ExitCode its exit code.
	Command  string
	ExitCode int
	// Message is the program's standard error.
	Message string
}

// NewError returns the error of a program, given its standard error.
func NewError(command string, exitCode int, stderr string) *Error {
	return &Error{Errno: Errno(stderr), Command: command, ExitCode: exitCode, Message: stderr}
}

// Error returns the text of Errno, or else the program's message.
func (e *Error) Error() string {
	if e.Errno != 0 {
		return e.Errno.Error()
	}
	if msg := strings.TrimSpace(e.Message); msg != "" {
		return msg
	}
	return fmt.Sprintf("%s ended with exit code %d", e.Command, e.ExitCode)
}

// errnos are the C library's messages in lower case, which are also Go's.
var errnos = map[string]syscall.Errno{
	"no such file or directory":         syscall.ENOENT,
	"file exists":                       syscall.EEXIST,
	"permission denied":                 syscall.EACCES,
	"operation not permitted":           syscall.EPERM,
	"not a directory":                   syscall.ENOTDIR,
	"is a directory":                    syscall.EISDIR,
	"directory not empty":               syscall.ENOTEMPTY,
	"read-only file system":             syscall.EROFS,
	"no space left on device":           syscall.ENOSPC,
	"disk quota exceeded":               syscall.EDQUOT,
	"too many levels of symbolic links": syscall.ELOOP,
	"symbolic link loop":                syscall.ELOOP,
	"file name too long":                syscall.ENAMETOOLONG,
	"filename too long":                 syscall.ENAMETOOLONG,
	"invalid argument":                  syscall.EINVAL,
	"invalid cross-device link":         syscall.EXDEV,
	"device or resource busy":           syscall.EBUSY,
	"resource busy":                     syscall.EBUSY,
	"text file busy":                    syscall.ETXTBSY,
	"file too large":                    syscall.EFBIG,
	"input/output error":                syscall.EIO,
	"i/o error":                         syscall.EIO,
	"too many links":                    syscall.EMLINK,
	"too many open files":               syscall.EMFILE,
	"no such device or address":         syscall.ENXIO,
	"stale file handle":                 syscall.ESTALE,
	"operation not supported":           syscall.EOPNOTSUPP,
	"argument list too long":            syscall.E2BIG,
	"cannot allocate memory":            syscall.ENOMEM,
}

// phrases are messages of coreutils itself. They are considered only if no
// errno ends the line, since a file's name can contain anything.
var phrases = []struct {
	text  string
	errno syscall.Errno
}{
	{"cannot overwrite non-directory", syscall.ENOTDIR},
	{"cannot overwrite directory", syscall.EISDIR},
	{"omitting directory", syscall.EISDIR},
	{"to a subdirectory of itself", syscall.EINVAL},
	{"refusing to remove", syscall.EINVAL},
	{"it is dangerous to operate recursively on", syscall.EPERM},
	{"dangling symlink", syscall.ENOENT},
	{"invalid user", syscall.EINVAL},
	{"invalid group", syscall.EINVAL},
	{"invalid mode", syscall.EINVAL},
}

// foreign are parts of the messages with which other implementations than GNU's, such as
// BusyBox, refuse options that they don't have.
var foreign = []string{"busybox v", "unrecognized", "unknown predicate", "invalid option", "illegal option", "invalid argument 'nocreat'"}

// Foreign reports whether a program's message shows that the program is not GNU's. Call
// it only if Errno finds no cause.
func Foreign(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc(foreign, func(text string) bool { return strings.Contains(message, text) })
}

// Errno returns the cause in a program's messages: the first line that ends with the text
// of an errno decides. The cause of a program that is not GNU's is ENOTSUP.
func Errno(message string) syscall.Errno {
	for line := range strings.Lines(message) {
		line = strings.ToLower(strings.TrimSpace(line))
		if i := strings.LastIndex(line, ": "); i >= 0 {
			line = line[i+2:]
		}
		if errno, ok := errnos[line]; ok {
			return errno
		}
	}
	for line := range strings.Lines(message) {
		line = strings.ToLower(line)
		for _, p := range phrases {
			if strings.Contains(line, p.text) {
				return p.errno
			}
		}
	}
	if Foreign(message) {
		return syscall.ENOTSUP
	}
	return 0
}
