package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// heldData is output stored in a file until the name of its stream is known.
// Its zero value holds nothing.
type heldData struct {
	file    *os.File
	name    string // "" once the file was removed
	size    int64
	reading bool
}

// write adds data, up to limit bytes in total.
func (h *heldData) write(data []byte, limit int64) error {
	if h.size += int64(len(data)); h.size > limit {
		return &LineError{Err: fmt.Errorf("more than %d bytes of data come before the name of their stream", limit)}
	}
	if h.file == nil {
		f, err := os.CreateTemp("", "sandbox-log-*")
		if err != nil {
			return heldError(err)
		}
		h.file, h.name = f, f.Name()
		// Where an open file can be removed, nothing is left behind even if the
		// program is killed.
		if os.Remove(h.name) == nil {
			h.name = ""
		}
	}
	if _, err := h.file.Write(data); err != nil {
		return heldError(err)
	}
	return nil
}

// read returns the next part of the data in buf, which is empty at the end.
func (h *heldData) read(buf []byte) ([]byte, error) {
	if !h.reading {
		if _, err := h.file.Seek(0, io.SeekStart); err != nil {
			return nil, heldError(err)
		}
		h.reading = true
	}
	n, err := h.file.Read(buf)
	if err != nil && err != io.EOF {
		return nil, heldError(err)
	}
	return buf[:n], nil
}

// close discards the data.
func (h *heldData) close() error {
	if h.file == nil {
		return nil
	}
	err := h.file.Close()
	if h.name != "" {
		err = errors.Join(err, os.Remove(h.name))
	}
	*h = heldData{}
	if err != nil {
		return heldError(err)
	}
	return nil
}

// heldError returns a LineError, since reading the log again would not help.
func heldError(err error) error {
	return &LineError{Err: fmt.Errorf("its data can't be held until its stream is named: %w", err)}
}
