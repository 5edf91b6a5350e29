package durable

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// OutputStore keeps the output of commands that have ended, an object each, for
// whoever reads it afterwards. Keys are slash-separated, and valid by
// [fs.ValidPath]; others are refused. Implementations are safe for concurrent
// use; durabletest.TestStore tests them.
type OutputStore interface {
	// Create begins to write the object of a key. It appears whole when the
	// writer is committed, in place of one that was there, and not at all
	// otherwise. The caller closes the writer in either case.
	Create(ctx context.Context, key string) (OutputWriter, error)
	// Open reads an object; the error matches [fs.ErrNotExist] when there is
	// none. One that is replaced or removed meanwhile is read to its end, or
	// reading it fails: two are never mixed. The caller closes it.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// Remove removes the objects below a prefix that ends at a slash. None is no
	// error.
	Remove(ctx context.Context, prefix string) error
}

// OutputWriter writes one object of an [OutputStore].
type OutputWriter interface {
	io.Writer
	// Commit makes what was written appear, durably.
	Commit() error
	// Close drops what was not committed.
	Close() error
}

// Dir is an [OutputStore] in a folder, for one machine, or several that share a
// volume. The folder is made when it is missing, for its owner alone.
func Dir(path string) OutputStore { return dir(path) }

type dir string

func (d dir) name(key string) (string, error) {
	if !fs.ValidPath(key) || key == "." || strings.ContainsAny(key, `\:`) {
		return "", fmt.Errorf("durable: %q is not the key of an output", key)
	}
	return filepath.Join(string(d), filepath.FromSlash(key)), nil
}

// pathless is an error without the names of files: whoever uses a session may learn
// why its output is not stored, not where.
func pathless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("durable: the output store: %s: %w", e.Op, e.Err)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return fmt.Errorf("durable: the output store: %s: %w", e.Op, e.Err)
	}
	return err
}

func (d dir) Create(_ context.Context, key string) (_ OutputWriter, err error) {
	defer func() { err = pathless(err) }()
	name, err := d.name(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), unfinished(name)+"*")
	if err != nil {
		return nil, err
	}
	return &fileWriter{File: f, root: string(d), name: name}, nil
}

// unfinished is how the names of files begin that become name when they are
// committed.
func unfinished(name string) string { return unfinishedPrefix + filepath.Base(name) + "-" }

const unfinishedPrefix = ".new-"

// leftAfter is after how long without a write an unfinished file belongs to a process
// that was killed: a command may be silent, and is followed anew after a day at the
// latest.
const leftAfter = followTime + time.Hour

// NeededPrefix begins the keys of what sessions need for as long as they live: the
// texts of commands that wait, and old events. A store that expires objects, as by a
// lifecycle rule, keeps these.
const NeededPrefix = "sessions.needed/"

type fileWriter struct {
	*os.File
	root   string // of the store
	name   string
	closed bool
}

func (w *fileWriter) Write(p []byte) (n int, err error) {
	n, err = w.File.Write(p)
	return n, pathless(err)
}

func (w *fileWriter) Commit() (err error) {
	defer func() { err = pathless(err) }()
	if err := w.Sync(); err != nil {
		return err
	}
	// First, since not every system renames an open file, and some tell only now
	// that it could not be written.
	w.closed = true
	if err := w.File.Close(); err != nil {
		return err
	}
	if err := os.Rename(w.File.Name(), w.name); err != nil {
		return err
	}
	if err := syncFolders(w.root, filepath.Dir(w.name)); err != nil {
		return err
	}
	w.clean()
	return nil
}

// syncFolders brings the names of a folder to the disk, and its own, up to a root.
func syncFolders(root, folder string) error {
	if runtime.GOOS == "windows" { // which does that by itself, and opens no folder
		return nil
	}
	for ; ; folder = filepath.Dir(folder) {
		f, err := os.Open(folder)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		if rel, err := filepath.Rel(root, folder); err != nil || rel == "." {
			return err
		}
	}
}

// clean removes what attempts have left that were killed.
func (w *fileWriter) clean() {
	folder := filepath.Dir(w.name)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // it costs room, no more
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinished(w.name)) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftAfter {
			_ = os.Remove(filepath.Join(folder, e.Name()))
		}
	}
}

func (w *fileWriter) Close() error {
	var err error
	if !w.closed {
		w.closed = true
		err = w.File.Close()
	}
	_ = os.Remove(w.File.Name()) // gone already when it was committed
	return err
}

func (d dir) Open(_ context.Context, key string) (io.ReadCloser, error) {
	name, err := d.name(key)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	return f, pathless(err)
}

func (d dir) Remove(_ context.Context, prefix string) error {
	name, err := d.name(strings.TrimSuffix(prefix, "/"))
	if err != nil {
		return err
	}
	return pathless(os.RemoveAll(name))
}

// Record is a piece of a command's output, as it is stored: a line of JSON each.
type Record struct {
	Stream string `json:"s"`
	Data   []byte `json:"d"`
	// At is how many bytes of both streams came before it.
	At int64 `json:"a,omitempty"`
}

type recordWriter struct {
	at  int64
	dst OutputWriter
	buf *bufio.Writer
	enc *json.Encoder
}

func newRecordWriter(dst OutputWriter) *recordWriter {
	buf := bufio.NewWriterSize(dst, 64<<10)
	return &recordWriter{dst: dst, buf: buf, enc: json.NewEncoder(buf)}
}

func (w *recordWriter) write(stream string, data []byte) error {
	rec := Record{stream, data, w.at}
	w.at += int64(len(data))
	return w.enc.Encode(rec)
}

func (w *recordWriter) commit() error {
	if err := w.buf.Flush(); err != nil {
		return err
	}
	return w.dst.Commit()
}
