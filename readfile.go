package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"
)

// ReadFileOptions are the options of ReadFile.
type ReadFileOptions struct {
	// Cwd is the directory in the sandbox that a relative path starts in. The
	// default is the working directory of the session, or the home directory of
	// the user.
	Cwd string
	// Progress is told how much was read.
	Progress ProgressFunc
}

// ReadFile opens a file in the sandbox for reading, from its beginning to its
// end. The content is streamed. The caller closes it.
//
// The error of a missing file is a [*fs.PathError] that matches [fs.ErrNotExist].
// A sandbox or session that is missing matches [ErrNotFound] instead, as far as
// the API says which one it was. A connection that breaks while the file is read
// is an error of Read; use [Sandbox.DownloadFile] to have the file fetched again.
func (s *Sandbox) ReadFile(ctx context.Context, path string, opts *ReadFileOptions) (io.ReadCloser, error) {
	return readFile(ctx, s, path, opts)
}

// ReadFile is as [Sandbox.ReadFile], but does not resume a session that has
// stopped.
func (s *Session) ReadFile(ctx context.Context, path string, opts *ReadFileOptions) (io.ReadCloser, error) {
	return readFile(ctx, s, path, opts)
}

// readFile keeps a nil *FileReader out of an interface.
func readFile(ctx context.Context, t target, path string, opts *ReadFileOptions) (io.ReadCloser, error) {
	r, err := openFile(ctx, t, path, opts)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// FileReader is a file of a sandbox that is being read. It is for one goroutine
// at a time.
type FileReader struct {
	name  string
	body  io.ReadCloser
	size  int64
	read  int64
	meter *meter
}

// openFile starts to read a file.
func openFile(ctx context.Context, t target, name string, opts *ReadFileOptions) (*FileReader, error) {
	if opts == nil {
		opts = &ReadFileOptions{}
	}
	if err := checkPath("open", name); err != nil {
		return nil, err
	}
	var (
		body io.ReadCloser
		size int64
		err  error
	)
	if utf8.ValidString(name) && utf8.ValidString(opts.Cwd) {
		body, size, err = t.openFile(ctx, name, opts.Cwd)
	} else {
		body, size, err = openEncoded(ctx, t, joinCwd(opts.Cwd, name))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: missingFile(err)}
	}
	return &FileReader{name: name, body: body, size: size, meter: newMeter(opts.Progress, size)}, nil
}

// joinCwd leaves a path as it is where it can be, as the API would.
func joinCwd(cwd, name string) string {
	if cwd == "" || strings.HasPrefix(name, "/") {
		return name
	}
	return cwd + "/" + name
}

// missingFile turns a 404 into fs.ErrNotExist, unless the API says that it was
// the sandbox or the session that it did not find.
func missingFile(err error) error {
	e, ok := errors.AsType[*APIError](err)
	if !ok {
		return err
	}
	if e.Status == http.StatusNotFound {
		what, found := strings.CutSuffix(e.Code, "_not_found")
		if found && what != "file" && what != "path" || sandboxGone(e.Message) {
			return err
		}
		return &FSError{Errno: syscall.ENOENT, Message: e.Message}
	}
	return fileReason(err)
}

// sandboxGone reads the message of a 404 whose code says nothing more.
func sandboxGone(message string) bool {
	message = strings.TrimPrefix(strings.ToLower(message), "vercel ")
	return strings.HasPrefix(message, "sandbox not found") || strings.HasPrefix(message, "session not found")
}

// Name returns the path that the file was opened with.
func (r *FileReader) Name() string { return r.name }

// Size returns the length of the file, or -1 when the sandbox did not say.
func (r *FileReader) Size() int64 { return r.size }

// Read reads on. At the end of a file that turned out shorter than it was
// announced the error is [io.ErrUnexpectedEOF].
func (r *FileReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.read += int64(n)
	r.meter.add(r.name, n)
	if err == io.EOF && r.size >= 0 && r.read < r.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		err = &fs.PathError{Op: "read", Path: r.name, Err: err}
	}
	return n, err
}

// transferBuffers are larger than the read buffer of a connection, so that
// content does not go through that.
var transferBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// WriteTo writes what is left of the file to w. It makes [io.Copy] read in
// larger pieces.
func (r *FileReader) WriteTo(w io.Writer) (int64, error) {
	buf := transferBuffers.Get().(*[256 << 10]byte)
	defer transferBuffers.Put(buf)
	// The wrappers hide WriteTo and ReadFrom, which would not use the buffer.
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf[:])
}

// Close ends the transfer. It can be called more than once.
func (r *FileReader) Close() error { return r.body.Close() }
