package outputs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// maxUnfinished is the maximum length of a buffered line.
const maxUnfinished = 64 << 10

// Lines lets several writers share an underlying writer, such as os.Stdout, without mixing
// their lines.
type Lines struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewLines returns a Lines that writes each line to w with one call of Write.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Prefix returns a writer that starts each line with a prefix. It buffers an unfinished
// line until its newline or Close, which adds one. Close leaves the underlying writer
// open. A line longer than 64 KiB is split. Use one writer for each of a command's
// streams, because both may stop in mid-line.
//
// After an error of the underlying writer, lines may be missing. Control characters are not
// escaped.
func (l *Lines) Prefix(prefix string) io.WriteCloser { return &prefixWriter{lines: l, prefix: prefix} }

type prefixWriter struct {
	lines  *Lines
	prefix string

	mu         sync.Mutex
	unfinished []byte
	closed     bool
}

func (w *prefixWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, fmt.Errorf("outputs: write to Lines after Close: %w", fs.ErrClosed)
	}
	n := 0
	for n < len(p) {
		rest, room := p[n:], maxUnfinished-len(w.unfinished)
		line, _, ended := bytes.Cut(rest[:min(len(rest), room+1)], []byte("\n"))
		switch {
		case !ended && len(line) <= room: // wait for the newline
			w.unfinished = append(w.unfinished, line...)
			return len(p), nil
		case !ended:
			line = line[:room]
		}
		if err := w.writeLine(line); err != nil {
			return n, err
		}
		if n += len(line); ended {
			n++
		}
	}
	return n, nil
}

// writeLine writes the prefix, the unfinished line, end, and a newline.
func (w *prefixWriter) writeLine(end []byte) error {
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
func (w *prefixWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if len(w.unfinished) == 0 {
		return nil
	}
	return w.writeLine(nil)
}
