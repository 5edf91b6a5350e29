// Package tarball creates gzipped tarballs while they are sent: in one pass, with constant
// memory, and on several cores.
package tarball

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"
	"time"
)

// Entry is a file, directory or symbolic link in a tarball.
type Entry struct {
	// Name is relative to the root, slash-separated and without a leading
	// slash.
	Name string
	// Label is the name in errors about the source; empty means Name.
	Label string
	// Mode holds the type and the permissions, which are used unchanged.
	Mode fs.FileMode
	// Size is the length of a file's content. The error of a source of another
	// length matches ErrChanged.
	Size int64
	// ModTime is kept to the second; zero is the epoch.
	ModTime time.Time
	// Linkname is what a symbolic link points to.
	Linkname string
	// Open returns the content of a file; nil means an empty file. The result is closed. If a
	// Read of it does not return after the body was closed, it is closed during that Read.
	Open func() (io.ReadCloser, error)
	// Fault, if not nil, handles an error of the source. If it returns an error, the
	// archive fails. Otherwise the archive continues: a file that can't be opened is
	// missing, one that is longer has Size bytes, and one that ended early is added again
	// with its actual length, because the last entry of a name counts. Fault may be called
	// more than once for a file.
	Fault func(error) error
	// Written, if not nil, is called once the entry is in the archive.
	Written func()
}

// ErrChanged matches the error of a source whose content is not as stated.
// If it ended early, the error also matches [io.ErrUnexpectedEOF].
var ErrChanged = errors.New("the content has changed")

// Opener returns a function that returns a new body of the same entries for
// each attempt. It waits, as long as ctx allows, until the previous body no
// longer uses the sources, which may be the same readers.
func Opener(ctx context.Context, entries func() iter.Seq2[Entry, error]) func() (io.ReadCloser, error) {
	var last *Body
	return func() (io.ReadCloser, error) {
		if last != nil {
			_ = last.Close()
			select {
			case <-last.Done():
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		last = New(entries())
		return last, nil
	}
}

var copyBuffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// produce writes all entries to the compressor.
func (b *Body) produce() error {
	tw := tar.NewWriter(b.c)
	buf := copyBuffers.Get().(*[128 << 10]byte)
	defer copyBuffers.Put(buf)
	for e, err := range b.entries {
		if err != nil {
			return err
		}
		select {
		case <-b.quit:
			return errClosed
		default:
		}
		h, err := header(&e)
		if err != nil {
			return err
		}
		if err := b.addEntry(tw, h, &e, buf[:]); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return b.c.Close()
}

func header(e *Entry) (*tar.Header, error) {
	h := &tar.Header{Name: e.Name, Mode: int64(e.Mode.Perm()), ModTime: e.ModTime.Truncate(time.Second)}
	if e.Mode&fs.ModeSetuid != 0 {
		h.Mode |= 0o4000
	}
	if e.Mode&fs.ModeSetgid != 0 {
		h.Mode |= 0o2000
	}
	if e.Mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch e.Mode.Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	case fs.ModeDir:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Linkname
	default:
		return nil, fmt.Errorf("tarball: %q is neither a file nor a directory nor a symbolic link", e.Name)
	}
	if e.Name == "" || e.Size < 0 {
		return nil, fmt.Errorf("tarball: entry %q of %d bytes is not possible", e.Name, e.Size)
	}
	return h, nil
}

// addEntry writes an entry with its content.
func (b *Body) addEntry(tw *tar.Writer, h *tar.Header, e *Entry, buf []byte) error {
	fault := func(err error) error {
		if e.Fault == nil || errors.Is(err, errClosed) {
			return err
		}
		return e.Fault(err)
	}
	for {
		var rc io.ReadCloser
		if h.Typeflag == tar.TypeReg && e.Open != nil {
			var err error
			if rc, err = e.Open(); err != nil {
				return fault(fmt.Errorf("opening %q: %w", cmp.Or(e.Label, e.Name), err))
			}
			b.openSource(rc)
		}
		if err := tw.WriteHeader(h); err != nil {
			_ = b.closeSource() // nothing was read from it
			return fmt.Errorf("tarball: %q: %w", e.Name, err)
		}
		n, err := b.writeContent(tw, h, rc, cmp.Or(e.Label, e.Name), buf)
		if err != nil {
			if err := fault(err); err != nil {
				return err
			}
		}
		if n == h.Size {
			if e.Written != nil {
				e.Written()
			}
			return nil
		}
		if _, err := io.CopyN(tw, zeros{}, h.Size-n); err != nil {
			return err
		}
		h.Size = n
	}
}

// writeContent copies a file's content and returns its length.
func (b *Body) writeContent(tw *tar.Writer, h *tar.Header, rc io.ReadCloser, name string, buf []byte) (n int64, err error) {
	if rc != nil {
		n, err = copyContent(tw, rc, buf)
		if closeErr := b.closeSource(); err == nil {
			err = closeErr
		}
	}
	switch {
	case errors.Is(err, errClosed):
		return n, errClosed
	case errors.Is(err, tar.ErrWriteTooLong):
		return h.Size, fmt.Errorf("%q has more content than the %d bytes that were stated: %w", name, h.Size, ErrChanged)
	case err != nil:
		return n, fmt.Errorf("reading %q: %w", name, err)
	case n < h.Size:
		return n, fmt.Errorf("%q ended after %d of the %d bytes that were stated: %w: %w", name, n, h.Size, ErrChanged, io.ErrUnexpectedEOF)
	}
	return n, nil
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// copyContent lets readers of memory write directly, without a copy. A file
// would allocate a buffer to do so.
func copyContent(w io.Writer, r io.Reader, buf []byte) (int64, error) {
	w = struct{ io.Writer }{w}
	if _, ok := r.(*os.File); ok {
		r = struct{ io.Reader }{r}
	}
	return io.CopyBuffer(w, r, buf)
}
