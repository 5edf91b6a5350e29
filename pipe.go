package sandbox

import (
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
)

// pipeBuffer is the capacity of a pipe. It is that of a pipe on Linux, so that
// a program that reads one pipe to its end before the other works for as long
// as it would there.
const pipeBuffer = 64 << 10

// pipe is what StdoutPipe and StderrPipe return, and what StdinPipe fills.
type pipe struct {
	mu   sync.Mutex
	cond *sync.Cond
	buf  []byte
	// ended: no more will be written. closed: there is no reader.
	ended, closed bool
}

func newPipe() *pipe {
	p := &pipe{}
	p.cond = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) Read(b []byte) (int, error) {
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

// Write waits for room. io.ErrClosedPipe means that the reader was closed.
func (p *pipe) Write(b []byte) (int, error) {
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

// Close ends the reading; later writes are discarded.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &fs.PathError{Op: "close", Path: "|0", Err: os.ErrClosed}
	}
	p.closed, p.buf = true, nil
	p.cond.Broadcast()
	return nil
}

// end marks the end of the data.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.cond.Broadcast()
}

// stdinPipe is what StdinPipe returns.
type stdinPipe struct {
	p      *pipe
	closed atomic.Bool
}

func (s *stdinPipe) Write(b []byte) (int, error) {
	if s.closed.Load() {
		return 0, &fs.PathError{Op: "write", Path: "|1", Err: os.ErrClosed}
	}
	return s.p.Write(b)
}

// Close ends the input. As in package exec it may be called more than once.
func (s *stdinPipe) Close() error {
	s.closed.Store(true)
	s.p.end()
	return nil
}
