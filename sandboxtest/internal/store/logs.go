package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// memoryLog is how much of a log is kept in memory. A longer log goes to a file, so that
// neither a gigabyte of output nor a thousand talkative commands fill the memory.
const memoryLog = 16 << 10

// commandLog is the output of a command, as the NDJSON records that the API returns. It
// only grows, by whole records. Any number of readers follow it, each from its own
// position.
type commandLog struct {
	dir string

	mu  sync.Mutex
	mem []byte
	// name is the file of a long log, and file is open for writing until the command
	// ends. Each reader opens its own, so that a log without readers needs no descriptor.
	name    string
	file    *os.File
	size    int64
	readers int
	closed  bool          // the command has ended: its output is complete
	removed bool          // freed once the last reader has finished
	failed  error         // why output is missing
	grown   chan struct{} // closed when something changes, then replaced
}

var ErrLogGone = errors.New("the log was removed")

func newCommandLog(dir string) *commandLog {
	return &commandLog{dir: dir, grown: make(chan struct{})}
}

// Append adds whole records.
func (l *commandLog) Append(records []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.removed && l.readers == 0 {
		return ErrLogGone
	}
	if l.failed != nil {
		return l.failed
	}
	if l.name == "" && len(l.mem)+len(records) > memoryLog {
		if err := l.spill(); err != nil {
			return l.failLocked(err)
		}
	}
	if l.name != "" {
		if _, err := l.file.WriteAt(records, l.size); err != nil {
			return l.failLocked(err)
		}
	} else {
		l.mem = append(l.mem, records...)
	}
	l.size += int64(len(records))
	l.wakeLocked()
	return nil
}

// failLocked ends the log with an error: lost output can't be restored, and a reader must
// not take the log for complete.
func (l *commandLog) failLocked(err error) error {
	l.failed = fmt.Errorf("the output could not be kept: %w", err)
	l.wakeLocked()
	return l.failed
}

// spill moves the log to a file.
func (l *commandLog) spill() error {
	f, err := os.CreateTemp(l.dir, "log-")
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(l.mem, 0); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	l.file, l.name, l.mem = f, f.Name(), nil
	return nil
}

func (l *commandLog) wakeLocked() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// Close reports the end of the command. The log can still be read.
func (l *commandLog) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.closeFileLocked()
		l.wakeLocked()
	}
}

func (l *commandLog) closeFileLocked() {
	if l.file != nil {
		_ = l.file.Close() // the data is written, and need not survive a crash
		l.file = nil
	}
}

// Remove removes the log. Readers in progress read it to its end.
func (l *commandLog) Remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.removed {
		l.removed = true
		l.freeLocked()
	}
}

func (l *commandLog) freeLocked() {
	if !l.removed || l.readers > 0 {
		return
	}
	l.mem, l.closed = nil, true
	l.closeFileLocked()
	if l.name != "" {
		_ = os.Remove(l.name) // if it fails: Store.Close removes the folder
	}
}

// addReader keeps the log until removeReader is called. It returns false if the log was
// removed.
func (l *commandLog) addReader() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.removed {
		return false
	}
	l.readers++
	return true
}

func (l *commandLog) removeReader() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	l.freeLocked()
}

// CopyTo writes the log to w, from its start until the command has ended. It calls flush
// after each write.
func (l *commandLog) CopyTo(ctx context.Context, w io.Writer, flush func() error) error {
	if !l.addReader() {
		return ErrLogGone
	}
	defer l.removeReader()
	r := &logReader{log: l}
	defer r.close()
	buf := make([]byte, 32<<10)
	for {
		n, grown, err := r.read(buf)
		if n > 0 {
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

// logReader reads a log from its start.
type logReader struct {
	log  *commandLog
	pos  int64
	file *os.File
}

// read reads the next data. If there is none yet, it returns a channel that is closed
// when there is.
func (r *logReader) read(buf []byte) (int, <-chan struct{}, error) {
	l := r.log
	l.mu.Lock()
	name, size, closed, failed, grown := l.name, l.size, l.closed, l.failed, l.grown
	var n int
	if name == "" {
		n = copy(buf, l.mem[r.pos:])
	}
	l.mu.Unlock()
	switch {
	case n > 0:
		r.pos += int64(n)
		return n, nil, nil
	case r.pos < size:
		return r.readFile(buf[:min(int64(len(buf)), size-r.pos)], name)
	case failed != nil:
		return 0, nil, failed
	case closed:
		return 0, nil, io.EOF
	default:
		return 0, grown, nil
	}
}

func (r *logReader) readFile(buf []byte, name string) (n int, _ <-chan struct{}, err error) {
	if r.file == nil {
		if r.file, err = os.Open(name); err != nil {
			return 0, nil, err
		}
	}
	n, err = r.file.ReadAt(buf, r.pos)
	r.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, nil, err
}

func (r *logReader) close() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
	}
}
