package api

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// errSource marks an upload whose source failed. A retry would fail too.
var errSource = errors.New("reading the upload's source")

// lazyBody opens its source at the first read, so that a request without a connection does
// not open it. A transport may close it during a Read.
type lazyBody struct {
	open func() (io.ReadCloser, error)
	sent *atomic.Int64 // counts the bytes read
	// opened, if not nil, is set at the first read.
	opened *atomic.Bool
	mu     sync.Mutex // guards the following
	rc     io.ReadCloser
	err    error
}

func (b *lazyBody) source() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rc == nil && b.err == nil {
		if b.opened != nil {
			b.opened.Store(true)
		}
		if b.rc, b.err = b.open(); b.err != nil {
			b.err = fmt.Errorf("%w: %w", errSource, b.err)
		}
	}
	return b.rc, b.err
}

func (b *lazyBody) Read(p []byte) (int, error) {
	rc, err := b.source()
	if err != nil {
		return 0, err
	}
	n, err := rc.Read(p)
	b.sent.Add(int64(n))
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", errSource, err)
	}
	return n, err
}

// WriteTo lets a source that implements io.WriterTo write without another copy.
func (b *lazyBody) WriteTo(w io.Writer) (int64, error) {
	rc, err := b.source()
	if err != nil {
		return 0, err
	}
	if wt, ok := rc.(io.WriterTo); ok {
		return wt.WriteTo(countingWriter{w, b.sent})
	}
	// The wrapper keeps io.Copy from calling WriteTo again.
	return io.Copy(w, struct{ io.Reader }{b})
}

func (b *lazyBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rc == nil {
		b.err = errors.New("api: body is closed")
		return nil
	}
	return b.rc.Close()
}

// countingWriter counts the bytes written.
type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (w countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n.Add(int64(n))
	return n, err
}
