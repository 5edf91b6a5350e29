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

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Stat returns information about the named file. It follows symbolic links. The
// result's Sys method returns a [*FileStat].
func (f *FileSystem) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.stat(ctx, "stat", name, true)
}

// Lstat is like [FileSystem.Stat], but describes a symbolic link itself.
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

// FileStat is everything that the sandbox reports about a file. It is returned
// by the Sys method of this package's [fs.FileInfo] values.
type FileStat struct {
	// Size is the length in bytes.
	Size int64
	// RawMode is Linux's st_mode: the file's type and permissions.
	RawMode uint32
	// UID and GID are the IDs of the owner and the group.
	UID, GID int
	// AccessTime, ModTime, ChangeTime and BirthTime are as precise as the
	// sandbox's stat reports them. BirthTime is zero if unknown, and in
	// directory listings.
	AccessTime, ModTime, ChangeTime, BirthTime time.Time
	// Links is the number of hard links.
	Links uint64
	// Inode and Device identify the file.
	Inode, Device uint64
	// BlockSize is the size in bytes of a block as counted by Blocks. It is 512
	// in directory listings.
	BlockSize int64
	// Blocks is the number of blocks allocated.
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

// tools returns a Runner of programs where the files are.
func (f *FileSystem) tools() coreutils.Runner {
	return func(ctx context.Context, c coreutils.Call) (coreutils.Result, error) {
		return program{name: c.Name, args: c.Args, env: c.Env, stdout: c.Stdout}.run(ctx, f.on())
	}
}

// endedWithSession returns an error that matches [ErrStopped] if a program of a
// file operation was killed because its session ended. Only a program that a
// signal ended is looked into, with one request.
func (c *CommandResult) endedWithSession(ctx context.Context) error {
	if c.ExitCode != 128+int(SIGKILL) && c.ExitCode != 128+int(SIGTERM) {
		return nil
	}
	client, err := c.Command.client()
	if err != nil {
		return err
	}
	session := newSession(client, wire.Session{ID: c.Command.SessionID()}, nil)
	if err := session.Refresh(ctx); err != nil || session.Status() == StatusRunning {
		return nil // the exit code is all that is known
	}
	return &StreamError{
		Code: "sandbox_stopped", Message: "the program was killed when its session ended",
		SessionID: c.Command.SessionID(), CommandID: c.Command.ID(), Err: ErrStopped,
	}
}

// reason converts the failure of a program to an *FSError. Other errors are
// returned unchanged.
func reason(err error) error {
	if e, ok := errors.AsType[*coreutils.Error](err); ok {
		return &FSError{Errno: e.Errno, Command: e.Command, ExitCode: e.ExitCode, Message: e.Message}
	}
	return err
}

// FSError is the error that the sandbox reported for a file operation. It is
// wrapped by an [*fs.PathError] or [*os.LinkError].
type FSError struct {
	// Errno is the cause, such as [syscall.ENOTEMPTY], for [errors.Is]. It is
	// zero if the sandbox's message was not recognized.
	Errno syscall.Errno
	// Command is the program that failed and ExitCode its exit code. They are
	// zero if the API itself refused.
	Command  string
	ExitCode int
	// Message is what the program wrote to standard error, or the API's
	// message, unchanged. Error quotes it where it is not printable.
	Message string
	// Err is the API's error, if the API refused.
	Err error
}

// Error returns the text of Errno, or else the sandbox's message.
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

// Unwrap returns Errno and Err, if set.
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

// errnoOfAPI returns the errno that an API error about a file corresponds to.
func errnoOfAPI(e *APIError) syscall.Errno {
	if errno := api.FileErrno(e.Code, e.Message); errno != 0 {
		return errno
	}
	return coreutils.Errno(e.Message)
}
