package sandbox

import (
	"fmt"
	"strings"
	"syscall"
)

// FSError is the reason inside the [*fs.PathError] or [*os.LinkError] of a file
// operation that the sandbox refused.
type FSError struct {
	// Errno says what was wrong, such as [syscall.ENOTEMPTY], and is what
	// [errors.Is] compares with. It is 0 when the sandbox's words were not
	// understood.
	Errno syscall.Errno
	// Command is the program that failed and ExitCode the code that it ended
	// with. They are empty for what the API itself refused.
	Command  string
	ExitCode int
	// Message is what the program wrote to its standard error, or the API's
	// message.
	Message string
	// Err is the API's error, if it was the API that refused.
	Err error
}

// Error returns the errno in words, or else what the sandbox said.
func (e *FSError) Error() string {
	msg := strings.TrimSpace(e.Message)
	switch {
	case e.Errno != 0:
		return e.Errno.Error()
	case e.Err != nil:
		return e.Err.Error()
	case msg != "":
		return msg
	default:
		return fmt.Sprintf("%s ended with exit code %d", e.Command, e.ExitCode)
	}
}

// Unwrap returns Errno and Err, those of them that are set.
func (e *FSError) Unwrap() []error {
	var errs []error
	if e.Errno != 0 {
		errs = append(errs, e.Errno)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// understood reports whether asking again for a message in English is of no
// use: it was understood, there was none, or the program is missing.
func (e *FSError) understood() bool {
	const notExecutable, notFound = 126, 127
	return e.Errno != 0 || strings.TrimSpace(e.Message) == "" ||
		e.ExitCode == notExecutable || e.ExitCode == notFound
}

// errnos are the C library's messages in lower case. Go's own are the same.
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

// phrases are what coreutils says in its own words. They are looked for only
// where no errno ends the line, as a file's name can hold anything.
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

// errnoOf finds what a program's messages say: the first line that ends in the
// words of an errno decides.
func errnoOf(message string) syscall.Errno {
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
	return 0
}

// errnoOfAPI finds what an API error says about a file.
func errnoOfAPI(e *APIError) syscall.Errno {
	switch e.Code {
	case "is_directory":
		return syscall.EISDIR
	case "not_directory", "not_a_directory":
		return syscall.ENOTDIR
	case "already_exists", "file_exists", "exists":
		return syscall.EEXIST
	case "permission_denied":
		return syscall.EACCES
	case "no_space", "disk_full":
		return syscall.ENOSPC
	}
	if errno := errnoOf(e.Message); errno != 0 {
		return errno
	}
	switch strings.ToLower(e.Message) {
	case "exists", "already exists":
		return syscall.EEXIST
	case "disk full":
		return syscall.ENOSPC
	}
	return 0
}
