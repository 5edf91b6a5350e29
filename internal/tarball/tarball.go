// Package tarball makes gzipped tarballs as they are sent: in one pass, in
// constant memory, and on several cores.
package tarball

import (
	"archive/tar"
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
	// Mode holds the type and the permissions, which are used unchanged.
	Mode fs.FileMode
	// Size is the length of a file's content. A source of another length is an
	// error.
	Size int64
	// ModTime is kept to the second; zero is the epoch.
	ModTime time.Time
	// Linkname is what a symbolic link points to.
	Linkname string
	// Open returns the content of a file; nil means an empty file. It is called
	// once for each body. The result is closed, possibly during a Read that
	// does not return after the body was closed.
	Open func() (io.ReadCloser, error)
}

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
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("tarball: %q: %w", e.Name, err)
		}
		if h.Typeflag == tar.TypeReg {
			if err := b.content(tw, &e, buf[:]); err != nil {
				return err
			}
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

// content copies a file's content.
func (b *Body) content(tw *tar.Writer, e *Entry, buf []byte) error {
	var n int64
	if e.Open != nil {
		rc, err := e.Open()
		if err != nil {
			return fmt.Errorf("opening %q: %w", e.Name, err)
		}
		b.openSource(rc)
		n, err = copyContent(tw, rc, buf)
		if closeErr := b.closeSource(); err == nil {
			err = closeErr
		}
		switch {
		case errors.Is(err, errClosed):
			return errClosed
		case errors.Is(err, tar.ErrWriteTooLong):
			return fmt.Errorf("%q has more content than the %d bytes that were stated", e.Name, e.Size)
		case err != nil:
			return fmt.Errorf("reading %q: %w", e.Name, err)
		}
	}
	if n < e.Size {
		return fmt.Errorf("%q ended after %d of the %d bytes that were stated: %w", e.Name, n, e.Size, io.ErrUnexpectedEOF)
	}
	return nil
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
