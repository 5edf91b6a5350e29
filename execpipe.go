package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// pipeBuffer is how much an outputPipe holds: as much as a pipe of Linux, so
// that a program that reads one pipe to its end before the other works as long
// as it would there.
const pipeBuffer = 64 << 10

// outputPipe is what StdoutPipe and StderrPipe return.
type outputPipe struct {
	mu   sync.Mutex
	cond *sync.Cond
	buf  []byte
	// ended: no more will be written. closed: nobody reads any more.
	ended, closed bool
}

func newOutputPipe() *outputPipe {
	p := &outputPipe{}
	p.cond = sync.NewCond(&p.mu)
	return p
}

func (p *outputPipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 && !p.ended && !p.closed && len(b) > 0 {
		p.cond.Wait()
	}
	switch {
	case p.closed:
		return 0, &fs.PathError{Op: "read", Path: "|0", Err: os.ErrClosed}
	case len(p.buf) == 0 && p.ended:
		return 0, io.EOF
	}
	n := copy(b, p.buf)
	p.buf = p.buf[:copy(p.buf, p.buf[n:])]
	p.cond.Broadcast()
	return n, nil
}

// Write waits for room. io.ErrClosedPipe means that nobody reads any more.
func (p *outputPipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for len(b) > 0 {
		for len(p.buf) >= pipeBuffer && !p.closed {
			p.cond.Wait()
		}
		if p.closed {
			return written, io.ErrClosedPipe
		}
		n := min(len(b), pipeBuffer-len(p.buf))
		p.buf = append(p.buf, b[:n]...)
		b, written = b[n:], written+n
		p.cond.Broadcast()
	}
	return written, nil
}

// Close ends the reading; what is written later is thrown away.
func (p *outputPipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &fs.PathError{Op: "close", Path: "|0", Err: os.ErrClosed}
	}
	p.closed, p.buf = true, nil
	p.cond.Broadcast()
	return nil
}

// end tells the reader that no more will come.
func (p *outputPipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.cond.Broadcast()
}

// stdinPipe is what StdinPipe returns.
type stdinPipe struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newStdinPipe() *stdinPipe {
	r, w := io.Pipe()
	return &stdinPipe{r, w}
}

func (p *stdinPipe) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p *stdinPipe) Close() error                { return p.w.Close() }

// prefixSuffixSaver keeps the first and the last bytes that are written to it.
type prefixSuffixSaver struct {
	limit          int
	prefix, suffix []byte
	omitted        int64
}

func (s *prefixSuffixSaver) Write(b []byte) (int, error) {
	n := len(b)
	head := min(len(b), s.limit-len(s.prefix))
	s.prefix = append(s.prefix, b[:head]...)
	b = b[head:]
	if over := len(b) - s.limit; over > 0 {
		s.omitted += int64(over)
		b = b[over:]
	}
	if over := len(s.suffix) + len(b) - s.limit; over > 0 {
		s.omitted += int64(over)
		s.suffix = s.suffix[:copy(s.suffix, s.suffix[over:])]
	}
	s.suffix = append(s.suffix, b...)
	return n, nil
}

func (s *prefixSuffixSaver) bytes() []byte {
	if s.omitted == 0 {
		return append(s.prefix, s.suffix...)
	}
	var b bytes.Buffer
	b.Write(s.prefix)
	fmt.Fprintf(&b, "\n... omitting %d bytes ...\n", s.omitted)
	b.Write(s.suffix)
	return b.Bytes()
}
