package tunnel

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/entry"
)

// lingering is how long Close waits for the server to take what was written.
const lingering = 5 * time.Second

// Conn is a connection to a program in a sandbox. It implements [net.Conn] with
// half-close, as [net.TCPConn] does, and is safe for concurrent use.
//
// Write returns when the data is on its way, not when the server has it; no more
// than 2 MiB are on their way each way. Read
// returns [io.EOF] when the server has closed its end, an error that matches
// [syscall.ECONNRESET] if it has reset the connection, and a
// [*github.com/go-vercel/sandbox/terminal.ShellError] if the sandbox was lost.
type Conn struct {
	l      *link
	id     uint32
	remote addr
	sole   bool // the link is its own

	writing sync.Mutex // one Write after the other
	closing sync.Once

	mu       sync.Mutex
	answered bool // it is connected
	over     bool // the helper knows it no more
	closed   bool
	ended    bool // CloseWrite was called
	// What Read and what Write waits for has changed.
	readable, writable signal

	in              bytes.Buffer
	inErr           error // after in
	allowed, window int   // bytes that may come, and that much at most
	read            int   // bytes that were read since more was allowed

	credit int // bytes that may be sent
	outErr error

	readBy, writeBy deadline
}

var _ net.Conn = (*Conn)(nil)

// signal tells that something has changed. Its owner has a lock.
type signal struct{ wake chan struct{} }

// wait returns what is closed at the next change.
func (s *signal) wait() <-chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

func (s *signal) change() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// change wakes all. The lock is held.
func (c *Conn) change() {
	c.readable.change()
	c.writable.change()
}

// receive takes a frame from the sandbox. An error is one of all connections.
func (c *Conn) receive(kind byte, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case frameData:
		defer c.readable.change()
	case frameMore:
		defer c.writable.change()
	default:
		defer c.change()
	}
	switch kind {
	case frameOpen:
		c.answered = true
	case frameData:
		if c.allowed -= len(data); c.allowed < 0 {
			return errors.New("the helper in the sandbox sent more than it may")
		}
		if !c.closed && c.inErr == nil {
			c.in.Write(data)
		}
	case frameMore:
		c.credit = min(c.credit+int(binary.BigEndian.Uint32(data)), math.MaxInt32)
	case frameEnd:
		c.failLocked(io.EOF, nil)
	case frameReset:
		c.failLocked(syscall.ECONNRESET, syscall.ECONNRESET)
	case frameDeaf:
		c.failLocked(nil, syscall.EPIPE)
	case frameRefused, frameClose:
		c.over = true
		c.l.forget(c)
	}
	return nil
}

// failLocked ends reading and writing, where they are not over.
func (c *Conn) failLocked(in, out error) {
	if c.inErr == nil {
		c.inErr = in
	}
	if c.outErr == nil {
		c.outErr = out
	}
}

// fail ends the connection with its link.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := err
	if err == io.EOF {
		out = syscall.EPIPE
	}
	c.failLocked(err, out)
	c.over = true
	c.change()
}

func (c *Conn) check() error { return entry.Made(c != nil && c.l != nil, "tunnel", "the Conn") }

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	for {
		c.mu.Lock()
		changed, late := c.readable.wait(), c.readBy.passed()
		n, err := 0, c.inErr
		switch {
		case c.closed:
			err = net.ErrClosed
		case isClosed(late):
			err = os.ErrDeadlineExceeded
		case len(p) == 0:
			err = nil
		case c.in.Len() > 0:
			n, _ = c.in.Read(p) // of memory
			c.readLocked(n)
			err = nil
		case err == nil:
			c.mu.Unlock()
			select {
			case <-changed:
			case <-late:
			}
			continue
		}
		c.mu.Unlock()
		if err == io.EOF {
			return 0, io.EOF
		}
		return n, c.failure("read", err)
	}
}

// readLocked lets the sandbox send what has been read, and more if there is room
// for it.
func (c *Conn) readLocked(n int) {
	if c.read += n; c.read < c.window/4 || c.inErr != nil {
		return
	}
	more := c.read
	if window := c.l.window(); window > c.window {
		more += window - c.window
		c.window = window
	}
	c.read = 0
	c.allowed += more
	c.l.tell(frameMore, c.id, binary.BigEndian.AppendUint32(nil, uint32(more))) //nolint:gosec // below 2*maxWindow
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (n int, err error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	for first := true; err == nil && (n < len(p) || first); first = false {
		var sent int
		sent, err = c.write(p[n:])
		n += sent
	}
	return n, c.failure("write", err)
}

// write sends as much as a frame carries.
func (c *Conn) write(p []byte) (int, error) {
	for {
		c.mu.Lock()
		changed, late := c.writable.wait(), c.writeBy.passed()
		n, err := min(len(p), maxData, c.credit), c.outErr
		switch {
		case c.closed:
			err = net.ErrClosed
		case c.ended:
			err = syscall.EPIPE
		case isClosed(late):
			err = os.ErrDeadlineExceeded
		}
		if err == nil {
			c.credit -= n
		}
		c.mu.Unlock()
		if err != nil || len(p) == 0 {
			return 0, err
		}
		if n > 0 {
			select {
			case c.l.out <- appendFrame(make([]byte, 0, headSize+n), frameData, c.id, p[:n]):
				return n, nil
			case <-changed:
			case <-late:
			case <-c.l.done:
			}
			c.mu.Lock()
			c.credit += n
			c.mu.Unlock()
			if isClosed(c.l.done) {
				c.fail(io.ErrClosedPipe) // unless the link has said why
			}
			continue
		}
		select {
		case <-changed:
		case <-late:
		}
	}
}

// failure makes the error of an operation as package net has it.
func (c *Conn) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: c.remote.Network(), Addr: c.remote, Err: err}
}

// CloseWrite tells the server that nothing more is written. Reading continues.
func (c *Conn) CloseWrite() error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.failure("close", net.ErrClosed)
	case !c.ended:
		c.ended = true
		c.change()
		c.l.tell(frameEnd, c.id, nil)
	}
	return nil
}

// Close ends the connection. The server gets what was written before: Close
// waits for that, for five seconds at most. It may be called more than once and
// returns nil, unless the Conn is nil or zero.
func (c *Conn) Close() error {
	if err := c.check(); err != nil {
		return err
	}
	c.end(true)
	return nil
}

// abort ends the connection without waiting for anything.
func (c *Conn) abort() { c.end(false) }

func (c *Conn) end(linger bool) {
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.in = bytes.Buffer{}
		c.change()
		c.mu.Unlock()
		if linger {
			c.linger()
		}
		c.mu.Lock()
		over := c.over
		c.mu.Unlock()
		if !over {
			c.l.tell(frameAbort, c.id, nil)
			c.l.forget(c)
		}
		switch {
		case c.sole && linger && over:
			c.l.quit()
		case c.sole:
			c.l.close()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.readBy.set(time.Time{}) // which stops the timers
		c.writeBy.set(time.Time{})
	})
}

// linger waits until what was written is delivered.
func (c *Conn) linger() {
	timer := time.NewTimer(lingering)
	defer timer.Stop()
	c.l.tell(frameClose, c.id, nil)
	for {
		c.mu.Lock()
		over, changed := c.over, c.readable.wait()
		c.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// LocalAddr returns the address of the other end, since this one has none.
func (c *Conn) LocalAddr() net.Addr { return c.RemoteAddr() }

// RemoteAddr returns an address whose String is the sandbox's name and the port,
// as in "web:5432".
func (c *Conn) RemoteAddr() net.Addr {
	if c == nil {
		return addr{}
	}
	return c.remote
}

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	return cmp.Or(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.by(t, func() *deadline { return &c.readBy })
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.by(t, func() *deadline { return &c.writeBy })
}

func (c *Conn) by(t time.Time, which func() *deadline) error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.failure("set", net.ErrClosed)
	}
	which().set(t)
	c.change() // who waits for the last one
	return nil
}

// deadline is a point of time. Its owner has a lock.
type deadline struct {
	timer *time.Timer
	late  chan struct{} // closed when it has passed
}

func (d *deadline) set(t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	late := make(chan struct{})
	d.timer, d.late = nil, late
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		close(late)
	default:
		d.timer = time.AfterFunc(left, func() { close(late) })
	}
}

// passed returns what is closed when it has passed; nil if there is none.
func (d *deadline) passed() <-chan struct{} { return d.late }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// addr is a port of a sandbox.
type addr struct {
	name string
	port int
}

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return net.JoinHostPort(a.name, strconv.Itoa(a.port)) }
