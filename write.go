package sandbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"iter"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/tarball"
)

const (
	// pieceSize is how much a FileWriter buffers before it uploads: a trade-off between
	// memory and the number of requests for large files.
	pieceSize = 8 << 20
	// joinAttempts limits how often a piece is joined if the outcome is unknown.
	joinAttempts = 3
	// cleanupTime limits how long the removal of temporary files may delay a call that
	// has failed or whose context has ended.
	cleanupTime = 2 * time.Second
)

// WriterOptions are the options of [FileSystem.Create].
type WriterOptions struct {
	// Mode is the mode of the file, also of one that replaces another; nil means
	// 0644.
	Mode *fs.FileMode
	// Progress, if not nil, is called as the upload proceeds.
	Progress func(Progress)
}

// Create returns a writer for a file of any size, in constant memory. The file
// appears under its name when the writer is closed, replacing a regular file of
// that name; a part of it is never visible. Missing parent directories are
// created, and a symbolic link is followed. If the name belongs to anything but
// a regular file, Close returns an error.
//
// ctx applies to all of the writer's requests. The caller must close the writer
// and check the error of Close. See [FileWriter] for the cost.
func (f *FileSystem) Create(ctx context.Context, name string, opts *WriterOptions) (*FileWriter, error) {
	if err := f.enterFile(ctx, "open", name); err != nil {
		return nil, err
	}
	w := &FileWriter{ctx: ctx, fs: f, name: name, mode: 0o644}
	if opts != nil {
		w.meter = newMeter(opts.Progress, -1)
		if opts.Mode != nil {
			w.mode = *opts.Mode
		}
	}
	if w.mode.Type() != 0 {
		return nil, invalid("Mode", "%v is not the mode of a file", w.mode)
	}
	w.part = coreutils.Dir(name) + "/.write-" + rand.Text()
	return w, nil
}

// FileWriter writes a file of a sandbox. It is not safe for concurrent use.
//
// The API accepts only whole files. The writer therefore uploads pieces of 8 MiB
// to /tmp, one after the other, and runs a command for each that appends it to a file
// next to the one to be written. The command checks the SHA-256 of the piece,
// and the last one gives the file its name. A file of up to 8 MiB takes two
// requests, and 8 MiB are held in memory.
//
// A writer outlives the session that it was created in only if what it has
// written does: it fails if the sandbox has lost that, because it is not
// persistent or its machine crashed. After an error nothing of the file is
// left; cleaning up may take two seconds, even if ctx has ended.
type FileWriter struct {
	ctx   context.Context
	fs    *FileSystem
	name  string
	part  string // where the pieces are joined
	mode  fs.FileMode
	meter *meter

	buf    []byte
	begun  bool // the part may exist
	closed bool
	err    error

	joining chan error // the outcome of the command that runs; nil for none
	// The rest belongs to that command while it runs.
	joined int64    // the length of the part
	made   bool     // directories were made
	trash  []string // temporary files that may be left in the sandbox
}

// Write implements [io.Writer]. It returns after the upload of what fills a piece,
// and keeps the rest for a later call.
func (w *FileWriter) Write(p []byte) (int, error) {
	if w == nil || w.fs == nil {
		return 0, errZeroFile
	}
	if w.closed {
		return 0, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	n := 0
	for len(p) > 0 && w.err == nil {
		switch {
		case w.ctx.Err() != nil:
			w.fail("write", w.ctx.Err())
			continue
		case w.buf == nil:
			w.buf = make([]byte, 0, pieceSize)
		case len(w.buf) == cap(w.buf):
			w.flush("write", nil)
			continue
		}
		m := copy(w.buf[len(w.buf):cap(w.buf)], p)
		w.buf = w.buf[:len(w.buf)+m]
		n, p = n+m, p[m:]
	}
	return n, w.err
}

// Close completes the file. The file is written only if Close returns nil.
func (w *FileWriter) Close() error {
	if w == nil || w.fs == nil {
		return errZeroFile
	}
	if w.closed {
		return &fs.PathError{Op: "close", Path: w.name, Err: fs.ErrClosed}
	}
	w.closed = true
	if w.err == nil {
		w.flush("close", &coreutils.Placement{Name: w.name, Mode: w.mode})
	}
	if w.err != nil {
		w.drop()
		return w.err
	}
	w.buf = nil
	w.fs.discard(w.ctx, w.trash...)
	if user, ok := w.fs.t.(*User); ok && w.made {
		if err := user.ownParents(w.ctx, w.name); err != nil {
			return &fs.PathError{Op: "close", Path: w.name, Err: err}
		}
	}
	return nil
}

// Abort discards the file. It has no effect after Close, so that it can be
// deferred.
func (w *FileWriter) Abort() {
	if w != nil && w.fs != nil && !w.closed {
		w.closed = true
		w.drop()
	}
}

// fail records the error that ends the writer.
func (w *FileWriter) fail(op string, err error) {
	if w.ctx.Err() != nil {
		err = api.ContextError(w.ctx)
	}
	w.err = &fs.PathError{Op: op, Path: w.name, Err: reason(fileReason(err))}
}

// flush uploads the buffer and joins it to the part, which becomes the file if to is
// not nil. Otherwise the command runs during the next upload. An empty file needs a
// piece too: it tells the first run of the command from a repeated one that arrives
// late and must do nothing.
func (w *FileWriter) flush(op string, to *coreutils.Placement) {
	piece, tried, err := w.fs.uploadPiece(w.ctx, w.buf)
	if joinErr := w.wait(); err == nil {
		err = joinErr
	}
	w.trash = append(w.trash, tried...)
	if err == nil {
		w.buf = w.buf[:0]
		w.meter.add(w.name, int(piece.Size))
		w.begun, w.joining = true, make(chan error, 1)
		go func() { w.joining <- w.join(piece, to) }()
		if to != nil {
			err = w.wait()
		}
	} else if piece.Path != "" {
		w.trash = append(w.trash, piece.Path)
	}
	if err != nil {
		w.fail(op, err)
	}
}

// wait waits for the command that joins a piece.
func (w *FileWriter) wait() error {
	if w.joining == nil {
		return nil
	}
	err := <-w.joining
	w.joining = nil
	return err
}

// join runs the command that joins a piece. It is idempotent, so it is retried if
// the response is lost.
func (w *FileWriter) join(piece coreutils.Piece, to *coreutils.Placement) error {
	for attempt := 1; ; attempt++ {
		made, err := w.fs.tools(w.part).Join(w.ctx, w.part, w.joined, piece, to, attempt > 1)
		w.made = w.made || made
		if err == nil {
			w.joined += piece.Size
			return nil
		}
		if interrupted(err) && attempt < joinAttempts {
			err = api.Pause(w.ctx, time.Duration(attempt)*400*time.Millisecond)
		}
		if err != nil {
			w.trash = append(w.trash, piece.Path)
			return err
		}
	}
}

// interrupted reports whether a command may have done only part of its work:
// its outcome is unknown, or it was killed, as when its session stops.
func interrupted(err error) bool {
	if e, ok := errors.AsType[*coreutils.Error](err); ok {
		return e.ExitCode == 128+int(SIGKILL) || e.ExitCode == 128+int(SIGTERM)
	}
	_, broken := errors.AsType[*StreamError](err)
	return broken || errors.Is(err, ErrOutcomeUnknown)
}

// drop removes everything that exists of the file.
func (w *FileWriter) drop() {
	_ = w.wait() // its error is not the first
	w.buf = nil
	if w.begun {
		w.trash = append(w.trash, w.part)
	}
	w.fs.discard(w.ctx, w.trash...)
}

// discard removes our temporary files in the sandbox, even if ctx has ended,
// but starts no session to do so. Its failure is not reported, since the caller
// can't act on it.
func (f *FileSystem) discard(ctx context.Context, paths ...string) {
	if len(paths) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	on := f.on()
	if sb, ok := on.(*Sandbox); ok {
		if session := sb.CurrentSession(); session != nil {
			on = session
		}
	}
	name, args := coreutils.Carry("rm", append([]string{"-f", "--"}, paths...))
	for range 2 { // the request for the first may be lost
		attempt, stop := context.WithTimeout(ctx, cleanupTime/2)
		_, err := program{name: name, args: args, paths: paths, spared: true}.run(attempt, on)
		late := attempt.Err() != nil
		stop()
		if !late && (err == nil || !interrupted(err)) {
			return
		}
	}
}

// maxInline is how much data is passed as an argument of a command. The system
// limits an argument to 128 KiB, and base64 adds a third.
const maxInline = 64 << 10

// appendAttempts limits how often AppendFile uploads data that disappears before it is
// appended.
const appendAttempts = 3

// AppendFile appends data to the named file in one write, so that concurrent
// appends do not mix and none is lost. The file keeps its mode and is never
// replaced; if it does not exist it is created with mode 0644, along with
// missing parent directories. The file may be of any kind that can be written
// to, and a symbolic link is followed.
//
// Up to 64 KiB take one request; the data is then among the arguments of a
// command, which [Sandbox.ListCommands] shows. Larger data is first uploaded to
// /tmp, to a file that only the user can read. Data is never appended twice: if
// it is unknown whether it was appended, the error matches [ErrOutcomeUnknown].
// Removing an upload after an error may take two seconds, even if ctx has
// ended.
func (f *FileSystem) AppendFile(ctx context.Context, name string, data []byte) error {
	if err := f.enterFile(ctx, "append", name); err != nil {
		return err
	}
	made, err := f.appendFile(ctx, name, data)
	if user, ok := f.on().(*User); ok && made && err == nil {
		err = user.ownParents(ctx, name)
	}
	if err != nil {
		return &fs.PathError{Op: "append", Path: name, Err: reason(err)}
	}
	return nil
}

func (f *FileSystem) appendFile(ctx context.Context, name string, data []byte) (made bool, err error) {
	if len(data) <= maxInline {
		return f.tools(name).Append(ctx, name, data)
	}
	for first := true; first || len(data) > 0; first = false {
		part := data[:min(len(data), coreutils.MaxWrite)]
		data = data[len(part):]
		for attempt := 1; ; attempt++ {
			piece, tried, err := f.uploadPiece(ctx, part)
			if err == nil {
				var madeNow bool
				madeNow, err = f.tools(name).AppendPiece(ctx, name, piece)
				made = made || madeNow
				if _, ran := errors.AsType[*coreutils.Error](err); err != nil && !ran {
					tried = append(tried, piece.Path)
				}
			}
			f.discard(ctx, tried...)
			if err == nil {
				break
			}
			if !errors.Is(err, coreutils.ErrLost) || attempt == appendAttempts {
				return made, err
			}
			// The piece was gone, and nothing was appended.
		}
	}
	return made, nil
}

// uploadPiece writes data to a new file in /tmp that only the user can read.
// Each attempt uses a new name, so that data of an abandoned attempt that
// arrives late does not damage the one that succeeded. tried holds the names of
// the others, which may have to be removed.
func (f *FileSystem) uploadPiece(ctx context.Context, data []byte) (p coreutils.Piece, tried []string, err error) {
	file, err := (&File{Content: data, Mode: new(fs.FileMode(0o600))}).entry(time.Now())
	if err != nil {
		return p, nil, err
	}
	err = send(ctx, f.on(), func(string) (iter.Seq2[tarball.Entry, error], error) {
		file.Name = "tmp/.piece-" + rand.Text()
		tried = append(tried, "/"+file.Name)
		return alone(file), nil
	}, nil)
	if user, ok := f.on().(*User); ok && err == nil {
		err = user.own(ctx, []tarball.Entry{file})
	}
	if err != nil {
		return p, tried, err
	}
	sum, last := sha256.Sum256(data), len(tried)-1
	return coreutils.Piece{Path: tried[last], Size: int64(len(data)), Sum: hex.EncodeToString(sum[:])}, tried[:last], nil
}
