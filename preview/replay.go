package preview

import (
	"errors"
	"io"
	"sync"
)

// maxReplay is how much of a request's body is kept for another attempt after the edge
// has refused one.
const maxReplay = 1 << 20

// replayBody is a request's body that can be read again from its start, as long as the
// part that was read fits into maxReplay. Each attempt has its own reader. net/http may
// still read an old one after the next attempt has started: that read fails, and the new
// reader gets the bytes.
type replayBody struct {
	src io.ReadCloser // nil for a request without a body

	// reading is full while src is read, which may block as long as the visitor sends
	// nothing. It is separate from mu, so that only readers wait for it.
	reading chan struct{}

	mu        sync.Mutex
	kept      []byte
	truncated bool  // kept does not contain all that was read
	err       error // last error of src
	current   *attemptBody
	finished  bool // there is no further attempt
	closed    bool // the current attempt's reader is closed
}

func (b *replayBody) attempt() io.ReadCloser {
	if b.src == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current, b.closed = &attemptBody{b: b}, false
	return b.current
}

func (b *replayBody) isTruncated() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.truncated
}

// finish is called after the last attempt. It closes the source after a failure. Otherwise
// the source is closed when net/http closes the current reader.
func (b *replayBody) finish(failed bool) {
	if b.src == nil {
		return
	}
	b.mu.Lock()
	b.finished = true
	closeNow := failed || b.closed
	b.mu.Unlock()
	if closeNow {
		_ = b.src.Close()
	}
}

var errSuperseded = errors.New("sandbox: the request was sent again")

type attemptBody struct {
	b  *replayBody
	at int // offset in kept
}

func (a *attemptBody) Read(p []byte) (int, error) {
	b := a.b
	b.reading <- struct{}{}
	defer func() { <-b.reading }()
	if n, err := a.readKept(p); n > 0 || err != nil {
		return n, err
	}
	n, err := b.src.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if b.truncated = b.truncated || len(b.kept)+n > maxReplay; b.truncated {
		b.kept, a.at = nil, 0
	} else {
		b.kept = append(b.kept, p[:n]...)
		a.at += n
	}
	if b.current != a {
		if b.truncated { // the next attempt has lost these bytes
			b.err = errSuperseded
		}
		return 0, errSuperseded
	}
	return n, err
}

// readKept returns bytes that an earlier attempt has read, if any remain.
func (a *attemptBody) readKept(p []byte) (int, error) {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.current != a:
		return 0, errSuperseded
	case a.at < len(b.kept):
		n := copy(p, b.kept[a.at:])
		a.at += n
		return n, nil
	}
	return 0, b.err
}

// Close leaves the source open if there may be another attempt.
func (a *attemptBody) Close() error {
	b := a.b
	b.mu.Lock()
	if b.current != a || b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	finished := b.finished
	b.mu.Unlock()
	if finished {
		return b.src.Close()
	}
	return nil
}
