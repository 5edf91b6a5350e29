package shell

import (
	"io"
	"sync"
	"sync/atomic"
)

// maxWaiting limits the data that a batchingConn holds while the other end does not read.
// It is more than a message.
const maxWaiting = 2 * bufferSize

// batchingConn is the connection under a WebSocket. The WebSocket package writes a message
// in pieces of 4 KiB. It also gives up the connection if it can't write a ping or a pong
// within seconds, although the program may only be slow to read its input. So a
// batchingConn collects the writes between hold and release, and those during another
// write, and sends them in one piece. Pings and pongs never block.
type batchingConn struct {
	io.ReadWriteCloser
	pongs atomic.Int64 // number of pongs read

	mu      sync.Mutex
	changed sync.Cond // signals a change of held or busy
	waiting []byte
	held    bool
	busy    bool // a write is in progress
	err     error
}

func newBatchingConn(conn io.ReadWriteCloser) *batchingConn {
	l := &batchingConn{ReadWriteCloser: conn}
	l.changed.L = &l.mu
	return l
}

func (l *batchingConn) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy && len(l.waiting) > maxWaiting {
		l.changed.Wait()
	}
	if l.err != nil {
		return 0, l.err
	}
	l.waiting = append(l.waiting, p...)
	switch {
	case l.held || l.busy: // the next write sends it
	case isPing(p):
		l.busy = true
		go func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			_ = l.flush() // the next write returns the error
		}()
	default:
		if err := l.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// isPing reports whether a frame is a ping or a pong.
func isPing(frame []byte) bool {
	const ping, pong = 9, 10
	op := frame[0] & 0xf
	return op == ping || op == pong
}

// Close also waits for a write in progress, which fails.
func (l *batchingConn) Close() error {
	err := l.ReadWriteCloser.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy {
		l.changed.Wait()
	}
	return err
}

// hold collects writes until release. It waits while another goroutine holds the
// connection.
func (l *batchingConn) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held {
		l.changed.Wait()
	}
	l.held = true
}

// release writes the collected data, and returns the error of that write.
func (l *batchingConn) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy {
		l.changed.Wait()
	}
	err := l.flush()
	l.held = false
	l.changed.Broadcast()
	return err
}

// flush writes the collected data, and then data that was added during that write. It
// returns the error of the first write.
func (l *batchingConn) flush() error {
	l.busy = true
	err := l.writeWaiting()
	for l.err == nil && len(l.waiting) > 0 {
		_ = l.writeWaiting() // the next write returns the error
	}
	l.busy = false
	l.changed.Broadcast()
	return err
}

func (l *batchingConn) writeWaiting() error {
	if l.err != nil || len(l.waiting) == 0 {
		return l.err
	}
	out := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	_, err := l.ReadWriteCloser.Write(out)
	l.mu.Lock()
	l.err = err
	if len(l.waiting) == 0 {
		l.waiting = out[:0]
	}
	l.changed.Broadcast()
	return err
}
