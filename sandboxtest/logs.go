package sandboxtest

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

// memoryLog is how much of a log is kept in memory. A longer one goes to a
// file, so that neither a gigabyte of output nor a thousand talkative commands
// fill the memory.
const memoryLog = 64 << 10

// commandLog is what a command has written, as the NDJSON records that the API
// answers with. It only grows, always by whole records; any number of readers
// follow it, each from its own position.
type commandLog struct {
	dir string

	mu      sync.Mutex
	mem     []byte
	file    *os.File
	size    int64
	readers int
	closed  bool          // the command has ended: no more will come
	gone    bool          // removed: freed with the last reader
	grown   chan struct{} // closed when something changes, then replaced
}

var errLogGone = errors.New("the log was removed")

func newCommandLog(dir string) *commandLog {
	return &commandLog{dir: dir, grown: make(chan struct{})}
}

// Append adds whole records.
func (l *commandLog) Append(records []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.gone && l.readers == 0 {
		return errLogGone
	}
	if l.file == nil && len(l.mem)+len(records) > memoryLog {
		if err := l.spill(); err != nil {
			return err
		}
	}
	if l.file != nil {
		if _, err := l.file.WriteAt(records, l.size); err != nil {
			return err
		}
	} else {
		l.mem = append(l.mem, records...)
	}
	l.size += int64(len(records))
	l.wakeLocked()
	return nil
}

// spill moves the log to a file that goes away by itself when it is closed.
func (l *commandLog) spill() error {
	f, err := os.CreateTemp(l.dir, "log-")
	if err != nil {
		return err
	}
	// Where an open file can't be removed, its folder is removed at the end.
	_ = os.Remove(f.Name())
	if _, err := f.WriteAt(l.mem, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.mem = f, nil
	return nil
}

func (l *commandLog) wakeLocked() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// Close says that the command has ended. What was written can still be read.
func (l *commandLog) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.wakeLocked()
	}
}

// Remove forgets the log. Those who are reading it read it to its end.
func (l *commandLog) Remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		l.gone = true
		l.freeLocked()
	}
}

func (l *commandLog) freeLocked() {
	if !l.gone || l.readers > 0 {
		return
	}
	l.mem = nil
	if l.file != nil {
		_ = l.file.Close() // nothing was asked to last
		l.file = nil
	}
}

// open is to be followed by leave, and false when the log was removed.
func (l *commandLog) open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return false
	}
	l.readers++
	return true
}

func (l *commandLog) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	l.freeLocked()
}

// CopyTo writes the log to w from its start and then what is added, until the
// command has ended. flush is called after each write.
func (l *commandLog) CopyTo(ctx context.Context, w io.Writer, flush func() error) error {
	if !l.open() {
		return errLogGone
	}
	defer l.leave()
	buf := make([]byte, 32<<10)
	var pos int64
	for {
		n, grown, err := l.next(buf, pos)
		if n > 0 {
			pos += int64(n)
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := flush(); err != nil {
				return err
			}
			continue
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next reads from pos. When there is nothing yet, it gives the channel that is
// closed when there is.
func (l *commandLog) next(buf []byte, pos int64) (int, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case pos < l.size && l.file == nil:
		return copy(buf, l.mem[pos:]), nil, nil
	case pos < l.size:
		n, err := l.file.ReadAt(buf[:min(int64(len(buf)), l.size-pos)], pos)
		if n > 0 {
			err = nil
		}
		return n, nil, err
	case l.closed:
		return 0, nil, io.EOF
	default:
		return 0, l.grown, nil
	}
}
