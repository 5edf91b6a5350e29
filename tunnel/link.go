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

// link is a terminal with a helper at its other end, which carries any number of
// connections in frames. Two goroutines belong to it.
type link struct {
	stream io.ReadWriteCloser
	hangUp context.CancelCauseFunc
	keep   func(ctx context.Context)

	out  chan []byte   // what connections send, in turn
	told chan struct{} // full while there is something in control
	done chan struct{} // closed when receive has ended

	sent chan struct{} // closed when send has ended

	mu      sync.Mutex
	conns   map[uint32]*Conn
	last    uint32
	control []byte             // frames that follow what has been taken of out
	err     error              // why it has ended
	let     context.CancelFunc // ends keep; nil while there is no connection
	keeping sync.WaitGroup
}

// newLink begins to receive.
func newLink(s io.ReadWriteCloser, hangUp context.CancelCauseFunc, keep func(ctx context.Context)) *link {
	l := &link{
		stream: s, hangUp: hangUp, keep: keep, conns: map[uint32]*Conn{},
		out: make(chan []byte), told: make(chan struct{}, 1), done: make(chan struct{}), sent: make(chan struct{}),
	}
	go l.receive()
	go l.send()
	return l
}

// add makes a connection.
func (l *link) add(remote addr) (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.last++
	c := &Conn{l: l, id: l.last, remote: remote, allowed: firstWindow, window: firstWindow, credit: firstWindow}
	l.conns[c.id] = c
	l.keepLocked()
	return c, nil
}

// keepLocked keeps the sandbox running while there are connections.
func (l *link) keepLocked() {
	switch {
	case l.keep == nil || (len(l.conns) > 0) == (l.let != nil):
	case l.let != nil:
		l.let()
		l.let = nil
	default:
		var ctx context.Context
		ctx, l.let = context.WithCancel(context.Background())
		l.keeping.Go(func() { l.keep(ctx) })
	}
}

// open connects to a port.
func (l *link) open(ctx context.Context, remote addr) (*Conn, error) {
	c, err := l.add(remote)
	if err != nil {
		return nil, err
	}
	l.tell(frameOpen, c.id, binary.BigEndian.AppendUint16(nil, uint16(remote.port))) //nolint:gosec // checked
	for {
		c.mu.Lock()
		answered, refused, failed, changed := c.answered, c.over, c.inErr, c.readable.wait()
		c.mu.Unlock()
		switch {
		case answered:
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

// alive reports whether a connection can be made.
func (l *link) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil
}

// window is how much a connection may be sent.
func (l *link) window() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(maxWindow, max(firstWindow, allWindows/max(1, len(l.conns))))
}

// forget drops a connection.
func (l *link) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c.id)
	l.keepLocked()
}

// tell sends a frame after what was sent before, without waiting for it.
func (l *link) tell(kind byte, id uint32, data []byte) {
	l.mu.Lock()
	if l.err == nil {
		l.control = appendFrame(l.control, kind, id, data)
	}
	l.mu.Unlock()
	select {
	case l.told <- struct{}{}:
	default:
	}
}

// send passes on what connections send, small frames together.
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
			case <-l.told:
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
		if next == nil { // what is told comes after what was taken
			l.mu.Lock()
			message = append(message, l.control...)
			l.control = l.control[:0]
			l.mu.Unlock()
		}
		if len(message) > 0 {
			if _, err := l.stream.Write(message); err != nil {
				l.end(err)
				_ = l.stream.Close() // always nil; ends receive
				return
			}
		}
	}
}

// receive passes on what comes from the sandbox, until there is no more.
func (l *link) receive() {
	defer close(l.done)
	r, buf := bufio.NewReaderSize(l.stream, 64<<10), make([]byte, math.MaxUint16)
	for {
		kind, id, data, err := readFrame(r, buf)
		if err == nil {
			l.mu.Lock()
			c := l.conns[id]
			l.mu.Unlock()
			if c == nil { // it has been aborted
				continue
			}
			if err = c.receive(kind, data); err == nil {
				continue
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the helper was killed
			if _, ok := errors.AsType[*terminal.ShellError](err); !ok {
				err = &terminal.ShellError{Err: errEnded}
			}
		}
		l.end(err)
		_ = l.stream.Close() // always nil
		return
	}
}

var errEnded = errors.New("the helper in the sandbox has ended")

// end ends all connections.
func (l *link) end(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	conns := l.conns
	l.conns = map[uint32]*Conn{}
	l.keepLocked()
	l.mu.Unlock()
	for _, c := range conns {
		c.fail(err)
	}
}

// close ends the helper and waits for the goroutines. Those that still connect or
// read get an error.
func (l *link) close() {
	l.end(errHungUp)
	_ = l.stream.Close() // that of a terminal, always nil
	<-l.done
	<-l.sent
	l.keeping.Wait()
	l.hangUp(nil)
}

// quit is close when nothing is left to be done: the helper ends by itself.
func (l *link) quit() {
	l.tell(frameQuit, 0, nil)
	timer := time.AfterFunc(time.Second, func() { _ = l.stream.Close() })
	<-l.done
	timer.Stop()
	l.close()
}

var errHungUp = fmt.Errorf("the tunnel was closed: %w", syscall.ECONNABORTED)
