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

// OutputStore keeps the output of commands that have ended, in one object each. Keys are
// slash-separated and valid by [fs.ValidPath]; it refuses others. Implementations are safe
// for concurrent use. durabletest.TestStore tests them.
type OutputStore interface {
	// Create begins to write the object of a key. The object appears when the writer is
	// committed, and replaces an earlier one as a whole. The caller always closes the
	// writer.
	Create(ctx context.Context, key string) (OutputWriter, error)
	// Open reads an object. The error matches [fs.ErrNotExist] if there is none. If the
	// object is replaced or removed while it is read, the reader gets the old one, or an
	// error, but never a mixture. The caller closes the reader.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// Remove removes the objects below a prefix that ends with a slash. It is not an error
	// if there are none.
	Remove(ctx context.Context, prefix string) error
}

// OutputWriter writes one object of an [OutputStore].
type OutputWriter interface {
	io.Writer
	// Commit makes the object appear, durably.
	Commit() error
	// Close discards the object unless it was committed.
	Close() error
}

// Dir is an [OutputStore] in a folder, for one machine, or for several that share a
// volume. It creates a missing folder, which only its owner can read.
func Dir(path string) OutputStore { return dir(path) }

type dir string

func (d dir) name(key string) (string, error) {
	if !fs.ValidPath(key) || key == "." || strings.ContainsAny(key, `\:`) {
		return "", fmt.Errorf("durable: %q is not a valid key", key)
	}
	return filepath.Join(string(d), filepath.FromSlash(key)), nil
}

// withoutPath removes the names of files from an error: the users of a session may learn
// why its output is not stored, but not where.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("durable: the output store: %s: %w", e.Op, e.Err)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return fmt.Errorf("durable: the output store: %s: %w", e.Op, e.Err)
	}
	return err
}

func (d dir) Create(_ context.Context, key string) (_ OutputWriter, err error) {
	defer func() { err = withoutPath(err) }()
	name, err := d.name(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), temporaryPrefix(name)+"*")
	if err != nil {
		return nil, err
	}
	return &fileWriter{File: f, root: string(d), name: name}, nil
}

// temporaryPrefix returns the prefix of the temporary files that Commit renames to name.
func temporaryPrefix(name string) string { return ".new-" + filepath.Base(name) + "-" }

// A temporary file counts as abandoned when nothing was written to it for abandonedAfter. A
// command may be silent as long as an attempt to follow it lasts, which is a day.
const abandonedAfter = followTime + time.Hour

// NeededPrefix begins the keys of objects that sessions need as long as they live: the
// texts of queued commands, and old events. A store's lifecycle rules must not expire
// them.
const NeededPrefix = "sessions.needed/"

type fileWriter struct {
	*os.File
	root   string // the store's folder
	name   string
	closed bool
}

func (w *fileWriter) Write(p []byte) (n int, err error) {
	n, err = w.File.Write(p)
	return n, withoutPath(err)
}

func (w *fileWriter) Commit() (err error) {
	defer func() { err = withoutPath(err) }()
	if err := w.Sync(); err != nil {
		return err
	}
	// Close first: not every system can rename an open file, and some report a failed write
	// only here.
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

// syncFolders writes the names in a folder, and in its parents up to root, to the disk.
func syncFolders(root, folder string) error {
	if runtime.GOOS == "windows" { // Windows does that itself, and can't open a folder
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

// clean removes temporary files of processes that were killed.
func (w *fileWriter) clean() {
	folder := filepath.Dir(w.name)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // best effort: the files only take space
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), temporaryPrefix(w.name)) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandonedAfter {
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
	_ = os.Remove(w.File.Name()) // unless Commit has renamed it
	return err
}

func (d dir) Open(_ context.Context, key string) (io.ReadCloser, error) {
	name, err := d.name(key)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	return f, withoutPath(err)
}

func (d dir) Remove(_ context.Context, prefix string) error {
	name, err := d.name(strings.TrimSuffix(prefix, "/"))
	if err != nil {
		return err
	}
	return withoutPath(os.RemoveAll(name))
}

// Record is a stored piece of a command's output. Each is a line of JSON.
type Record struct {
	Stream string `json:"s"`
	Data   []byte `json:"d"`
	// At counts the bytes of both streams before it.
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
