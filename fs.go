package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/redact"
)

// FileSystem has the file operations of package os for the files of a sandbox.
// It is returned by the FS method of a [Sandbox], a [Session] or a [User], and
// is safe for concurrent use. Relative paths start in the session's working
// directory, or in the user's home directory. Names may contain any byte except
// NUL and "/".
//
// Errors are of type [*fs.PathError] or [*os.LinkError]. They match
// [fs.ErrNotExist], [fs.ErrExist], [fs.ErrPermission] or an errno such as
// [syscall.ENOTEMPTY], and wrap an [*FSError] with the sandbox's own message.
//
// Unless documented otherwise, a method makes one request, which runs a program of GNU
// coreutils or findutils in the sandbox. Of the sandbox's variables the program gets only
// PATH, HOME, USER, LOGNAME, TMPDIR and LD_LIBRARY_PATH. If the sandbox has another
// program, such as BusyBox's, without what the method needs, the error matches
// [errors.ErrUnsupported]. If the context ends, the program is killed, and the method
// returns within five seconds.
type FileSystem struct {
	t target
}

// target returns the target of the file operations. For a zero FileSystem it is a zero
// Sandbox, which enter refuses.
func (f *FileSystem) target() target {
	if f == nil || f.t == nil {
		return &Sandbox{}
	}
	return f.t
}

func (f *FileSystem) client() (*Client, error) { return f.target().client() }

// Each call on one path begins with enter. Beyond the checks of the function enter, it
// refuses paths that no system call accepts.
func (f *FileSystem) enter(ctx context.Context, op, name string) error {
	if _, err := enter(ctx, f); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return checkPath(op, name)
}

// FS returns the sandbox's files.
func (s *Sandbox) FS() *FileSystem { return &FileSystem{t: s} }

// FS returns the session's files. Unlike those of a [Sandbox], its methods do
// not resume a stopped session.
func (s *Session) FS() *FileSystem { return &FileSystem{t: s} }

// ReadFile reads the named file and returns its content. It makes the requests of
// [FileSystem.Open]; use that for a file that may not fit into memory. If fewer bytes
// arrive than the file has, ReadFile reads it once more, because its size may have changed
// during the read. If that happens again, the error matches [io.ErrUnexpectedEOF].
func (f *FileSystem) ReadFile(ctx context.Context, name string) ([]byte, error) {
	r, err := f.Open(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := readAll(r, r.Size())
	if !isBroken(err) {
		return data, err
	}
	r.check.renew()
	again, err := f.Open(ctx, name, &OpenOptions{NoSizeCheck: true})
	if err != nil {
		return nil, err
	}
	defer again.Close()
	again.check = r.check
	return readAll(again, again.Size())
}

// readAll reads r to its end into a buffer of the announced size, if that is
// not too large to be trusted.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const trusted = 16 << 20
	buf := make([]byte, 0, max(512, min(size, trusted)+1))
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// Open opens the named file for reading. The content is streamed, and the caller must
// close the file. It makes one request for the content, and a second one for the file's
// size. At the end of the content, Read compares its length with the size: nothing else
// shows that the content was cut short, not even the length that a proxy reports. The
// first bytes do not wait for the size. [OpenOptions.NoSizeCheck] turns the check off.
//
// The size is not checked below /proc and /sys, nor in a sandbox without the
// program stat. A file whose size changes while it is read may look cut. If the
// connection breaks, or the size can't be determined, Read returns the error;
// [FileSystem.DownloadFile] retries. Close waits at most five seconds for the
// request for the size.
//
// The error matches [fs.ErrNotExist] if the file does not exist, and
// [ErrNotFound] if the API says that the sandbox or session does not.
func (f *FileSystem) Open(ctx context.Context, name string, opts *OpenOptions) (*FileReader, error) {
	o := orZero(opts)
	r, err := openFile(ctx, f.target(), name, o.Cwd, nil)
	if err == nil && !o.NoSizeCheck {
		r.check = newSizeCheck(ctx, f.target(), r, joinCwd(o.Cwd, name), math.MaxInt64).start()
	}
	return r, err
}

// WriteFile writes data to the named file, replacing it if it exists and
// creating missing parent directories. It makes one request of the file API and
// differs from [os.WriteFile] in three ways: perm is also applied to an
// existing file; a symbolic link, or anything else but a directory, is replaced
// instead of followed; and ".." in name removes the preceding element even if
// that is a symbolic link. For what happens when a connection breaks, see
// [FileSystem.WriteFiles]. [FileSystem.Create] has none of these differences, at
// the cost of another request.
func (f *FileSystem) WriteFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	if err := f.enterFile(ctx, "open", name); err != nil {
		return err
	}
	err := f.WriteFiles(ctx, []File{{Path: name, Content: data, Mode: &perm}}, nil)
	if err == nil || errors.Is(err, ErrInvalid) {
		return err
	}
	return &fs.PathError{Op: "open", Path: name, Err: apiFileError(err)}
}

// enterFile is enter for the path of a new file, which must not end in a slash.
func (f *FileSystem) enterFile(ctx context.Context, op, name string) error {
	if err := f.enter(ctx, op, name); err != nil || !strings.HasSuffix(name, "/") {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: syscall.EISDIR}
}

// checkPath refuses paths that no system call accepts.
func checkPath(op, name string) error {
	switch {
	case name == "":
		return &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
	case strings.IndexByte(name, 0) >= 0:
		return &fs.PathError{Op: op, Path: name, Err: syscall.EINVAL}
	}
	return nil
}

// umask is the umask of a sandbox's processes. Like package os, methods remove it from
// requested modes.
const umask fs.FileMode = 0o022

// pathOp runs a program on one path and names the path in its error.
func (f *FileSystem) pathOp(ctx context.Context, op, name, program string, args ...string) error {
	if err := f.enter(ctx, op, name); err != nil {
		return err
	}
	if _, err := f.tools(name).Run(ctx, program, args...); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: programError(err)}
	}
	return nil
}

// linkOp is pathOp for two paths.
func (f *FileSystem) linkOp(ctx context.Context, op, from, to, program string, args ...string) error {
	for _, p := range []string{from, to} {
		if err := f.enter(ctx, op, p); err != nil {
			return &os.LinkError{Op: op, Old: from, New: to, Err: errors.Unwrap(err)}
		}
	}
	if _, err := f.tools(from, to).Run(ctx, program, args...); err != nil {
		return &os.LinkError{Op: op, Old: from, New: to, Err: programError(err)}
	}
	return nil
}

// Mkdir creates a directory. Its parent must exist.
func (f *FileSystem) Mkdir(ctx context.Context, name string, perm fs.FileMode) error {
	if mode := perm &^ umask; mode != 0o755 {
		return f.pathOp(ctx, "mkdir", name, "mkdir", append([]string{"-m", coreutils.Octal(mode)}, coreutils.Operands(name)...)...)
	}
	if err := f.enter(ctx, "mkdir", name); err != nil {
		return err
	}
	if err := f.target().mkdir(ctx, name); err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: apiFileError(err)}
	}
	return nil
}

// MkdirAll creates a directory, along with any missing parents. If the
// directory already exists, it does nothing and returns nil.
func (f *FileSystem) MkdirAll(ctx context.Context, name string, perm fs.FileMode) error {
	var err error
	if mode := perm &^ umask; mode == 0o755 {
		err = f.pathOp(ctx, "mkdir", name, "mkdir", append([]string{"-p"}, coreutils.Operands(name)...)...)
	} else {
		err = f.pathOp(ctx, "mkdir", name, "sh", "-c", `umask "$1" && exec mkdir -p -- "$2"`, "sh", coreutils.Octal(0o777&^mode), name)
	}
	if fe, ok := errors.AsType[*FSError](err); ok && fe.errno == syscall.EEXIST {
		fe.errno = syscall.ENOTDIR // like package os if a file is in the way
	}
	return err
}

// Remove removes the named file, symbolic link or empty directory. If there is
// none, the error matches [fs.ErrNotExist].
func (f *FileSystem) Remove(ctx context.Context, name string) error {
	return f.pathOp(ctx, "remove", name, "rm", append([]string{"-d"}, coreutils.Operands(name)...)...)
}

// RemoveAll removes the named file, or directory with everything in it. If it
// does not exist, RemoveAll returns nil. The root directory is never removed: the
// error matches [fs.ErrPermission], and no request is made.
func (f *FileSystem) RemoveAll(ctx context.Context, name string) error {
	if _, err := enter(ctx, f); err != nil {
		return &fs.PathError{Op: "RemoveAll", Path: name, Err: err}
	}
	if name == "" {
		return nil // like os.RemoveAll
	}
	if strings.Trim(name, "/") == "" { // GNU's rm refuses, BusyBox's does not
		return &fs.PathError{Op: "RemoveAll", Path: name, Err: syscall.EPERM}
	}
	// With a trailing slash, rm would empty the directory that a symbolic link points to.
	args := append([]string{"-r", "-f"}, coreutils.Operands(strings.TrimRight(name, "/"))...)
	return f.pathOp(ctx, "RemoveAll", name, "rm", args...)
}

// Rename renames (moves) a file or directory. An existing file is replaced, and
// so is an empty directory by a directory; any other existing directory is an
// error, since nothing is ever moved into it. If both names are hard links to
// the same file, Rename does nothing. Errors are of type [*os.LinkError].
func (f *FileSystem) Rename(ctx context.Context, oldName, newName string) error {
	err := f.linkOp(ctx, "rename", oldName, newName, "mv", append([]string{"-T"}, coreutils.Operands(oldName, newName)...)...)
	if fe, ok := errors.AsType[*FSError](err); ok {
		switch {
		case strings.Contains(fe.Message, "are the same file"):
			if path.Clean(oldName) == path.Clean(newName) {
				return nil
			}
			// For rename(2), hard links to the same file are a no-op. mv also
			// complains about a link and its target.
			same, statErr := f.tools(oldName, newName).SameFile(ctx, oldName, newName)
			if statErr == nil && same {
				return nil
			}
			fe.errno = syscall.EEXIST
		case fe.errno == syscall.EISDIR:
			fe.errno = syscall.EEXIST // like package os if a directory is in the way
		}
	}
	return err
}

// CopyFile copies a file within the sandbox. A new file gets the permissions of
// the original; an existing one is overwritten. Nothing is ever copied into a
// directory. Errors are of type [*os.LinkError].
func (f *FileSystem) CopyFile(ctx context.Context, from, to string) error {
	return f.linkOp(ctx, "copy", from, to, "cp", append([]string{"-T"}, coreutils.Operands(from, to)...)...)
}

// Chmod changes the permissions of the named file, and its set-id and sticky
// bits. It follows symbolic links.
func (f *FileSystem) Chmod(ctx context.Context, name string, mode fs.FileMode) error {
	return f.pathOp(ctx, "chmod", name, "chmod", append([]string{coreutils.Octal(mode)}, coreutils.Operands(name)...)...)
}

// ChmodSymbolic changes permissions by a mode of the program chmod, such as
// "u+x,go-w".
func (f *FileSystem) ChmodSymbolic(ctx context.Context, name, mode string) error {
	if _, err := enter(ctx, f); err != nil {
		return err
	}
	if mode == "" || strings.ContainsAny(mode, "\x00/ \n") {
		return invalid("mode", "%q is not a mode of chmod", mode)
	}
	return f.pathOp(ctx, "chmod", name, "chmod", coreutils.Operands(mode, name)...)
}

// Chown changes the numeric uid and gid of the named file. A uid or gid of -1
// means to not change that value. It follows symbolic links. Only root may
// change the owner: commands of an ordinary user fail with [syscall.EPERM].
func (f *FileSystem) Chown(ctx context.Context, name string, uid, gid int) error {
	return f.pathOp(ctx, "chown", name, "chown", append([]string{ownerArg(uid, gid)}, coreutils.Operands(name)...)...)
}

// ownerArg returns chown's argument for a uid and a gid. Without a gid it has no colon,
// because chown does not accept "1000:".
func ownerArg(uid, gid int) string {
	owner, group := "", ""
	if uid >= 0 {
		owner = strconv.Itoa(uid)
	}
	if gid >= 0 || uid < 0 {
		group = ":"
	}
	if gid >= 0 {
		group += strconv.Itoa(gid)
	}
	return owner + group
}

// Symlink creates newName as a symbolic link to oldName, which need not exist.
// Errors are of type [*os.LinkError].
func (f *FileSystem) Symlink(ctx context.Context, oldName, newName string) error {
	return f.linkOp(ctx, "symlink", oldName, newName, "ln", append([]string{"-s", "-T"}, coreutils.Operands(oldName, newName)...)...)
}

// Readlink returns the destination of the named symbolic link.
func (f *FileSystem) Readlink(ctx context.Context, name string) (string, error) {
	return f.nameOp(ctx, "readlink", name, "readlink", append([]string{"-v"}, coreutils.Operands(name)...)...)
}

// RealPath returns the absolute path of the named file with all symbolic links
// resolved. The file must exist.
func (f *FileSystem) RealPath(ctx context.Context, name string) (string, error) {
	if err := f.enter(ctx, "realpath", name); err != nil {
		return "", err
	}
	out, err := f.tools(name).RealPath(ctx, name)
	if err != nil {
		return "", &fs.PathError{Op: "realpath", Path: name, Err: programError(err)}
	}
	return out, nil
}

// nameOp runs a program that prints a file name.
func (f *FileSystem) nameOp(ctx context.Context, op, name, program string, args ...string) (string, error) {
	if err := f.enter(ctx, op, name); err != nil {
		return "", err
	}
	out, err := f.tools(name).Query(ctx, program, args...)
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: programError(err)}
	}
	return out, nil
}

// Truncate changes the size of an existing regular file. If the file grows, the
// new part reads as zeros.
func (f *FileSystem) Truncate(ctx context.Context, name string, size int64) error {
	if err := f.enter(ctx, "truncate", name); err != nil {
		return err
	}
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: name, Err: syscall.EINVAL}
	}
	if err := f.tools(name).Truncate(ctx, name, size); err != nil {
		return &fs.PathError{Op: "truncate", Path: name, Err: programError(err)}
	}
	return nil
}

// MkdirTemp creates a new temporary directory in dir that only the current user
// can access, and returns its path. The name is generated by replacing the last
// "*" in pattern with a random string, or appending one. If dir is empty, /tmp
// is used. The caller is responsible for removing the directory.
func (f *FileSystem) MkdirTemp(ctx context.Context, dir, pattern string) (string, error) {
	if _, err := enter(ctx, f); err != nil {
		return "", err
	}
	if strings.Contains(pattern, "/") {
		return "", &fs.PathError{Op: "mkdirtemp", Path: pattern, Err: errors.New("pattern contains a slash")}
	}
	const random = "XXXXXX"
	prefix, suffix := pattern, ""
	if i := strings.LastIndexByte(pattern, '*'); i >= 0 {
		prefix, suffix = pattern[:i], pattern[i+1:]
	}
	switch {
	case dir == "":
		dir = "/tmp/"
	case dir == ".":
		dir = ""
	case !strings.HasSuffix(dir, "/"):
		dir += "/"
	}
	args := []string{"-d"}
	if strings.Contains(suffix, "X") {
		// mktemp fills in the last run of X, which must be this one.
		args = append(args, "--suffix="+suffix)
		suffix = ""
	}
	template := dir + prefix + random + suffix
	return f.nameOp(ctx, "mkdirtemp", template, "mktemp", append(args, coreutils.Operands(template)...)...)
}

// Exists reports whether the named file exists and can be reached. It follows
// symbolic links. An error means that this could not be determined.
func (f *FileSystem) Exists(ctx context.Context, name string) (bool, error) {
	switch err := f.enter(ctx, "stat", name); {
	case name == "" && errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return f.tools(name).Test(ctx, "test", "-e", name)
}

// ReadDir reads the named directory and returns its entries, sorted by
// filename, with one request. The Info methods of the entries make no request.
// An entry that is removed during the call may be missing.
// The list is held in memory: one of more than 250,000 entries, or 32 MiB, is an
// error.
func (f *FileSystem) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if err := f.enter(ctx, "open", name); err != nil {
		return nil, err
	}
	list, err := f.tools(name).List(ctx, name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: programError(err)}
	}
	return dirEntries(list), nil
}

// dirEntries returns the entries sorted by filename.
func dirEntries(list []coreutils.Entry) []fs.DirEntry {
	entries := make([]fs.DirEntry, len(list))
	for i := range list {
		entries[i] = fs.FileInfoToDirEntry(&fileInfo{name: list[i].Name, stat: list[i].Stat})
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries
}

// FSError is the error that the sandbox reported for a file operation. It is
// wrapped by an [*fs.PathError] or [*os.LinkError]. With [errors.Is] it matches
// its cause, such as [syscall.ENOTEMPTY], if the message was recognized, and with
// [errors.As] it is an [*APIError] if the API refused.
type FSError struct {
	// Message is what a program wrote to standard error, or the API's message,
	// unchanged. Error quotes it where it is not printable.
	Message string

	errno syscall.Errno // 0 if the message was not recognized
	err   error         // the API's; nil if a program failed
	// command is the program that failed, and exitCode its exit code.
	command  string
	exitCode int
}

// Error returns the text of the cause, or else the sandbox's message.
func (e *FSError) Error() string {
	msg := strings.TrimSpace(e.Message)
	switch {
	case e.errno == syscall.ENOTSUP && coreutils.Foreign(msg):
		line, _, _ := strings.Cut(msg, "\n")
		return "a program of the sandbox is not GNU's: " + redact.Printable(line)
	case e.errno != 0:
		return e.errno.Error()
	case e.err != nil:
		return e.err.Error()
	case msg != "":
		return redact.Printable(msg)
	default:
		return fmt.Sprintf("%s ended with exit code %d", e.command, e.exitCode)
	}
}

// Unwrap returns the causes.
func (e *FSError) Unwrap() []error {
	var errs []error
	if e.errno != 0 {
		errs = append(errs, e.errno)
	}
	if e.err != nil {
		errs = append(errs, e.err)
	}
	return errs
}

// apiFileError converts an API error about a file to an FSError that wraps it.
// Other errors are returned unchanged.
func apiFileError(err error) error {
	if e, ok := errors.AsType[*APIError](err); ok {
		if errno := cmp.Or(api.FileErrno(e.Code, e.Message), coreutils.Errno(e.Message)); errno != 0 {
			return &FSError{errno: errno, Message: e.Message, err: err}
		}
	}
	return err
}

// programError converts the failure of a program to an *FSError. Other errors are
// returned unchanged.
func programError(err error) error {
	if e, ok := errors.AsType[*coreutils.Error](err); ok {
		return &FSError{errno: e.Errno, command: e.Command, exitCode: e.ExitCode, Message: e.Message}
	}
	return err
}

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
	if err := f.enter(ctx, op, name); err != nil {
		return nil, err
	}
	st, err := f.tools(name).Stat(ctx, name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: programError(err)}
	}
	return &fileInfo{name: path.Base(name), stat: *st}, nil
}

// FileStat is experimental: the facts about a file that [fs.FileInfo] lacks. The
// FileInfo's Sys method returns a *FileStat.
type FileStat struct {
	// RawMode is Linux's st_mode: the file's type and permissions.
	RawMode uint32
	// UID and GID are the IDs of the owner and the group.
	UID, GID int
	// AccessTime, ChangeTime and BirthTime are as precise as the sandbox's stat
	// reports them. BirthTime is zero if unknown, and in directory listings.
	AccessTime, ChangeTime, BirthTime time.Time
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
	stat coreutils.Stat
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.stat.Size }
func (i *fileInfo) Mode() fs.FileMode  { return coreutils.FileMode(i.stat.RawMode) }
func (i *fileInfo) ModTime() time.Time { return i.stat.ModTime }
func (i *fileInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *fileInfo) String() string     { return fs.FormatFileInfo(i) }

func (i *fileInfo) Sys() any {
	s := &i.stat
	return &FileStat{
		RawMode: s.RawMode, UID: s.UID, GID: s.GID, AccessTime: s.AccessTime, ChangeTime: s.ChangeTime, BirthTime: s.BirthTime,
		Links: s.Links, Inode: s.Inode, Device: s.Device, BlockSize: s.BlockSize, Blocks: s.Blocks,
	}
}

// tools returns a Runner of programs that work on these paths.
func (f *FileSystem) tools(paths ...string) coreutils.Runner {
	return func(ctx context.Context, c coreutils.Call) (coreutils.Result, error) {
		return program{name: c.Name, args: c.Args, paths: paths, stdout: c.Stdout}.run(ctx, f.target())
	}
}
