package tunnel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/terminal"
)

// link is a terminal with a helper at its other end. It multiplexes connections in frames.
// It has two goroutines, receive and send.
type link struct {
	stream io.ReadWriteCloser
	hangUp context.CancelCauseFunc
	keep   func(ctx context.Context)

	out        chan []byte   // data frames of all connections
	hasControl chan struct{} // full while control is not empty
	done       chan struct{} // closed when receive has ended

	sent chan struct{} // closed when send has ended

	mu          sync.Mutex
	conns       map[uint32]*Conn
	lastID      uint32
	control     []byte             // queued control frames; send writes earlier data frames before them
	err         error              // why the link has failed
	stopKeeping context.CancelFunc // ends keep; nil if there is no connection
	keeping     sync.WaitGroup
}

// newLink returns a link and starts its goroutines.
func newLink(s io.ReadWriteCloser, hangUp context.CancelCauseFunc, keep func(ctx context.Context)) *link {
	l := &link{
		stream: s, hangUp: hangUp, keep: keep, conns: map[uint32]*Conn{},
		out: make(chan []byte), hasControl: make(chan struct{}, 1), done: make(chan struct{}), sent: make(chan struct{}),
	}
	go l.receive()
	go l.send()
	return l
}

// add registers a new connection.
func (l *link) add(remote addr) (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.lastID++
	c := &Conn{link: l, id: l.lastID, remote: remote, allowed: firstWindow, window: firstWindow, credit: firstWindow}
	l.conns[c.id] = c
	l.updateKeepLocked()
	return c, nil
}

// updateKeepLocked starts keep if there are connections, and stops it otherwise.
func (l *link) updateKeepLocked() {
	switch {
	case l.keep == nil || (len(l.conns) > 0) == (l.stopKeeping != nil):
	case l.stopKeeping != nil:
		l.stopKeeping()
		l.stopKeeping = nil
	default:
		var ctx context.Context
		ctx, l.stopKeeping = context.WithCancel(context.Background())
		l.keeping.Go(func() { l.keep(ctx) })
	}
}

// open connects to a port.
func (l *link) open(ctx context.Context, remote addr) (*Conn, error) {
	c, err := l.add(remote)
	if err != nil {
		return nil, err
	}
	l.sendControl(frameOpen, c.id, binary.BigEndian.AppendUint16(nil, uint16(remote.port))) //nolint:gosec // checked
	for {
		c.mu.Lock()
		connected, refused, failed, changed := c.connected, c.gone, c.inErr, c.readable.changed()
		c.mu.Unlock()
		switch {
		case connected:
			return c, nil
		case failed != nil:
			return nil, failed
		case refused:
			return nil, ErrRefused
		}
		select {
		case <-changed:
		case <-ctx.Done():
			c.abort()
			return nil, context.Cause(ctx)
		}
	}
}

// alive reports whether the link has not failed.
func (l *link) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil
}

// window returns the window that a connection may have, given the number of connections.
func (l *link) window() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(maxWindow, max(firstWindow, maxTotalWindow/max(1, len(l.conns))))
}

// remove drops a connection.
func (l *link) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c.id)
	l.updateKeepLocked()
}

// sendControl queues a frame after the data that was sent before. It does not block.
func (l *link) sendControl(kind byte, id uint32, data []byte) {
	l.mu.Lock()
	if l.err == nil {
		l.control = appendFrame(l.control, kind, id, data)
	}
	l.mu.Unlock()
	select {
	case l.hasControl <- struct{}{}:
	default:
	}
}

// send writes frames to the terminal and joins small ones into a message.
func (l *link) send() {
	defer close(l.sent)
	var message, next []byte
	for {
		message = message[:0]
		if next != nil {
			message = append(message, next...)
			next = nil
		} else {
			select {
			case data := <-l.out:
				message = append(message, data...)
			case <-l.hasControl:
			case <-l.done:
				return
			}
			for more := true; more && len(message) < maxMessage; {
				select {
				case data := <-l.out:
					if more = len(message)+len(data) <= maxMessage; more {
						message = append(message, data...)
					} else {
						next = data
					}
				default:
					more = false
				}
			}
		}
		if next == nil { // control frames must follow the data sent before them
			l.mu.Lock()
			message = append(message, l.control...)
			l.control = l.control[:0]
			l.mu.Unlock()
		}
		if len(message) > 0 {
			if _, err := l.stream.Write(message); err != nil {
				l.fail(err)
				_ = l.stream.Close() // always nil; ends receive
				return
			}
		}
	}
}

// receive dispatches frames from the sandbox until the terminal ends.
func (l *link) receive() {
	defer close(l.done)
	r, buf := bufio.NewReaderSize(l.stream, 64<<10), make([]byte, math.MaxUint16)
	for {
		kind, id, data, err := readFrame(r, buf)
		if err == nil {
			l.mu.Lock()
			c := l.conns[id]
			l.mu.Unlock()
			if c == nil { // aborted
				continue
			}
			if err = c.receive(kind, data); err == nil {
				continue
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the helper was killed
			if _, ok := errors.AsType[*terminal.ShellError](err); !ok {
				err = &terminal.ShellError{Err: errHelperExited}
			}
		}
		l.fail(err)
		_ = l.stream.Close() // always nil
		return
	}
}

var errHelperExited = errors.New("the helper in the sandbox exited")

// fail ends all connections.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	conns := l.conns
	l.conns = map[uint32]*Conn{}
	l.updateKeepLocked()
	l.mu.Unlock()
	for _, c := range conns {
		c.fail(err)
	}
}

// close closes the terminal and waits for the goroutines. Calls that still connect or
// read fail.
func (l *link) close() {
	l.fail(errClosed)
	_ = l.stream.Close() // always nil
	<-l.done
	<-l.sent
	l.keeping.Wait()
	l.hangUp(nil)
}

// quit asks the helper to exit, gives it a second, and closes the link.
func (l *link) quit() {
	l.sendControl(frameQuit, 0, nil)
	timer := time.AfterFunc(time.Second, func() { _ = l.stream.Close() })
	<-l.done
	timer.Stop()
	l.close()
}

var errClosed = fmt.Errorf("the tunnel was closed: %w", syscall.ECONNABORTED)
