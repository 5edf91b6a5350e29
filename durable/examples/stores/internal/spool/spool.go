// Package spool keeps what is written in a temporary file until it is committed,
// for stores that take an object as a whole.
package spool

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/go-vercel/sandbox/durable"
)

// Writer is a durable.OutputWriter.
type Writer struct {
	*os.File
	store func(r io.Reader, size int64) error
}

// New returns a writer whose Commit gives everything that was written to store.
func New(store func(r io.Reader, size int64) error) (durable.OutputWriter, error) {
	f, err := os.CreateTemp("", "sandbox-output-*")
	if err != nil {
		return nil, err
	}
	return &Writer{f, store}, nil
}

// Commit stores what was written.
func (w *Writer) Commit() error {
	size, err := w.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := w.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.store(w.File, size)
}

// Close removes the file.
func (w *Writer) Close() error {
	name := w.Name()
	err := w.File.Close()
	if removeErr := os.Remove(name); err == nil {
		err = removeErr
	}
	return err
}

// CheckKey refuses what is not a key.
func CheckKey(key string) error {
	if !fs.ValidPath(key) || key == "." {
		return fmt.Errorf("%q is not the key of an output", key)
	}
	return nil
}

// CheckPrefix refuses what is not a key followed by a slash.
func CheckPrefix(prefix string) error {
	key, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return fmt.Errorf("the prefix %q does not end with a slash", prefix)
	}
	return CheckKey(key)
}

// Missing is the error of an object that is not there.
func Missing(key string) error { return &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist} }
