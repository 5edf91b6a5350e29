package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/untar"
	"github.com/klauspost/compress/gzip"

	"github.com/go-vercel/sandbox/internal/api"
)

// DownloadFileOptions are the options of DownloadFile.
type DownloadFileOptions struct {
	// Cwd is the directory in the sandbox that a relative path starts in. The
	// default is the working directory of the session, or the home directory of
	// the user.
	Cwd string
	// MkdirAll makes the local directories that lead to the file.
	MkdirAll bool
	// MaxBytes is the most bytes that the file may have: of a larger one nothing
	// is kept, and the error wraps a [*http.MaxBytesError]. Zero means no limit.
	MaxBytes int64
	// Progress is told how much was downloaded.
	Progress ProgressFunc
}

// DownloadFile copies the file src of the sandbox to the local file dst.
//
// The content is written to a temporary file beside dst, which gets the name dst
// when it is whole: nobody ever sees a part of it, and after an error dst is what
// it was. Where the answer does not say how long the file is, a second request
// asks for that at the same time; a sandbox without the program stat, which can't
// tell, is believed. A connection that breaks is tried twice again, from the beginning of
// the file. A local file that exists is replaced and keeps its permissions; one
// that may not be written to is an error.
//
// The error of a file that is missing in the sandbox is a [*fs.PathError] that
// matches [fs.ErrNotExist], with src as its path; those of the local disk have
// dst.
func (s *Sandbox) DownloadFile(ctx context.Context, src, dst string, opts *DownloadFileOptions) error {
	return downloadFile(ctx, s, src, dst, opts)
}

// DownloadFile is as [Sandbox.DownloadFile], but does not resume a session that
// has stopped.
func (s *Session) DownloadFile(ctx context.Context, src, dst string, opts *DownloadFileOptions) error {
	return downloadFile(ctx, s, src, dst, opts)
}

// downloadAttempts is how often a file is asked for when its connection breaks.
const downloadAttempts = 3

func downloadFile(ctx context.Context, t target, src, dst string, opts *DownloadFileOptions) error {
	var o DownloadFileOptions
	if opts != nil {
		o = *opts
	}
	if src == "" {
		return invalid("src", "is empty; the path of a file in the sandbox is needed")
	}
	if dst == "" {
		return invalid("dst", "is empty; the path of a local file is needed")
	}
	if o.MaxBytes < 0 {
		return invalid("MaxBytes", "%d is negative", o.MaxBytes)
	}
	open := func() (*FileReader, error) {
		return openFile(ctx, t, src, &ReadFileOptions{Cwd: o.Cwd, Progress: o.Progress})
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer func() { r.Close() }()

	if o.MkdirAll {
		if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
			return err
		}
	}
	w, err := createPart(dst)
	if err != nil {
		return err
	}
	defer w.discard()
	w.limit = o.MaxBytes
	length := newLength(ctx, t, r, joinCwd(o.Cwd, src))
	defer length.stop()
	for attempt := 1; ; attempt++ {
		err := w.fill(ctx, r)
		if err == nil {
			err = length.check(r.read)
		}
		if err == nil {
			return w.commit()
		}
		if !errors.Is(err, errBroken) || ctx.Err() != nil || attempt == downloadAttempts {
			return err
		}
		if _, refused := errors.AsType[*FSError](err); refused {
			return err // a broken disk, not a broken connection
		}
		if err := pause(ctx, time.Duration(attempt)*400*time.Millisecond); err != nil {
			return err
		}
		r.Close()
		again, err := open()
		if err != nil {
			return err
		}
		r = again
		if err := w.rewind(); err != nil {
			return err
		}
	}
}

// pause waits for d, or until the context ends, whose cause it returns then.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return api.ContextError(ctx)
	}
}

// length is that of a file whose transfer does not say it, asked for while the
// content comes. Nil is for the others.
type length struct {
	asked  context.CancelFunc
	answer chan int64
	least  int64 // -1 for not known
}

func newLength(ctx context.Context, t target, r *FileReader, path string) *length {
	if _, ends := r.body.(encodedBody); ends || r.size >= 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &length{asked: cancel, answer: make(chan int64, 1), least: -1}
	go func() {
		n := int64(-1)
		if info, err := (&FileSystem{t: t}).Stat(ctx, path); err == nil && info.Mode().IsRegular() {
			n = info.Size()
		}
		l.answer <- n
		close(l.answer)
	}()
	return l
}

// check reports content that is shorter than the file was when it was asked for,
// which it can be by chance once, for a file that grows.
func (l *length) check(n int64) error {
	if l == nil {
		return nil
	}
	if least, first := <-l.answer; first {
		l.least = least
	}
	if n < l.least {
		return brokenError{fmt.Errorf("%d of %d bytes have come: %w", n, l.least, io.ErrUnexpectedEOF)}
	}
	return nil
}

// stop waits until nobody asks any more.
func (l *length) stop() {
	if l != nil {
		l.asked()
		for range l.answer {
		}
	}
}

// errBroken marks a download that the other side ended early.
var errBroken = errors.New("the download broke off")

// brokenError is an error of the source, apart from those of the local disk.
type brokenError struct{ error }

func (e brokenError) Unwrap() []error { return []error{errBroken, e.error} }

// part is a local file on its way to its name.
type part struct {
	file *os.File
	name string // as the caller calls it, for errors
	dst  string // where it goes, which a symbolic link may say

	limit int64 // of its bytes, unless that is 0
}

// createPart makes a temporary file beside dst. Its errors are those that
// opening dst itself would give.
func createPart(dst string) (*part, error) {
	p := &part{name: dst, dst: dst}
	mode, exists := fs.FileMode(0), false
	if real, err := filepath.EvalSymlinks(dst); err == nil {
		p.dst = real
		info, err := os.Stat(real)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return nil, &fs.PathError{Op: "open", Path: dst, Err: syscall.EISDIR}
		}
		if !info.Mode().IsRegular() {
			return nil, &fs.PathError{Op: "open", Path: dst, Err: errors.New("is not a regular file")}
		}
		// Replacing a file needs no right to write to it, but whoever took that
		// right away meant it.
		f, err := os.OpenFile(dst, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.Close()
		mode, exists = info.Mode().Perm(), true
	}
	tmp := filepath.Join(filepath.Dir(p.dst), ".download-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, p.fail("open", err)
	}
	p.file = f
	if exists {
		if err := f.Chmod(mode); err != nil {
			p.discard()
			return nil, p.fail("chmod", err)
		}
	}
	return p, nil
}

// fail gives an error of the temporary file the name that the caller knows.
func (p *part) fail(op string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: pe.Op, Path: p.name, Err: pe.Err}
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: le.Op, Path: p.name, Err: le.Err}
	}
	return &fs.PathError{Op: op, Path: p.name, Err: err}
}

// fill copies r to the file. An error of r matches errBroken.
func (p *part) fill(ctx context.Context, r io.Reader) error {
	buf := transferBuffers.Get().(*[256 << 10]byte)
	defer transferBuffers.Put(buf)
	var total int64
	for {
		n, err := r.Read(buf[:])
		if total += int64(n); p.limit > 0 && total > p.limit {
			return p.fail("download", &http.MaxBytesError{Limit: p.limit})
		}
		if n > 0 {
			if _, err := p.file.Write(buf[:n]); err != nil {
				return p.fail("write", err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && ctx.Err() != nil:
			return api.ContextError(ctx)
		case err != nil:
			return brokenError{err}
		}
	}
}

// rewind empties the file for another attempt.
func (p *part) rewind() error {
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return p.fail("seek", err)
	}
	if err := p.file.Truncate(0); err != nil {
		return p.fail("truncate", err)
	}
	return nil
}

// commit gives the file its name.
func (p *part) commit() error {
	if err := p.file.Close(); err != nil {
		return p.fail("close", err)
	}
	if err := os.Rename(p.file.Name(), p.dst); err != nil {
		return p.fail("rename", err)
	}
	return nil
}

// discard removes what was not committed.
func (p *part) discard() {
	p.file.Close()
	os.Remove(p.file.Name())
}

// ErrUnsafeArchive matches the error of [Sandbox.DownloadDir] when the sandbox
// sends something that would leave the local directory, that is neither a file
// nor a directory nor a link, or that exceeds a limit.
var ErrUnsafeArchive = untar.ErrUnsafe

// The limits of DownloadDir when its options don't say. They are beyond what a
// sandbox should hold, and keep one that is hostile from filling the disk.
const (
	maxEntries = 500_000
	maxBytes   = 64 << 30
)

// DownloadDirOptions are the options of DownloadDir.
type DownloadDirOptions struct {
	// Include, if not empty, has patterns of what to unpack, and Exclude has
	// patterns of what to leave out. They are those of [UploadOptions].
	Include, Exclude []string
	// MaxEntries and MaxBytes limit the number of files, directories and links
	// that the sandbox sends, and the total length of the files; what Include and
	// Exclude leave out is sent all the same. Zero means 500,000 and 64 GiB.
	MaxEntries int
	MaxBytes   int64
	// OutsideLinks keeps symbolic links that lead out of the directory. The
	// default is to refuse them, because whoever works with the local directory
	// later would follow them.
	OutsideLinks bool
	// Progress is told how much was unpacked. The total is not known.
	Progress ProgressFunc
}

// DownloadDir copies the directory src of the sandbox to the local directory
// dst, which is made if it does not exist. Files that exist are replaced, others
// are left alone. Modification times, symbolic links, and permissions as far as
// the umask lets them are kept; set-id bits and owners are not.
//
// The content comes as one stream, in constant memory, and is unpacked as it
// comes. It is not trusted: what would be written outside of dst is refused, and
// so are devices, pipes, symbolic links that lead out of dst, and names more than
// 255 directories deep; the error matches [ErrUnsafeArchive]. After an error the
// files that were whole by then stay, and no part of another.
//
// The sandbox needs bash, GNU tar, gzip and base64. A directory that is missing
// there is a [*fs.PathError] that matches [fs.ErrNotExist].
func (s *Sandbox) DownloadDir(ctx context.Context, src, dst string, opts *DownloadDirOptions) error {
	return downloadDir(ctx, s, src, dst, opts)
}

// DownloadDir is as [Sandbox.DownloadDir], but does not resume a session that
// has stopped.
func (s *Session) DownloadDir(ctx context.Context, src, dst string, opts *DownloadDirOptions) error {
	return downloadDir(ctx, s, src, dst, opts)
}

// packScript writes a directory to standard output as a compressed archive in
// base64, since that carries only text. Lines are long, as each may become a
// record of the stream.
const packScript = `set -o pipefail; unset CDPATH; d=$1; [ "$d" != - ] || d=./-; cd -- "$d" && tar --format=posix --pax-option=delete=atime,delete=ctime --hard-dereference -cf - . | gzip -1 | base64 -w 8192`

func downloadDir(ctx context.Context, t target, src, dst string, opts *DownloadDirOptions) error {
	var o DownloadDirOptions
	if opts != nil {
		o = *opts
	}
	if o.MaxEntries < 0 || o.MaxBytes < 0 {
		return invalid("MaxEntries", "a limit is negative")
	}
	if dst == "" {
		return invalid("dst", "is empty; the path of a local directory is needed")
	}
	if err := checkPath("open", src); err != nil {
		return err
	}
	filter, err := newFilter(o.Include, o.Exclude)
	if err != nil {
		return err
	}
	cmd, err := readCommand(ctx, t, "bash", []string{"-c", packScript, "bash", src})
	if err != nil {
		return &fs.PathError{Op: "open", Path: src, Err: err}
	}
	defer cmd.Close()
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer root.Close()
	m := newMeter(o.Progress, -1)
	err = unpack(ctx, cmd, root, untar.Options{
		MaxEntries: orDefault(o.MaxEntries, maxEntries), MaxBytes: orDefault(o.MaxBytes, maxBytes),
		OutsideLinks: o.OutsideLinks, Keep: filter.keeps,
		Progress: func(name string, n int) { m.add(path.Join(src, name), n) },
	})
	if err == nil {
		return nil
	}
	// The sandbox's own complaint is the better one.
	if fe, ok := errors.AsType[*FSError](err); ok {
		return &fs.PathError{Op: "read", Path: src, Err: fe}
	}
	if ctx.Err() != nil {
		return api.ContextError(ctx)
	}
	return err
}

// unpack reads what packScript wrote, to its very end: only then is it certain
// that nothing is missing.
func unpack(ctx context.Context, r io.Reader, root *os.Root, opts untar.Options) error {
	gz, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, r))
	if err != nil {
		return truncated(err)
	}
	if err := untar.Extract(ctx, gz, root, opts); err != nil {
		return truncated(err)
	}
	switch _, err := r.Read(make([]byte, 1)); err {
	case io.EOF:
		return nil
	case nil:
		return errors.Join(ErrUnsafeArchive, errors.New("the sandbox sends more than an archive"))
	default:
		return err
	}
}

func truncated(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func orDefault[T int | int64](n, def T) T {
	if n == 0 {
		return def
	}
	return n
}

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
	return strings.HasPrefix(message, "sandbox not found") || strings.HasPrefix(message, "session not found") ||
		strings.HasPrefix(message, "named sandbox ")
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
