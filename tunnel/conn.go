package tunnel

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/entry"
)

// lingering is how long Close waits for the server to take what was written.
const lingering = 5 * time.Second

// Conn is a connection to a program in a sandbox. It implements [net.Conn] with
// half-close, as [net.TCPConn] does, and is safe for concurrent use. Two
// goroutines belong to it until Close.
//
// Write returns when the data is on its way, not when the server has it. Read
// returns [io.EOF] when the server has closed its end, an error that matches
// [syscall.ECONNRESET] if it has reset the connection, and a
// [*github.com/go-vercel/sandbox.ShellError] if the sandbox was lost.
type Conn struct {
	stream io.ReadWriteCloser
	hangUp context.CancelCauseFunc
	framed bool
	remote addr

	// Two pipes, of which these are our ends: the one that Read reads from and
	// the one that Write writes to.
	in, out net.Conn
	// Why they have ended, set before they do.
	inErr, outErr atomic.Pointer[error]

	closed         atomic.Bool
	closing        sync.Once
	sent, received chan struct{} // the goroutines have ended
}

var _ net.Conn = (*Conn)(nil)

func newConn(s io.ReadWriteCloser, framed bool, hangUp context.CancelCauseFunc, remote addr) *Conn {
	c := &Conn{stream: s, framed: framed, hangUp: hangUp, remote: remote, sent: make(chan struct{}), received: make(chan struct{})}
	in, feed := net.Pipe()
	out, drain := net.Pipe()
	c.in, c.out = in, out
	go c.receive(feed)
	go c.send(drain)
	return c
}

// receive passes on what comes from the sandbox, until there is no more. What
// comes after Close is read and dropped, so that the helper can end.
func (c *Conn) receive(feed net.Conn) {
	defer close(c.received)
	defer feed.Close()
	end := func(err error) {
		c.inErr.CompareAndSwap(nil, &err)
		_ = feed.Close() // always nil
	}
	if !c.framed {
		_, err := io.Copy(feed, c.stream)
		if err == nil {
			err = io.EOF
		}
		end(err)
		return
	}
	r := bufio.NewReaderSize(c.stream, maxData)
	buf := make([]byte, maxData)
	for {
		kind, data, err := readFrame(r, buf)
		if err != nil {
			if err == io.EOF { // the helper was killed
				err = io.ErrUnexpectedEOF
			}
			end(err)
			c.stopWriting(err)
			return
		}
		switch kind {
		case frameData:
			if len(data) > 0 {
				_, _ = feed.Write(data) // it fails after Close
			}
		case frameEnd:
			end(io.EOF)
		case frameReset:
			end(syscall.ECONNRESET)
			c.stopWriting(syscall.ECONNRESET)
		case frameDeaf:
			c.stopWriting(syscall.EPIPE)
		}
	}
}

// stopWriting makes Write fail.
func (c *Conn) stopWriting(err error) {
	c.outErr.CompareAndSwap(nil, &err)
	_ = c.out.Close() // always nil
}

// send passes on what is written, until there is no more.
func (c *Conn) send(drain net.Conn) {
	defer close(c.sent)
	defer drain.Close()
	buf := make([]byte, headSize+maxData)
	for {
		n, err := drain.Read(buf[headSize:])
		if err != nil { // it was closed
			if c.framed {
				c.control(frameEnd)
			}
			return
		}
		data := buf[headSize : headSize+n]
		if c.framed {
			putHead(buf, frameData, n)
			data = buf[:headSize+n]
		}
		if _, err := c.stream.Write(data); err != nil {
			c.outErr.CompareAndSwap(nil, &err)
			return
		}
	}
}

// control sends a frame without data. Where the stream has ended, receive says
// so.
func (c *Conn) control(kind byte) {
	var head [headSize]byte
	putHead(head[:], kind, 0)
	_, _ = c.stream.Write(head[:])
}

func (c *Conn) check() error { return entry.Made(c != nil && c.in != nil, "tunnel", "the Conn") }

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	n, err := c.in.Read(p)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, c.failure("read", err)
	}
	if cause := c.inErr.Load(); !c.closed.Load() && cause != nil {
		if *cause == io.EOF {
			return n, io.EOF
		}
		return n, c.failure("read", *cause)
	}
	return n, c.failure("read", net.ErrClosed)
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	n, err := c.out.Write(p)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, c.failure("write", err)
	}
	switch cause := c.outErr.Load(); {
	case c.closed.Load():
		err = net.ErrClosed
	case cause != nil:
		err = *cause
	default: // after CloseWrite
		err = syscall.EPIPE
	}
	return n, c.failure("write", err)
}

// failure makes the error of an operation as package net has it.
func (c *Conn) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*net.OpError](err); ok { // of the pipe
		err = e.Err
	}
	return &net.OpError{Op: op, Net: c.remote.Network(), Addr: c.remote, Err: err}
}

// CloseWrite tells the server that nothing more is written, and reading goes on.
// Where the sandbox has no helper that can do this (see the package), the error
// matches [errors.ErrUnsupported].
func (c *Conn) CloseWrite() error {
	if err := c.check(); err != nil {
		return err
	}
	if c.closed.Load() {
		return c.failure("close", net.ErrClosed)
	}
	if !c.framed {
		return c.failure("close", fmt.Errorf("%w: the end of the input can't be told, since the sandbox has neither python3 nor node", errors.ErrUnsupported))
	}
	return c.out.Close()
}

// Close ends the connection. The server gets what was written before: Close
// waits for that, for five seconds at most. Where the sandbox has only bash (see
// the package), Close waits until what was written is on its way, and the server
// may not get the last of it. It may be called more than once and returns nil,
// unless the Conn is nil or zero.
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
		c.closed.Store(true)
		_ = c.in.Close() // always nil, as the other one
		_ = c.out.Close()
		if linger {
			timer := time.AfterFunc(lingering, func() { _ = c.stream.Close() })
			<-c.sent
			if c.framed {
				c.control(frameClose)
				<-c.received // the helper has ended
			}
			timer.Stop()
		}
		_ = c.stream.Close() // that of a terminal, always nil
		<-c.sent
		<-c.received
		c.hangUp(nil)
	})
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
	return c.deadline(func() error { return c.in.SetReadDeadline(t) })
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.deadline(func() error { return c.out.SetWriteDeadline(t) })
}

func (c *Conn) deadline(set func() error) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.closed.Load() {
		return c.failure("set", net.ErrClosed)
	}
	_ = set() // it fails after the other end has closed, when it does not matter
	return nil
}

// addr is a port of a sandbox.
type addr struct {
	name string
	port int
}

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return net.JoinHostPort(a.name, strconv.Itoa(a.port)) }
