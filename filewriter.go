package sandbox

import (
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"path"
	"time"
)

// pieceSize is how much a FileWriter keeps before it uploads: memory for each
// writer against the number of requests for large files.
const pieceSize = 4 << 20

// WriterOptions are the options of [FileSystem.Create].
type WriterOptions struct {
	// Mode is the mode of the file; nil means 0644.
	Mode *fs.FileMode
	// Progress is told how much was uploaded.
	Progress ProgressFunc
}

// Create returns a writer for a file of any size, in constant memory. The file
// gets its name and its content when the writer is closed, replacing one that
// exists; nobody ever sees a part of it. Directories that lead to it are made.
//
// ctx holds for all of the writer's requests. The caller closes the writer, and
// has to look at the error of Close.
func (f *FileSystem) Create(ctx context.Context, name string, opts *WriterOptions) (*FileWriter, error) {
	if err := checkPath("open", name); err != nil {
		return nil, err
	}
	abs, err := filePath(f.t.Cwd(), name)
	if err != nil {
		return nil, err
	}
	w := &FileWriter{ctx: ctx, fs: f, name: name, abs: abs}
	if opts != nil {
		w.mode, w.meter = opts.Mode, newMeter(opts.Progress, -1)
	}
	if w.mode != nil && w.mode.Type() != 0 {
		return nil, invalid("Mode", "%v is not the mode of a file", *w.mode)
	}
	return w, nil
}

// FileWriter is a file of a sandbox that is being written. It is for one
// goroutine at a time.
//
// The API takes whole files only. So what is written is uploaded in pieces of 4
// MiB beside the file, which are put together in the sandbox. A file that fits
// into one piece is one request.
type FileWriter struct {
	ctx    context.Context
	fs     *FileSystem
	name   string
	abs    string
	mode   *fs.FileMode
	meter  *meter
	buf    []byte
	piece  string // where the pieces are put together; "" before the first
	closed bool
	err    error
}

// Name returns the path that the writer was made with.
func (w *FileWriter) Name() string { return w.name }

// Write writes on. After an error nothing of the file is left.
func (w *FileWriter) Write(p []byte) (int, error) {
	if w.closed {
		return 0, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	n := 0
	for len(p) > 0 {
		if w.err != nil {
			return n, w.err
		}
		if w.buf == nil {
			w.buf = make([]byte, 0, pieceSize)
		}
		m := copy(w.buf[len(w.buf):cap(w.buf)], p)
		w.buf = w.buf[:len(w.buf)+m]
		n, p = n+m, p[m:]
		if len(w.buf) == cap(w.buf) {
			w.flush()
		}
	}
	return n, w.err
}

// ReadFrom writes what r has to say.
func (w *FileWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 128<<10))
}

// Close puts the file in its place. Only when it returns nil has the file been
// written.
func (w *FileWriter) Close() error {
	if w.closed {
		return &fs.PathError{Op: "close", Path: w.name, Err: fs.ErrClosed}
	}
	w.closed = true
	if w.err != nil {
		return w.err
	}
	if w.piece == "" {
		file := File{Path: w.abs, Content: w.buf, Mode: w.mode}
		if err := w.fs.write(w.ctx, "write", w.name, file); err != nil {
			return w.fail(err)
		}
		w.meter.add(w.name, len(w.buf))
		return nil
	}
	if len(w.buf) > 0 {
		if w.flush(); w.err != nil {
			return w.err
		}
	}
	mode := fs.FileMode(0o644)
	if w.mode != nil {
		mode = *w.mode
	}
	const script = `chmod "$1" -- "$2" && mv -f -T -- "$2" "$3"`
	if err := w.fs.pathOp(w.ctx, "close", w.name, "sh", "-c", script, "sh", octal(mode), w.piece, w.abs); err != nil {
		return w.fail(err)
	}
	return nil
}

// Abort gives up: nothing of the file is left. After Close it does nothing, so
// that it can be deferred.
func (w *FileWriter) Abort() {
	if !w.closed {
		w.closed = true
		w.discard()
	}
}

// flush uploads the buffer. The first piece becomes the file; others are added
// to it.
func (w *FileWriter) flush() {
	first := w.piece == ""
	if first {
		w.piece = path.Join(path.Dir(w.abs), ".write-"+rand.Text())
	}
	file := File{Path: w.piece, Content: w.buf, Mode: new(fs.FileMode(0o600))}
	if !first {
		file.Path += ".next"
	}
	err := w.fs.write(w.ctx, "write", w.name, file)
	if err == nil && !first {
		const script = `dd if="$2" of="$1" bs=1M oflag=append conv=notrunc status=none && rm -f -- "$2"`
		err = w.fs.pathOp(w.ctx, "write", w.name, "sh", "-c", script, "sh", w.piece, file.Path)
	}
	if err != nil {
		_ = w.fail(err) // told by the next call
		return
	}
	w.meter.add(w.name, len(w.buf))
	w.buf = w.buf[:0]
}

// fail remembers an error and cleans up.
func (w *FileWriter) fail(err error) error {
	w.err = err
	w.discard()
	return err
}

// discard removes the pieces, also when the writer's context has ended.
func (w *FileWriter) discard() {
	w.buf = nil
	if w.piece == "" {
		return
	}
	w.fs.discard(w.ctx, w.piece, w.piece+".next")
}

// discard removes temporary files of ours in the sandbox. It is of no use to
// tell the caller when that fails as well.
func (f *FileSystem) discard(ctx context.Context, paths ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	program, args := carry("rm", append([]string{"-f", "--"}, paths...))
	_, _ = f.t.RunCommand(ctx, program, args, nil)
}
