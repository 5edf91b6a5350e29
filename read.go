package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
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
	// NoSizeCheck omits the request for the file's size. If a proxy cuts the response short,
	// the part that arrived is then taken for the whole file.
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
	check *sizeCheck // compares the content with the file's size at the end

	event    api.Span    // for observers
	reported atomic.Bool // the event has ended
	closed   atomic.Bool
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

// joinCwd resolves a relative path without cleaning it, as the API does.
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
	if e.errorKind() == api.NotFound {
		if !api.FileMissing(e.Code, e.Message) {
			return err
		}
		return &FSError{errno: syscall.ENOENT, Message: e.Message}
	}
	return apiFileError(err)
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

// Read implements [io.Reader]. If fewer bytes arrive than the sandbox says that the file
// has, the error at the end matches [io.ErrUnexpectedEOF].
func (r *FileReader) Read(p []byte) (int, error) {
	if r == nil || r.body == nil {
		return 0, errZeroFile
	}
	n, err := r.body.Read(p)
	r.read += int64(n)
	r.meter.add(r.name, n)
	if err == io.EOF {
		if short := r.check.compare(r.read); short != nil {
			err = short
		} else if r.read < r.size {
			err = io.ErrUnexpectedEOF
		}
	}
	switch {
	case err == io.EOF:
		r.finishEvent(nil)
	case err != nil:
		if r.closed.Load() {
			err = fs.ErrClosed
		}
		err = &fs.PathError{Op: "read", Path: r.name, Err: err}
		r.finishEvent(err)
	}
	return n, err
}

// finishEvent ends the event of the transfer.
func (r *FileReader) finishEvent(err error) {
	if !r.reported.Swap(true) {
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
	r.check.stop()
	defer r.finishEvent(nil)
	return r.body.Close()
}

// sizeCheck compares the content of a file with its size, which it requests while the
// content arrives. The announced size of a response proves nothing: the service announces
// none, and a caching proxy announces the size that it has received. A nil sizeCheck checks
// nothing.
type sizeCheck struct {
	ctx    context.Context
	cancel context.CancelFunc
	stat   func() (int64, error)
	enough int64 // content of this length is complete without a request
	short  bool  // the last comparison found too few bytes

	// lock guards the fields below: it is full while a goroutine requests the size. Waiting
	// for a sync.Once instead would stop the clock of a caller's synctest bubble.
	lock  chan struct{}
	known bool // size and err are set
	size  int64
	err   error
}

// newSizeCheck prepares to request the size of the file at name, whose content r transfers.
// It returns nil for content that marks its own end, and for files of the kernel, whose
// size has no meaning.
func newSizeCheck(ctx context.Context, t target, r *FileReader, name string, enough int64) *sizeCheck {
	clean := path.Clean(name)
	if _, marked := r.body.(encodedBody); marked || strings.HasPrefix(clean, "/proc/") || strings.HasPrefix(clean, "/sys/") {
		return nil
	}
	l := &sizeCheck{ctx: ctx, enough: enough, lock: make(chan struct{}, 1)}
	ctx, l.cancel = context.WithCancel(ctx)
	l.stat = func() (int64, error) {
		if ctx.Err() != nil {
			return -1, ctx.Err() // closed before the request
		}
		info, err := (&FileSystem{t: t}).Stat(ctx, name)
		switch {
		case err == nil && info.Mode().IsRegular():
			return info.Size(), nil
		case hasNoSize(err):
			return -1, nil
		}
		return -1, err
	}
	return l
}

// query requests the size unless it is known, and returns the same result to all callers.
func (l *sizeCheck) query() (int64, error) {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if !l.known {
		l.size, l.err = l.stat()
		l.known = true
	}
	return l.size, l.err
}

// renew requests the size again if too few bytes have arrived, because the file may have
// shrunk. A transfer that begins after that is not shorter, and it may be longer.
func (l *sizeCheck) renew() {
	if l != nil && l.short {
		l.short = false
		l.lock <- struct{}{}
		l.known = false
		<-l.lock
		_, _ = l.query() // compare gets the same result
	}
}

// start requests the size in the background.
func (l *sizeCheck) start() *sizeCheck {
	if l != nil {
		go func() { _, _ = l.query() }() // compare gets the same result
	}
	return l
}

// hasNoSize reports whether the result of a stat means that there is no size to compare.
// Without an error, the file is not a regular one. With an error, the sandbox or the API
// must say why: the file is gone, there is no program stat or a different one, or commands
// are not permitted. The end of the session does not count, because it also ends the
// content.
func hasNoSize(err error) bool {
	if _, said := errors.AsType[*FSError](err); said || err == nil {
		return true
	}
	if e, refused := errors.AsType[*APIError](err); refused {
		switch e.errorKind() {
		case api.Refused, api.Unauthorized, api.QuotaExceeded, api.NoProgram, api.NoDirectory:
			return true
		}
	}
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, coreutils.ErrOutput)
}

// compare returns a brokenError if the file has more than n bytes, and another error if
// its size can't be determined.
func (l *sizeCheck) compare(n int64) error {
	if l == nil || n >= l.enough {
		return nil
	}
	size, err := l.query()
	switch {
	case l.ctx.Err() != nil:
		return api.ContextError(l.ctx)
	case err != nil:
		return fmt.Errorf("%d bytes have arrived of an unknown number: %w", n, err)
	case n < size:
		l.short = true
		return brokenError{fmt.Errorf("%d of %d bytes have arrived: %w", n, size, io.ErrUnexpectedEOF)}
	}
	return nil
}

// stop cancels the request for the size and waits for it to end.
func (l *sizeCheck) stop() {
	if l != nil {
		l.cancel()
		_, _ = l.query()
	}
}
