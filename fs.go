package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox/internal/tarball"
)

// owner is a target whose uploads have to be handed over afterwards, because
// the API writes them as the sandbox's default user.
type owner interface {
	// own hands over what was uploaded.
	own(ctx context.Context, written iter.Seq2[tarball.Entry, error]) error
}

// FileSystem works on the files of a sandbox with the names and meanings of
// package os. It comes from the FS method of a [Sandbox], a [Session] or a
// [SandboxUser], and is safe for concurrent use.
//
// Relative paths start in the working directory of the session, or in the home
// directory of the user. Names may hold any byte but NUL and "/".
//
// Errors are [*fs.PathError] and [*os.LinkError], to be told apart with
// [errors.Is] and [fs.ErrNotExist], [fs.ErrExist], [fs.ErrPermission] or an errno
// such as [syscall.ENOTEMPTY]. The [*FSError] inside has the sandbox's own words.
//
// Most methods run a command of GNU coreutils or findutils in the sandbox. One
// that fails with a message in another language is asked once more in English;
// it has done nothing the first time.
type FileSystem struct {
	t target
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
	return openFile(ctx, f.t, name, nil)
}

// WriteFile writes a file with the given mode, replacing one that exists, and
// makes the directories that lead to it. Unlike with [os.WriteFile] perm is the
// mode of the file afterwards, also when it existed before.
func (f *FileSystem) WriteFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	return f.write(ctx, "open", name, File{Path: name, Content: data, Mode: &perm})
}

// write uploads one file on behalf of an operation on the file called name.
func (f *FileSystem) write(ctx context.Context, op, name string, file File) error {
	err := writeFiles(ctx, f.t, []File{file}, nil)
	if err == nil || errors.Is(err, ErrInvalid) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: fileReason(err)}
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
