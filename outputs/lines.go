package outputs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// maxLine is how much of an unfinished line is kept.
const maxLine = 64 << 10

// Lines lets several writers share one, such as os.Stdout, without mixing their
// lines.
type Lines struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewLines returns Lines that are written to w, each by one call of Write.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Prefix returns a writer that begins each line with a prefix. An unfinished
// line waits for its end; Close completes and writes it, and leaves the
// underlying writer open. A line longer than 64 KiB becomes several. Take one for
// each of a command's streams: the two may stop in mid-line.
//
// After an error of the underlying writer, lines may be missing. Control
// characters pass unchanged.
func (l *Lines) Prefix(prefix string) io.WriteCloser { return &prefixed{lines: l, prefix: prefix} }

type prefixed struct {
	lines  *Lines
	prefix string

	mu         sync.Mutex
	unfinished []byte
	closed     bool
}

func (w *prefixed) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, fmt.Errorf("outputs: a write to Lines after Close: %w", fs.ErrClosed)
	}
	n := 0
	for n < len(p) {
		rest, room := p[n:], maxLine-len(w.unfinished)
		line, _, ended := bytes.Cut(rest[:min(len(rest), room+1)], []byte("\n"))
		switch {
		case !ended && len(line) <= room: // its end comes later
			w.unfinished = append(w.unfinished, line...)
			return len(p), nil
		case !ended:
			line = line[:room]
		}
		if err := w.line(line); err != nil {
			return n, err
		}
		if n += len(line); ended {
			n++
		}
	}
	return n, nil
}

// line writes what is unfinished and its end.
func (w *prefixed) line(end []byte) error {
	l := w.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf[:0], w.prefix...)
	l.buf = append(l.buf, w.unfinished...)
	l.buf = append(append(l.buf, end...), '\n')
	w.unfinished = w.unfinished[:0]
	n, err := writeTo(l.w, l.buf)
	if err == nil && n < len(l.buf) {
		err = io.ErrShortWrite
	}
	return err
}

// Close writes an unfinished line. Closing again does nothing.
func (w *prefixed) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if len(w.unfinished) == 0 {
		return nil
	}
	return w.line(nil)
}
