package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/tarball"
)

// owner is a target whose uploads have to be handed over afterwards, because
// the API writes them as the sandbox's default user.
type owner interface {
	// own hands over what was uploaded.
	own(ctx context.Context, written iter.Seq2[tarball.Entry, error]) error
	// ownParents hands over the directories that lead to a file which was made
	// by a command of the target.
	ownParents(ctx context.Context, name string) error
}

// FileSystem works on the files of a sandbox with the names and meanings of
// package os. It comes from the FS method of a [Sandbox], a [Session] or a
// [User], and is safe for concurrent use.
//
// Relative paths start in the working directory of the session, or in the home
// directory of the user. Names may hold any byte but NUL and "/".
//
// Errors are [*fs.PathError] and [*os.LinkError], to be told apart with
// [errors.Is] and [fs.ErrNotExist], [fs.ErrExist], [fs.ErrPermission] or an errno
// such as [syscall.ENOTEMPTY]. The [*FSError] inside has the sandbox's own words.
//
// Most methods run a command of GNU coreutils or findutils in the sandbox, one
// request each unless they say otherwise. One that fails with a message in
// another language is asked once more in English; it has done nothing the first
// time. When the context ends the command is killed; a method returns at once,
// or within five seconds when the API does not answer that request.
type FileSystem struct {
	t target
}

// on is what the files are on: nothing for a FileSystem that nobody has made.
func (f *FileSystem) on() target {
	if f.t == nil {
		return &Sandbox{}
	}
	return f.t
}

// FS returns the sandbox's files.
func (s *Sandbox) FS() *FileSystem { return &FileSystem{t: s} }

// FS returns the session's files. Unlike those of a [Sandbox] its methods don't
// resume a session that has stopped.
func (s *Session) FS() *FileSystem { return &FileSystem{t: s} }

// ReadFile returns the content of a file. Use [FileSystem.Open] for a file that
// may not fit into memory.
func (f *FileSystem) ReadFile(ctx context.Context, name string) ([]byte, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(r, r.Size())
}

// readAll reads r to its end into a buffer that is right from the start when the
// size is known. A size that would be absurd to allocate at once is not trusted.
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

// Open opens a file for reading. Its content is streamed. The caller closes it.
func (f *FileSystem) Open(ctx context.Context, name string) (*FileReader, error) {
	return openFile(ctx, f.on(), name, nil)
}

// WriteFile writes a file with the given mode, replacing one that exists, and
// makes the directories that lead to it. It is one request, of the file API,
// which has three differences from [os.WriteFile]: perm is the mode of the file
// afterwards, also when it existed before; a symbolic link, or whatever else has
// the name and is no directory, is replaced instead of followed; and ".." in
// name takes back the element before it, even if that is a symbolic link. What
// is promised when a connection breaks is said at [Sandbox.WriteFiles].
// [FileSystem.Create] has none of these differences, for one more request.
func (f *FileSystem) WriteFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	if err := checkFile("open", name); err != nil {
		return err
	}
	err := writeFiles(ctx, f.on(), []File{{Path: name, Content: data, Mode: &perm}}, nil)
	if err == nil || errors.Is(err, ErrInvalid) {
		return err
	}
	return &fs.PathError{Op: "open", Path: name, Err: fileReason(err)}
}

// checkFile is checkPath for what is to become a file.
func checkFile(op, name string) error {
	if strings.HasSuffix(name, "/") {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EISDIR}
	}
	return checkPath(op, name)
}

// checkPath refuses the paths that no system call takes.
func checkPath(op, name string) error {
	switch {
	case name == "":
		return &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
	case strings.IndexByte(name, 0) >= 0:
		return &fs.PathError{Op: op, Path: name, Err: syscall.EINVAL}
	}
	return nil
}

// umask is what a sandbox's processes start with: modes that are asked for lose
// these bits, as they do in package os.
const umask fs.FileMode = 0o022

// pathOp runs a program on one path and puts the path into its error.
func (f *FileSystem) pathOp(ctx context.Context, op, name, program string, args ...string) error {
	if err := checkPath(op, name); err != nil {
		return err
	}
	if _, err := f.tools().Run(ctx, program, args...); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: reason(err)}
	}
	return nil
}

// linkOp is pathOp for two paths.
func (f *FileSystem) linkOp(ctx context.Context, op, from, to, program string, args ...string) error {
	for _, p := range []string{from, to} {
		if err := checkPath(op, p); err != nil {
			return &os.LinkError{Op: op, Old: from, New: to, Err: errors.Unwrap(err)}
		}
	}
	if _, err := f.tools().Run(ctx, program, args...); err != nil {
		return &os.LinkError{Op: op, Old: from, New: to, Err: reason(err)}
	}
	return nil
}

// Mkdir makes a directory. Its parent has to exist.
func (f *FileSystem) Mkdir(ctx context.Context, name string, perm fs.FileMode) error {
	if mode := perm &^ umask; mode != 0o755 {
		return f.pathOp(ctx, "mkdir", name, "mkdir", append([]string{"-m", coreutils.Octal(mode)}, coreutils.Operands(name)...)...)
	}
	if err := checkPath("mkdir", name); err != nil {
		return err
	}
	if err := f.on().mkdir(ctx, name); err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fileReason(err)}
	}
	return nil
}

// fileReason tells what an API error says about a file; the API's error stays
// inside. Other errors are returned as they are.
func fileReason(err error) error {
	if e, ok := errors.AsType[*APIError](err); ok {
		if errno := errnoOfAPI(e); errno != 0 {
			return &FSError{Errno: errno, Message: e.Message, Err: err}
		}
	}
	return err
}

// MkdirAll makes a directory and those that lead to it. One that exists already
// is no error.
func (f *FileSystem) MkdirAll(ctx context.Context, name string, perm fs.FileMode) error {
	var err error
	if mode := perm &^ umask; mode == 0o755 {
		err = f.pathOp(ctx, "mkdir", name, "mkdir", append([]string{"-p"}, coreutils.Operands(name)...)...)
	} else {
		err = f.pathOp(ctx, "mkdir", name, "sh", "-c", `umask "$1" && exec mkdir -p -- "$2"`, "sh", coreutils.Octal(0o777&^mode), name)
	}
	if fe, ok := errors.AsType[*FSError](err); ok && fe.Errno == syscall.EEXIST {
		fe.Errno = syscall.ENOTDIR // as package os calls a file in the way
	}
	return err
}

// Remove removes a file, a symbolic link or an empty directory.
func (f *FileSystem) Remove(ctx context.Context, name string) error {
	return f.pathOp(ctx, "remove", name, "rm", append([]string{"-d"}, coreutils.Operands(name)...)...)
}

// RemoveAll removes a file, or a directory with all that is in it. One that does
// not exist is no error.
func (f *FileSystem) RemoveAll(ctx context.Context, name string) error {
	if name == "" {
		return nil // as os.RemoveAll
	}
	return f.pathOp(ctx, "RemoveAll", name, "rm", append([]string{"-r", "-f"}, coreutils.Operands(noSlash(name))...)...)
}

// noSlash cuts the slashes at the end of a path, as os.RemoveAll does: with them
// rm would empty the directory that a symbolic link leads to.
func noSlash(name string) string {
	if short := strings.TrimRight(name, "/"); short != "" {
		return short
	}
	return name
}

// Rename moves a file or directory to a new name. A file that has the name is
// replaced, and so is an empty directory by a directory; otherwise a directory
// that has the name is an error: nothing is ever moved into it. When both names
// are hard links of one file, nothing is done. Errors are of type
// [*os.LinkError].
func (f *FileSystem) Rename(ctx context.Context, oldName, newName string) error {
	err := f.linkOp(ctx, "rename", oldName, newName, "mv", append([]string{"-T"}, coreutils.Operands(oldName, newName)...)...)
	if fe, ok := errors.AsType[*FSError](err); ok {
		switch {
		case strings.Contains(fe.Message, "are the same file"):
			if path.Clean(oldName) == path.Clean(newName) {
				return nil
			}
			// To rename(2) hard links of one file are no reason to do
			// anything. What else mv means is a link and what it leads to.
			same, statErr := f.tools().SameFile(ctx, oldName, newName)
			if statErr == nil && same {
				return nil
			}
			fe.Errno = syscall.EEXIST
		case fe.Errno == syscall.EISDIR:
			fe.Errno = syscall.EEXIST // as package os calls a directory in the way
		}
	}
	return err
}

// CopyFile copies a file within the sandbox, with its permissions if the copy is
// new. A file that has the name is overwritten; nothing is ever copied into a
// directory. Errors are of type [*os.LinkError].
func (f *FileSystem) CopyFile(ctx context.Context, from, to string) error {
	return f.linkOp(ctx, "copy", from, to, "cp", append([]string{"-T"}, coreutils.Operands(from, to)...)...)
}

// Chmod sets the permissions of a file, and its set-id and sticky bits. It
// follows symbolic links.
func (f *FileSystem) Chmod(ctx context.Context, name string, mode fs.FileMode) error {
	return f.pathOp(ctx, "chmod", name, "chmod", append([]string{coreutils.Octal(mode)}, coreutils.Operands(name)...)...)
}

// ChmodSymbolic changes permissions as the program chmod understands them, such
// as "u+x,go-w".
func (f *FileSystem) ChmodSymbolic(ctx context.Context, name, mode string) error {
	if mode == "" || strings.ContainsAny(mode, "\x00/ \n") {
		return invalid("mode", "%q is not a mode of chmod", mode)
	}
	return f.pathOp(ctx, "chmod", name, "chmod", coreutils.Operands(mode, name)...)
}

// Chown sets the owner and the group of a file. -1 leaves one of them as it is.
// It follows symbolic links. Only root may give files away: commands of an
// ordinary user fail with [syscall.EPERM].
func (f *FileSystem) Chown(ctx context.Context, name string, uid, gid int) error {
	return f.pathOp(ctx, "chown", name, "chown", append([]string{ids(uid, gid)}, coreutils.Operands(name)...)...)
}

// Lchown is as [FileSystem.Chown] but changes a symbolic link itself.
func (f *FileSystem) Lchown(ctx context.Context, name string, uid, gid int) error {
	return f.pathOp(ctx, "lchown", name, "chown", append([]string{"-h", ids(uid, gid)}, coreutils.Operands(name)...)...)
}

func ids(uid, gid int) string {
	owner, group := "", ""
	if uid >= 0 {
		owner = strconv.Itoa(uid)
	}
	if gid >= 0 {
		group = strconv.Itoa(gid)
	}
	return owner + ":" + group
}

// Symlink makes newName a symbolic link to oldName, which need not exist. Errors
// are of type [*os.LinkError].
func (f *FileSystem) Symlink(ctx context.Context, oldName, newName string) error {
	return f.linkOp(ctx, "symlink", oldName, newName, "ln", append([]string{"-s", "-T"}, coreutils.Operands(oldName, newName)...)...)
}

// Readlink returns where a symbolic link points to.
func (f *FileSystem) Readlink(ctx context.Context, name string) (string, error) {
	return f.nameOp(ctx, "readlink", name, "readlink", append([]string{"-v"}, coreutils.Operands(name)...)...)
}

// RealPath returns the absolute path of a file without symbolic links. The file
// has to exist.
func (f *FileSystem) RealPath(ctx context.Context, name string) (string, error) {
	return f.nameOp(ctx, "realpath", name, "realpath", append([]string{"-e"}, coreutils.Operands(name)...)...)
}

// nameOp runs a program that answers with a file's name.
func (f *FileSystem) nameOp(ctx context.Context, op, name, program string, args ...string) (string, error) {
	if err := checkPath(op, name); err != nil {
		return "", err
	}
	out, err := f.tools().Query(ctx, program, args...)
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: reason(err)}
	}
	return out, nil
}

// Truncate sets the length of a regular file, which has to exist. What is added
// reads as zeros.
func (f *FileSystem) Truncate(ctx context.Context, name string, size int64) error {
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: name, Err: syscall.EINVAL}
	}
	if err := checkPath("truncate", name); err != nil {
		return err
	}
	if err := f.tools().Truncate(ctx, name, size); err != nil {
		return &fs.PathError{Op: "truncate", Path: name, Err: reason(err)}
	}
	return nil
}

// MkdirTemp makes a new directory that only the present user can use, and
// returns its path. The random part of its name takes the place of the last "*"
// in pattern, or comes at its end. An empty dir stands for /tmp. The caller
// removes the directory.
func (f *FileSystem) MkdirTemp(ctx context.Context, dir, pattern string) (string, error) {
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
		// mktemp fills in the last run of X, which has to be ours.
		args = append(args, "--suffix="+suffix)
		suffix = ""
	}
	template := dir + prefix + random + suffix
	out, err := f.nameOp(ctx, "mkdirtemp", template, "mktemp", append(args, coreutils.Operands(template)...)...)
	if err != nil {
		return "", err
	}
	return out, nil
}

// Exists reports whether a file exists and can be reached. It follows symbolic
// links. The error says only that it could not be found out.
func (f *FileSystem) Exists(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	if err := checkPath("stat", name); err != nil {
		return false, err
	}
	return f.tools().Test(ctx, "test", "-e", name)
}
