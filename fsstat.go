package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Stat describes a file. It follows symbolic links. The Sys method of the result
// returns a [*FileStat].
func (f *FileSystem) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.stat(ctx, "stat", name, true)
}

// Lstat is as [FileSystem.Stat] but describes a symbolic link itself.
func (f *FileSystem) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.stat(ctx, "lstat", name, false)
}

func (f *FileSystem) stat(ctx context.Context, op, name string, follow bool) (fs.FileInfo, error) {
	if err := checkPath(op, name); err != nil {
		return nil, err
	}
	st, err := f.tools().Stat(ctx, name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: reason(err)}
	}
	return &fileInfo{name: path.Base(name), stat: fileStat(st)}, nil
}

// FileStat is all that the sandbox says of a file. The Sys method of the
// [fs.FileInfo] values of this package returns one.
type FileStat struct {
	// Size is the length in bytes.
	Size int64
	// RawMode is the st_mode of Linux: the type and the permissions.
	RawMode uint32
	// UID and GID are the owner and the group.
	UID, GID int
	// AccessTime, ModTime, ChangeTime and BirthTime have the precision that the
	// sandbox's stat gives. BirthTime is zero when it is not known, and in
	// directory listings.
	AccessTime, ModTime, ChangeTime, BirthTime time.Time
	// Links is the number of hard links.
	Links uint64
	// Inode and Device identify the file.
	Inode, Device uint64
	// BlockSize is the size in bytes of one of the Blocks. It is 512 in
	// directory listings.
	BlockSize int64
	// Blocks is the number of blocks that the content takes up.
	Blocks int64
}

type fileInfo struct {
	name string
	stat FileStat
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.stat.Size }
func (i *fileInfo) Mode() fs.FileMode  { return coreutils.FileMode(i.stat.RawMode) }
func (i *fileInfo) ModTime() time.Time { return i.stat.ModTime }
func (i *fileInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *fileInfo) Sys() any           { return &i.stat }
func (i *fileInfo) String() string     { return fs.FormatFileInfo(i) }

func fileStat(s *coreutils.Stat) FileStat {
	return FileStat{
		Size: s.Size, RawMode: s.RawMode, UID: s.UID, GID: s.GID,
		AccessTime: s.AccessTime, ModTime: s.ModTime, ChangeTime: s.ChangeTime, BirthTime: s.BirthTime,
		Links: s.Links, Inode: s.Inode, Device: s.Device, BlockSize: s.BlockSize, Blocks: s.Blocks,
	}
}

// tools runs programs where the files are.
func (f *FileSystem) tools() coreutils.Runner {
	return func(ctx context.Context, c coreutils.Call) (coreutils.Result, error) {
		done, err := f.on().RunCommand(ctx, c.Name, c.Args, &CommandOptions{Env: c.Env, Stdout: c.Stdout, KillOnCancel: true})
		if err != nil {
			return coreutils.Result{}, err
		}
		res := coreutils.Result{ExitCode: done.ExitCode}
		if res.Stderr, err = done.Stderr(ctx); err == nil && c.Stdout == nil {
			res.Stdout, err = done.Stdout(ctx)
		}
		return res, err
	}
}

// reason makes the failure of a program an *FSError. Other errors stay as they
// are.
func reason(err error) error {
	if e, ok := errors.AsType[*coreutils.Error](err); ok {
		return &FSError{Errno: e.Errno, Command: e.Command, ExitCode: e.ExitCode, Message: e.Message}
	}
	return err
}

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
	// message, as it came. Error quotes it where it is not printable.
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
		return redact.Printable(msg)
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
	if errno := coreutils.Errno(e.Message); errno != 0 {
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
