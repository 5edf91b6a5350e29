package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/observe"
)

// OpenOptions are the options of [FileSystem.Open]. The zero value is ready to
// use.
type OpenOptions struct {
	// Cwd is the directory in the sandbox that a relative path is resolved in.
	// Empty means the working directory of the session, or the home directory
	// of the user.
	Cwd string
	// NoSizeCheck leaves out the request for the file's size. A response that
	// something between the sandbox and this program cuts short is then taken
	// for the whole file.
	NoSizeCheck bool
}

// FileReader reads a file of a sandbox, and must be closed. It is not safe for
// concurrent use.
type FileReader struct {
	name  string
	body  io.ReadCloser
	size  int64
	read  int64
	meter *meter
	// length is what the content is compared with at its end; nil for nothing.
	length *length

	// The event for observers; over is set once they have it.
	event  api.Span
	over   atomic.Bool
	closed atomic.Bool
}

// openFile starts to read a file.
func openFile(ctx context.Context, t target, name, cwd string, progress func(Progress)) (*FileReader, error) {
	c, err := enter(ctx, t)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if err := checkPath("open", name); err != nil {
		return nil, err
	}
	ctx, e := c.beginEvent(ctx, t, observe.Event{Kind: observe.Download})
	var (
		body io.ReadCloser
		size int64
	)
	if utf8.ValidString(name) && utf8.ValidString(cwd) {
		body, size, err = t.openFile(ctx, name, cwd)
	} else {
		body, size, err = openEncoded(ctx, t, joinCwd(cwd, name))
	}
	if err != nil {
		endEvent(&e, err)
		return nil, &fs.PathError{Op: "open", Path: name, Err: missingFile(err)}
	}
	return &FileReader{name: name, body: body, size: size, meter: newMeter(progress, size), event: e}, nil
}

// joinCwd leaves a path unchanged where possible, as the API would.
func joinCwd(cwd, name string) string {
	if cwd == "" || strings.HasPrefix(name, "/") {
		return name
	}
	return cwd + "/" + name
}

// missingFile converts a 404 to fs.ErrNotExist, unless the API says that it was
// the sandbox or the session that was not found.
func missingFile(err error) error {
	e, ok := errors.AsType[*APIError](err)
	if !ok {
		return err
	}
	if e.judged() == api.NotFound {
		if !api.FileMissing(e.Code, e.Message) {
			return err
		}
		return &FSError{errno: syscall.ENOENT, Message: e.Message}
	}
	return fileReason(err)
}

// Size returns the length of the file in bytes, or -1 if the sandbox did not
// report it.
func (r *FileReader) Size() int64 {
	if r == nil {
		return -1
	}
	return r.size
}

var errZeroFile = fmt.Errorf("sandbox: %w: the file was not opened by FileSystem.Open or Create", ErrInvalid)

// Read implements [io.Reader]. If less of the file has come than the sandbox
// says it has, the error at its end matches [io.ErrUnexpectedEOF].
func (r *FileReader) Read(p []byte) (int, error) {
	if r == nil || r.body == nil {
		return 0, errZeroFile
	}
	n, err := r.body.Read(p)
	r.read += int64(n)
	r.meter.add(r.name, n)
	if err == io.EOF {
		if short := r.length.check(r.read); short != nil {
			err = short
		} else if r.read < r.size {
			err = io.ErrUnexpectedEOF
		}
	}
	switch {
	case err == io.EOF:
		r.ended(nil)
	case err != nil:
		if r.closed.Load() {
			err = fs.ErrClosed
		}
		err = &fs.PathError{Op: "read", Path: r.name, Err: err}
		r.ended(err)
	}
	return n, err
}

// ended tells that the transfer is over.
func (r *FileReader) ended(err error) {
	if !r.over.Swap(true) {
		r.event.Received = r.read
		endEvent(&r.event, err)
	}
}

// transferBuffers are larger than a connection's read buffer, so that content
// bypasses it.
var transferBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// WriteTo implements [io.WriterTo], so that [io.Copy] reads in larger pieces.
func (r *FileReader) WriteTo(w io.Writer) (int64, error) {
	buf := transferBuffers.Get().(*[256 << 10]byte)
	defer transferBuffers.Put(buf)
	// The wrappers hide WriteTo and ReadFrom, which would not use the buffer.
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf[:])
}

// Close ends the transfer, and the request for the file's size. It may be called
// more than once.
func (r *FileReader) Close() error {
	if r == nil || r.body == nil {
		return errZeroFile
	}
	r.closed.Store(true)
	r.length.stop()
	defer r.ended(nil)
	return r.body.Close()
}

// length is the size of a file, requested while the content is transferred. That
// which a response reports proves nothing: the service reports none, and a proxy
// that stores what it passes on that of what has come to it. It is nil for files
// that need none.
type length struct {
	ctx    context.Context
	cancel context.CancelFunc
	answer chan reported
	known  reported
	// earlier says that known was not requested during this transfer: the file
	// may have been truncated since.
	earlier bool
	ask     func(context.Context) reported
	// count returns the number of bytes that reading the file gives.
	count func() (int64, error)
}

// reported is what stat says of a file.
type reported struct {
	size int64 // -1 if the sandbox does not say
	// empty says that the file has no blocks on a disk: it consists of holes, or
	// its content is made when it is read, as below /sys, where the size says
	// little about it.
	empty bool
	// err is why nothing is known, if that is not the sandbox's own word.
	err error
}

// newLength asks for the size of the file at path, the content of which r has
// begun to transfer.
func newLength(ctx context.Context, t target, r *FileReader, path string) *length {
	l := lengthless(ctx, t, r, path)
	if l == nil {
		return nil
	}
	asked, cancel := context.WithCancel(ctx)
	l.cancel, l.known = cancel, reported{size: -1}
	go func() {
		l.answer <- l.ask(asked)
		close(l.answer)
	}()
	return l
}

// lengthOf is newLength for a file whose size is known from before.
func lengthOf(ctx context.Context, t target, r *FileReader, path string, info fs.FileInfo) *length {
	l := lengthless(ctx, t, r, path)
	if l != nil {
		l.known, l.earlier = reportedOf(info), true
		close(l.answer)
	}
	return l
}

// lengthless returns a length without its size, or nil if the content says
// itself where it ends, or the kernel makes it up.
func lengthless(ctx context.Context, t target, r *FileReader, name string) *length {
	if _, ends := r.body.(encodedBody); ends {
		return nil
	}
	if clean := path.Clean(name); strings.HasPrefix(clean, "/proc/") || strings.HasPrefix(clean, "/sys/") {
		return nil
	}
	return &length{
		ctx: ctx, cancel: func() {}, answer: make(chan reported, 1),
		ask:   func(ctx context.Context) reported { return askLength(ctx, t, name) },
		count: func() (int64, error) { return countBytes(ctx, t, name) },
	}
}

func reportedOf(info fs.FileInfo) reported {
	return reported{size: info.Size(), empty: info.(*fileInfo).stat.Blocks == 0}
}

func askLength(ctx context.Context, t target, path string) reported {
	info, err := (&FileSystem{t: t}).Stat(ctx, path)
	if err == nil && info.Mode().IsRegular() {
		return reportedOf(info)
	}
	if cannotTell(err) {
		err = nil
	}
	return reported{size: -1, err: err}
}

// cannotTell reports whether err is the word of the sandbox, or the API's own,
// that there is no size to be had: the file is gone, there is no program stat or
// a different one, or commands are not permitted. That a session has ended is
// not among them, for with it ends the content.
func cannotTell(err error) bool {
	if _, said := errors.AsType[*FSError](err); said {
		return true
	}
	if e, refused := errors.AsType[*APIError](err); refused {
		switch e.judged() {
		case api.Refused, api.Unauthorized, api.QuotaExceeded, api.NoProgram, api.NoDirectory:
			return true
		}
	}
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, coreutils.ErrOutput)
}

// countBytes reads the file in the sandbox, and returns how long it is.
func countBytes(ctx context.Context, t target, path string) (int64, error) {
	name, args := coreutils.Carry("sh", []string{"-c", `cat -- "$1" | wc -c`, "sh", path})
	done, err := program{name: name, args: args, paths: []string{path}}.run(ctx, t)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(done.Stdout), 10, 64)
}

// check returns an error if the content is shorter than the reported size, or if
// that is unknown. It can be shorter by chance, once, for a file that grows.
func (l *length) check(n int64) error {
	if l == nil {
		return nil
	}
	if said, first := <-l.answer; first {
		l.known = said
	}
	if l.ctx.Err() == nil && (l.known.err != nil || l.earlier && n < l.known.size) {
		l.known, l.earlier = l.ask(l.ctx), false
	}
	switch {
	case l.ctx.Err() != nil:
		return api.ContextError(l.ctx)
	case l.known.err != nil:
		return brokenError{fmt.Errorf("%d bytes have arrived of an unknown number: %w", n, l.known.err)}
	case n >= l.known.size:
		return nil
	case l.known.empty:
		if really, err := l.count(); err == nil && n == really {
			l.known = reported{size: n}
			return nil
		}
	}
	return brokenError{fmt.Errorf("%d of %d bytes have arrived: %w", n, l.known.size, io.ErrUnexpectedEOF)}
}

// isShort reports whether err says that less has come than there is.
func (l *length) isShort(err error) bool {
	return l != nil && l.known.err == nil && errors.Is(err, errBroken)
}

// stop waits for the request for the size to end.
func (l *length) stop() {
	if l != nil {
		l.cancel()
		for range l.answer {
		}
	}
}
