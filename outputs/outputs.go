// Package outputs has writers for the output of commands: one that keeps the
// end, one that keeps the beginning too, one that sets a limit, and one that keeps the lines of several commands
// apart. They go wherever an io.Writer does, such as the Stdout and Stderr of a
// command's options, need nothing but memory, and are safe for concurrent use.
package outputs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// ErrLimit is matched by the error of a writer made by [Limit] once more was
// written than it allows.
var ErrLimit = errors.New("output limit exceeded")

// Limit returns a writer that passes on the first n bytes to w. The write that
// exceeds them passes on what still fits and fails, as does every later one,
// with an error that matches [ErrLimit]. Given to a command as both Stdout and
// Stderr, it limits their sum. A command whose writer fails continues, unless
// its option KillOnCancel is set. A negative n is an error of every write.
func Limit(w io.Writer, n int64) io.Writer { return &limit{w: w, most: n, left: n} }

// writeTo writes to the writer that was given, if there is one.
func writeTo(w io.Writer, p []byte) (int, error) {
	if w == nil {
		return 0, fmt.Errorf("outputs: %w: the writer is nil", fs.ErrInvalid)
	}
	return w.Write(p)
}

type limit struct {
	w    io.Writer
	most int64

	mu   sync.Mutex
	left int64
}

func (l *limit) Write(p []byte) (n int, err error) {
	if l.most < 0 {
		return 0, fmt.Errorf("outputs: %w: a limit of %d bytes is negative", fs.ErrInvalid, l.most)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fits := p
	if int64(len(p)) > l.left {
		fits = p[:l.left]
	}
	if len(fits) > 0 {
		n, err = writeTo(l.w, fits)
		l.left -= int64(n)
	}
	if err == nil && n < len(p) {
		if n < len(fits) {
			return n, io.ErrShortWrite
		}
		err = fmt.Errorf("outputs: %w: more than %d bytes", ErrLimit, l.most)
	}
	return n, err
}
