// Package outputs contains writers for the output of commands, such as the Stdout and
// Stderr of a command's options. [Tail] keeps the end, [HeadTail] keeps the beginning and
// the end, [Limit] limits the size, and [Lines] separates the lines of several commands.
// They use only memory and are safe for concurrent use.
package outputs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// ErrLimit is matched by the error of a write that exceeds a [Limit].
var ErrLimit = errors.New("output limit exceeded")

// Limit returns a writer that writes the first n bytes to w. A write that exceeds n writes
// the part that fits and fails with an error that matches [ErrLimit]; later writes fail
// too. As both Stdout and Stderr of a command, it limits their sum. A command whose writer
// fails continues, unless its option KillOnCancel is set. If n is negative, every write
// fails.
func Limit(w io.Writer, n int64) io.Writer { return &limit{w: w, max: n, remaining: n} }

// writeTo writes to w, or fails if w is nil.
func writeTo(w io.Writer, p []byte) (int, error) {
	if w == nil {
		return 0, fmt.Errorf("outputs: %w: the writer is nil", fs.ErrInvalid)
	}
	return w.Write(p)
}

type limit struct {
	w   io.Writer
	max int64

	mu        sync.Mutex
	remaining int64
}

func (l *limit) Write(p []byte) (n int, err error) {
	if l.max < 0 {
		return 0, fmt.Errorf("outputs: %w: a limit of %d bytes is negative", fs.ErrInvalid, l.max)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fits := p
	if int64(len(p)) > l.remaining {
		fits = p[:l.remaining]
	}
	if len(fits) > 0 {
		n, err = writeTo(l.w, fits)
		l.remaining -= int64(n)
	}
	if err == nil && n < len(p) {
		if n < len(fits) {
			return n, io.ErrShortWrite
		}
		err = fmt.Errorf("outputs: %w: more than %d bytes", ErrLimit, l.max)
	}
	return n, err
}
