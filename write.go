package sandbox

import (
	"cmp"
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
	return w, nil
}

// FileWriter writes a file of a sandbox. It is not safe for concurrent use.
//
// The API accepts only whole files. The writer therefore uploads pieces of 8 MiB to
// /tmp, one after the other. For each piece it runs a command that checks the SHA-256
// and appends the piece to a temporary file in the directory of the final one. The last
// command renames that file. A file of up to 8 MiB takes two requests. The writer holds
// 8 MiB in memory.
//
// If the session ends, the writer continues in the next one. It fails if the sandbox
// has lost the pieces, because it is not persistent or its machine crashed. After an
// error the writer removes its files from the sandbox, which may take two seconds, even
// if ctx has ended.
type FileWriter struct {
	ctx   context.Context
	fs    *FileSystem
	name  string
	mode  fs.FileMode
	meter *meter

	buf    []byte // up to pieceSize bytes that are not uploaded yet
	part   string // the temporary file that the pieces are appended to; empty before the first
	closed bool
	err    error // the first error, which ends the writer

	joining chan error // receives the result of the running join; nil if none runs
	// The running join uses the fields below.
	joined int64    // the length of the part
	made   bool     // missing parent directories were created
	trash  []string // temporary files that may remain in the sandbox
}

// Write implements [io.Writer]. It uploads each piece that p completes, and keeps the
// rest for a later call.
func (w *FileWriter) Write(p []byte) (int, error) {
	if w == nil || w.fs == nil {
		return 0, errZeroFile
	}
	if w.closed {
		return 0, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	if w.buf == nil && len(p) > 0 {
		w.buf = make([]byte, 0, pieceSize)
	}
	n := 0
	for len(p) > 0 && w.err == nil {
		switch {
		case w.ctx.Err() != nil:
			w.fail("write", w.ctx.Err())
		case len(w.buf) == pieceSize:
			w.flush("write", nil)
		default:
			m := min(len(p), pieceSize-len(w.buf))
			w.buf = append(w.buf, p[:m]...)
			n, p = n+m, p[m:]
		}
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
	w.err = &fs.PathError{Op: op, Path: w.name, Err: programError(apiFileError(err))}
}

// flush uploads the buffer as a piece, waits for the join of the previous piece, and
// starts the join of this one, which runs during the next upload. For the last piece, to
// is the file's placement, and flush waits for the join. Even an empty file has a piece,
// which the join removes: a late repetition of the join finds no piece, and does nothing.
func (w *FileWriter) flush(op string, to *coreutils.Placement) {
	piece, tried, err := w.fs.uploadPiece(w.ctx, w.buf)
	err = cmp.Or(err, w.waitJoin())
	w.trash = append(w.trash, tried...)
	if err != nil {
		if piece.Path != "" {
			w.trash = append(w.trash, piece.Path)
		}
		w.fail(op, err)
		return
	}
	w.buf = w.buf[:0]
	w.meter.add(w.name, int(piece.Size))
	w.part = cmp.Or(w.part, coreutils.Dir(w.name)+"/.write-"+rand.Text())
	w.joining = make(chan error, 1)
	go func() { w.joining <- w.join(piece, to) }()
	if to != nil {
		if err := w.waitJoin(); err != nil {
			w.fail(op, err)
		}
	}
}

// waitJoin waits for the running join and returns its error.
func (w *FileWriter) waitJoin() error {
	if w.joining == nil {
		return nil
	}
	err := <-w.joining
	w.joining = nil
	return err
}

// join runs the command that appends a piece to the part and, if to is not nil, renames
// the part. The command is idempotent, so join repeats it if its outcome is unknown.
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

// interrupted reports whether a command may have done only part of its work: its
// outcome is unknown, or it was killed because its session stopped.
func interrupted(err error) bool {
	if e, ok := errors.AsType[*coreutils.Error](err); ok {
		return e.ExitCode == 128+int(SIGKILL) || e.ExitCode == 128+int(SIGTERM)
	}
	_, broken := errors.AsType[*StreamError](err)
	return broken || errors.Is(err, ErrOutcomeUnknown)
}

// drop removes the part and the pieces.
func (w *FileWriter) drop() {
	_ = w.waitJoin() // the file is discarded anyway
	w.buf = nil
	if w.part != "" {
		w.trash = append(w.trash, w.part)
	}
	w.fs.discard(w.ctx, w.trash...)
}

// discard removes temporary files of this package from the sandbox, even if ctx has
// ended, but starts no session for that. It reports no failure, because the caller can't
// act on one.
func (f *FileSystem) discard(ctx context.Context, paths ...string) {
	if len(paths) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	on := f.target()
	if sb, ok := on.(*Sandbox); ok {
		if session := sb.CurrentSession(); session != nil {
			on = session
		}
	}
	name, args := coreutils.Carry("rm", append([]string{"-f", "--"}, paths...))
	for range 2 { // the first request may be lost
		attempt, stop := context.WithTimeout(ctx, cleanupTime/2)
		_, err := program{name: name, args: args, paths: paths, outlives: true}.run(attempt, on)
		timedOut := attempt.Err() != nil
		stop()
		if !timedOut && !interrupted(err) {
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
	if user, ok := f.target().(*User); ok && made && err == nil {
		err = user.ownParents(ctx, name)
	}
	if err != nil {
		return &fs.PathError{Op: "append", Path: name, Err: programError(err)}
	}
	return nil
}

func (f *FileSystem) appendFile(ctx context.Context, name string, data []byte) (made bool, err error) {
	if len(data) <= maxInline {
		return f.tools(name).Append(ctx, name, data)
	}
	for len(data) > 0 && err == nil {
		part := data[:min(len(data), coreutils.MaxWrite)]
		data = data[len(part):]
		var madeNow bool
		madeNow, err = f.appendUpload(ctx, name, part)
		made = made || madeNow
	}
	return made, err
}

// appendUpload uploads data and appends it to the named file. It starts again if the
// upload is gone when the command runs: nothing was appended then.
func (f *FileSystem) appendUpload(ctx context.Context, name string, data []byte) (made bool, err error) {
	for range appendAttempts {
		piece, trash, uploadErr := f.uploadPiece(ctx, data)
		if err = uploadErr; err == nil {
			made, err = f.tools(name).AppendPiece(ctx, name, piece)
			if _, ran := errors.AsType[*coreutils.Error](err); err != nil && !ran {
				trash = append(trash, piece.Path) // a command that ran has removed it
			}
		}
		f.discard(ctx, trash...)
		if !errors.Is(err, coreutils.ErrLost) {
			break
		}
	}
	return made, err
}

// uploadPiece writes data to a new file in /tmp that only the user can read. Each
// attempt uses a new name, so that data of an abandoned attempt that arrives late does
// not damage the piece. tried lists the names of the failed attempts, whose files may
// have to be removed.
func (f *FileSystem) uploadPiece(ctx context.Context, data []byte) (p coreutils.Piece, tried []string, err error) {
	file, err := (&File{Content: data, Mode: new(fs.FileMode(0o600))}).entry(time.Now())
	if err != nil {
		return p, nil, err
	}
	err = send(ctx, f.target(), func(string) (iter.Seq2[tarball.Entry, error], error) {
		file.Name = "tmp/.piece-" + rand.Text()
		tried = append(tried, "/"+file.Name)
		return singleEntry(file), nil
	}, nil)
	if user, ok := f.target().(*User); ok && err == nil {
		err = user.ownUploads(ctx, []tarball.Entry{file})
	}
	if err != nil {
		return p, tried, err
	}
	sum, last := sha256.Sum256(data), len(tried)-1
	return coreutils.Piece{Path: tried[last], Size: int64(len(data)), Sum: hex.EncodeToString(sum[:])}, tried[:last], nil
}
