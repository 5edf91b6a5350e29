package tarball

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"sync"

	"github.com/klauspost/compress/flate"
)

const (
	// level compresses almost as well as zlib's default in a fifth of the time, and skips
	// incompressible data quickly.
	level = 2
	// blockSize is the number of bytes to compress at a time. Larger blocks do not compress
	// noticeably better.
	blockSize = 512 << 10
	// maxBlocks limits how many blocks are compressed at the same time, and
	// thus memory use.
	maxBlocks = 8
)

// compressor compresses its input to one gzip stream. It compresses several blocks at the
// same time, which leave the queue in order.
//
// Each block ends at a byte boundary and refers to nothing before itself, so the blocks
// are independent. Together they are an ordinary gzip stream.
type compressor struct {
	queue   chan *block
	quit    <-chan struct{}
	pending sync.WaitGroup // blocks that are being compressed
	cur     *block
	crc     uint32
	size    uint32
	started bool
}

func newCompressor(quit <-chan struct{}) *compressor {
	return &compressor{queue: make(chan *block, min(runtime.GOMAXPROCS(0), maxBlocks)), quit: quit}
}

// block is a part of the stream.
type block struct {
	in   []byte
	out  appender
	done chan struct{} // out is ready
	err  error
}

type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

var (
	blockPool   = sync.Pool{New: func() any { return &block{in: make([]byte, 0, blockSize)} }}
	deflatePool = sync.Pool{New: func() any {
		w, _ := flate.NewWriter(nil, level) // fails for a level that does not exist
		return w
	}}
)

// Write adds p to the stream. It fails only when the body is closed.
func (c *compressor) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if c.cur == nil {
			c.cur = blockPool.Get().(*block)
			c.cur.in = c.cur.in[:0]
		}
		k := copy(c.cur.in[len(c.cur.in):blockSize], p)
		c.cur.in = c.cur.in[:len(c.cur.in)+k]
		n, p = n+k, p[k:]
		if len(c.cur.in) == blockSize {
			if err := c.push(false); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Close ends the stream.
func (c *compressor) Close() error {
	if c.cur == nil {
		c.cur = blockPool.Get().(*block)
		c.cur.in = c.cur.in[:0]
	}
	return c.push(true)
}

// gzipHeader is the header for deflate without name and time, from an unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// push queues the current block for compression.
func (c *compressor) push(last bool) error {
	b := c.cur
	c.cur = nil
	c.crc = crc32.Update(c.crc, crc32.IEEETable, b.in)
	c.size += uint32(len(b.in))
	b.out.b, b.err, b.done = b.out.b[:0], nil, make(chan struct{})
	if !c.started {
		c.started = true
		b.out.b = append(b.out.b, gzipHeader...)
	}
	select {
	case c.queue <- b:
	case <-c.quit:
		return errClosed
	}
	crc, size := c.crc, c.size
	c.pending.Go(func() {
		defer close(b.done)
		w := deflatePool.Get().(*flate.Writer)
		defer deflatePool.Put(w)
		w.Reset(&b.out)
		if _, b.err = w.Write(b.in); b.err != nil {
			return
		}
		if !last {
			b.err = w.Flush()
			return
		}
		b.err = w.Close()
		b.out.b = binary.LittleEndian.AppendUint32(b.out.b, crc)
		b.out.b = binary.LittleEndian.AppendUint32(b.out.b, size)
	})
	return nil
}
