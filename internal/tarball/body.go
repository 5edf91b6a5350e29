package tarball

import (
	"errors"
	"io"
	"iter"
	"sync"
	"time"
)

var errClosed = errors.New("tarball: body is closed")

// Body is a gzipped tarball that is made while it is read. Its goroutines read the sources
// and compress. They end when the body was read to its end or closed. Only one goroutine
// at a time may call Read and WriteTo; any may call Close.
type Body struct {
	entries iter.Seq2[Entry, error]
	start   sync.Once
	c       *compressor
	rest    []byte // of cur
	cur     *block

	closing sync.Once
	quit    chan struct{} // closed by Close
	done    chan struct{} // closed when all goroutines have ended
	err     error         // of the producer; set before the queue is closed

	mu     sync.Mutex
	source io.Closer // the source being read
}

// New returns a body with the given entries, which it iterates over once.
// Nothing is opened before the first read.
func New(entries iter.Seq2[Entry, error]) *Body {
	b := &Body{entries: entries, quit: make(chan struct{}), done: make(chan struct{})}
	b.c = newCompressor(b.quit)
	return b
}

func (b *Body) run() {
	b.start.Do(func() {
		go func() {
			defer close(b.done)
			b.err = b.produce()
			close(b.c.queue)
			b.c.pending.Wait()
		}()
	})
}

// next makes the next compressed block the current one.
func (b *Body) next() error {
	b.run()
	if b.cur != nil {
		blockPool.Put(b.cur)
		b.cur, b.rest = nil, nil
	}
	select {
	case <-b.quit:
		return errClosed
	default:
	}
	select {
	case blk, ok := <-b.c.queue:
		if !ok {
			if b.err != nil {
				return b.err
			}
			return io.EOF
		}
		<-blk.done
		if blk.err != nil {
			return blk.err
		}
		b.cur, b.rest = blk, blk.out.b
		return nil
	case <-b.quit:
		return errClosed
	}
}

// Read implements io.Reader. It returns the errors of sources.
func (b *Body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if err := b.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// WriteTo writes the rest, a block at a time and without copying.
func (b *Body) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if len(b.rest) > 0 {
			k, err := w.Write(b.rest)
			n += int64(k)
			b.rest = b.rest[k:]
			if err != nil {
				return n, err
			}
		}
		if err := b.next(); err != nil {
			if err == io.EOF {
				err = nil
			}
			return n, err
		}
	}
}

// closeGrace is how long Close waits for the read of a source, which usually
// ends at once.
const closeGrace = 100 * time.Millisecond

// Close stops reading the sources. If a source does not return from Read in time, Close
// closes it and returns; see Done.
func (b *Body) Close() error {
	b.closing.Do(func() {
		close(b.quit)
		b.start.Do(func() { close(b.done) })
		timer := time.NewTimer(closeGrace)
		defer timer.Stop()
		select {
		case <-b.done:
		case <-timer.C:
			_ = b.closeSource() // its read fails, which no longer matters
		}
	})
	return nil
}

// Done returns a channel that is closed when the sources are no longer used.
func (b *Body) Done() <-chan struct{} { return b.done }

// openSource registers a source, whose reading Close may have to end.
func (b *Body) openSource(c io.Closer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source = c
}

// closeSource closes the source that is being read, once.
func (b *Body) closeSource() error {
	b.mu.Lock()
	c := b.source
	b.source = nil
	b.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
}
