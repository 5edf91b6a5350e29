package preview

import (
	"context"
	"io"
	"sync"
	"time"
)

// trackRequest counts a request as in flight until release is called.
func (t *portTransport) trackRequest() (release func()) {
	if t.opts.Idle == 0 {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight++
	if t.idleTimer != nil {
		t.idleTimer.Stop()
	}
	if t.stopExtending == nil {
		ctx, cancel := context.WithCancel(context.Background())
		t.stopExtending = cancel
		// KeepAlive returns early if the plan allows no further extension. The session
		// then stops, and the next request resumes the sandbox.
		go func() { _ = t.sb.KeepAlive(ctx, nil) }()
	}
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.inFlight--; t.inFlight > 0 || t.stopExtending == nil {
			return
		}
		t.idleTimer = time.AfterFunc(t.opts.Idle, t.stopIfIdle)
	})
}

// stopIfIdle stops extending the session unless a request is in flight.
func (t *portTransport) stopIfIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight == 0 && t.stopExtending != nil {
		t.stopExtending()
		t.stopExtending = nil
	}
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *portTransport) CloseIdleConnections() {
	t.stopIfIdle()
	if c, ok := t.opts.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// withOnClose returns body with a Close that also calls onClose. The body of an upgraded
// connection stays writable.
func withOnClose(body io.ReadCloser, onClose func()) io.ReadCloser {
	c := closeNotifier{body, onClose}
	if conn, ok := body.(io.ReadWriteCloser); ok {
		return struct {
			closeNotifier
			io.Writer
		}{c, conn}
	}
	return c
}

type closeNotifier struct {
	io.ReadCloser
	onClose func()
}

func (c closeNotifier) Close() error {
	defer c.onClose()
	return c.ReadCloser.Close()
}
