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

// closeTimeout is how long Close waits for the server to receive what was written.
const closeTimeout = 5 * time.Second

// Conn is a connection to a program in a sandbox. It implements [net.Conn] with
// half-close, as [net.TCPConn] does, and is safe for concurrent use.
//
// Write returns when the data is in flight, not when the server has received it. At most
// 2 MiB are in flight in each direction. Read returns [io.EOF] when the server has closed
// its end, an error that matches [syscall.ECONNRESET] if it has reset the connection, and a
// [*github.com/go-vercel/sandbox/terminal.ShellError] if the sandbox was lost.
type Conn struct {
	link     *link
	id       uint32
	remote   addr
	ownsLink bool // no other connection uses the link

	writing sync.Mutex // serializes Write
	closing sync.Once

	mu          sync.Mutex
	connected   bool
	gone        bool // the helper has closed or refused it
	closed      bool
	writeClosed bool // CloseWrite was called
	// readable and writable wake Read and Write after a change.
	readable, writable signal

	in              bytes.Buffer
	inErr           error // what Read returns when in is empty
	allowed, window int   // bytes that the helper may still send, and the maximum of that
	read            int   // bytes read since the last frameCredit

	credit int   // bytes that Write may still send
	outErr error // what Write returns

	readDeadline, writeDeadline deadline
}

var _ net.Conn = (*Conn)(nil)

// signal notifies goroutines of a change. Its owner's mutex guards it.
type signal struct{ wake chan struct{} }

// changed returns a channel that is closed at the next notify.
func (s *signal) changed() <-chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

func (s *signal) notify() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// notifyAll wakes Read and Write. The caller holds mu.
func (c *Conn) notifyAll() {
	c.readable.notify()
	c.writable.notify()
}

// receive handles a frame from the sandbox. An error breaks the whole link.
func (c *Conn) receive(kind byte, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case frameData:
		defer c.readable.notify()
	case frameCredit:
		defer c.writable.notify()
	default:
		defer c.notifyAll()
	}
	switch kind {
	case frameOpen:
		c.connected = true
	case frameData:
		if c.allowed -= len(data); c.allowed < 0 {
			return errors.New("the helper in the sandbox sent more than its credit")
		}
		if !c.closed && c.inErr == nil {
			c.in.Write(data)
		}
	case frameCredit:
		c.credit = min(c.credit+int(binary.BigEndian.Uint32(data)), math.MaxInt32)
	case frameEOF:
		c.failLocked(io.EOF, nil)
	case frameReset:
		c.failLocked(syscall.ECONNRESET, syscall.ECONNRESET)
	case frameWriteClosed:
		c.failLocked(nil, syscall.EPIPE)
	case frameRefused, frameClose:
		c.gone = true
		c.link.remove(c)
	}
	return nil
}

// failLocked sets the errors of reading and writing, unless they are set.
func (c *Conn) failLocked(in, out error) {
	c.inErr = cmp.Or(c.inErr, in)
	c.outErr = cmp.Or(c.outErr, out)
}

// fail ends the connection because its link has failed.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := err
	if err == io.EOF {
		out = syscall.EPIPE
	}
	c.failLocked(err, out)
	c.gone = true
	c.notifyAll()
}

func (c *Conn) check() error { return entry.Made(c != nil && c.link != nil, "tunnel", "the Conn") }

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	for {
		c.mu.Lock()
		changed, expired := c.readable.changed(), c.readDeadline.done()
		n, err := 0, c.inErr
		switch {
		case c.closed:
			err = net.ErrClosed
		case isClosed(expired):
			err = os.ErrDeadlineExceeded
		case len(p) == 0:
			err = nil
		case c.in.Len() > 0:
			n, _ = c.in.Read(p) // can't fail
			c.grantLocked(n)
			err = nil
		case err == nil:
			c.mu.Unlock()
			select {
			case <-changed:
			case <-expired:
			}
			continue
		}
		c.mu.Unlock()
		if err == io.EOF {
			return 0, io.EOF
		}
		return n, c.opError("read", err)
	}
}

// grantLocked counts n bytes as read. Once a quarter of the window was read, it allows the
// helper to send that many more. It also enlarges the window if there is room.
func (c *Conn) grantLocked(n int) {
	if c.read += n; c.read < c.window/4 || c.inErr != nil {
		return
	}
	more := c.read
	if window := c.link.window(); window > c.window {
		more += window - c.window
		c.window = window
	}
	c.read = 0
	c.allowed += more
	c.link.sendControl(frameCredit, c.id, binary.BigEndian.AppendUint32(nil, uint32(more))) //nolint:gosec // below 2*maxWindow
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
	return n, c.opError("write", err)
}

// write sends at most one frame.
func (c *Conn) write(p []byte) (int, error) {
	for {
		c.mu.Lock()
		changed, expired := c.writable.changed(), c.writeDeadline.done()
		n, err := min(len(p), maxData, c.credit), c.outErr
		switch {
		case c.closed:
			err = net.ErrClosed
		case c.writeClosed:
			err = syscall.EPIPE
		case isClosed(expired):
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
			case c.link.out <- appendFrame(make([]byte, 0, headerSize+n), frameData, c.id, p[:n]):
				return n, nil
			case <-changed:
			case <-expired:
			case <-c.link.done:
			}
			c.mu.Lock()
			c.credit += n
			c.mu.Unlock()
			if isClosed(c.link.done) {
				c.fail(io.ErrClosedPipe) // if the link failed, its error is already set and stays
			}
			continue
		}
		select {
		case <-changed:
		case <-expired:
		}
	}
}

// opError wraps err like package net does.
func (c *Conn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: c.remote.Network(), Addr: c.remote, Err: err}
}

// CloseWrite closes the writing side: the server reads EOF. Reading continues.
func (c *Conn) CloseWrite() error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.opError("close", net.ErrClosed)
	case !c.writeClosed:
		c.writeClosed = true
		c.notifyAll()
		c.link.sendControl(frameEOF, c.id, nil)
	}
	return nil
}

// Close closes the connection. It waits up to five seconds until the server has received
// what was written. It may be called more than once and returns nil, unless the Conn is
// nil or zero.
func (c *Conn) Close() error {
	if err := c.check(); err != nil {
		return err
	}
	c.close(true)
	return nil
}

// abort closes the connection without waiting.
func (c *Conn) abort() { c.close(false) }

func (c *Conn) close(linger bool) {
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.in = bytes.Buffer{}
		c.notifyAll()
		c.mu.Unlock()
		if linger {
			c.linger()
		}
		c.mu.Lock()
		gone := c.gone
		c.mu.Unlock()
		if !gone {
			c.link.sendControl(frameAbort, c.id, nil)
			c.link.remove(c)
		}
		switch {
		case c.ownsLink && linger && gone:
			c.link.quit()
		case c.ownsLink:
			c.link.close()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.readDeadline.set(time.Time{}) // stops the timer
		c.writeDeadline.set(time.Time{})
	})
}

// linger waits until what was written is delivered, for closeTimeout at most.
func (c *Conn) linger() {
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	c.link.sendControl(frameClose, c.id, nil)
	for {
		c.mu.Lock()
		gone, changed := c.gone, c.readable.changed()
		c.mu.Unlock()
		if gone {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// LocalAddr returns the remote address, because this end has none.
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
	return c.setDeadline(t, func() *deadline { return &c.readDeadline })
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(t, func() *deadline { return &c.writeDeadline })
}

func (c *Conn) setDeadline(t time.Time, which func() *deadline) error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	which().set(t)
	c.notifyAll() // Read and Write still wait for the previous deadline
	return nil
}

// deadline is a point in time. Its owner's mutex guards it.
type deadline struct {
	timer   *time.Timer
	expired chan struct{} // closed when it has passed
}

func (d *deadline) set(t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	expired := make(chan struct{})
	d.timer, d.expired = nil, expired
	switch remaining := time.Until(t); {
	case t.IsZero():
	case remaining <= 0:
		close(expired)
	default:
		d.timer = time.AfterFunc(remaining, func() { close(expired) })
	}
}

// done returns a channel that is closed when the deadline has passed, or nil if none was set.
func (d *deadline) done() <-chan struct{} { return d.expired }

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
