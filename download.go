package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// DownloadFileOptions are the options of DownloadFile.
type DownloadFileOptions struct {
	// Cwd is the directory in the sandbox that a relative path starts in. The
	// default is the working directory of the session, or the home directory of
	// the user.
	Cwd string
	// MkdirAll makes the local directories that lead to the file.
	MkdirAll bool
	// Progress is told how much was downloaded.
	Progress ProgressFunc
}

// DownloadFile copies the file src of the sandbox to the local file dst.
//
// The content is written to a temporary file beside dst, which gets the name dst
// when it is whole: nobody ever sees a part of it, and after an error dst is what
// it was. A connection that breaks is tried twice again, from the beginning of
// the file. A local file that exists is replaced and keeps its permissions; one
// that may not be written to is an error.
//
// The error of a file that is missing in the sandbox is a [*fs.PathError] that
// matches [fs.ErrNotExist], with src as its path; those of the local disk have
// dst.
func (s *Sandbox) DownloadFile(ctx context.Context, src, dst string, opts *DownloadFileOptions) error {
	return downloadFile(ctx, s, src, dst, opts)
}

// DownloadFile is as [Sandbox.DownloadFile], but does not resume a session that
// has stopped.
func (s *Session) DownloadFile(ctx context.Context, src, dst string, opts *DownloadFileOptions) error {
	return downloadFile(ctx, s, src, dst, opts)
}

// downloadAttempts is how often a file is asked for when its connection breaks.
const downloadAttempts = 3

func downloadFile(ctx context.Context, t target, src, dst string, opts *DownloadFileOptions) error {
	var o DownloadFileOptions
	if opts != nil {
		o = *opts
	}
	if src == "" {
		return invalid("src", "is empty; the path of a file in the sandbox is needed")
	}
	if dst == "" {
		return invalid("dst", "is empty; the path of a local file is needed")
	}
	open := func() (*FileReader, error) {
		return openFile(ctx, t, src, &ReadFileOptions{Cwd: o.Cwd, Progress: o.Progress})
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer func() { r.Close() }()

	if o.MkdirAll {
		if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
			return err
		}
	}
	w, err := createPart(dst)
	if err != nil {
		return err
	}
	defer w.discard()
	for attempt := 1; ; attempt++ {
		err := w.fill(ctx, r)
		if err == nil {
			return w.commit()
		}
		if !errors.Is(err, errBroken) || ctx.Err() != nil || attempt == downloadAttempts {
			return err
		}
		if _, refused := errors.AsType[*FSError](err); refused {
			return err // a broken disk, not a broken connection
		}
		if err := pause(ctx, time.Duration(attempt)*400*time.Millisecond); err != nil {
			return err
		}
		r.Close()
		again, err := open()
		if err != nil {
			return err
		}
		r = again
		if err := w.rewind(); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errBroken marks a download that the other side ended early.
var errBroken = errors.New("the download broke off")

// brokenError is an error of the source, apart from those of the local disk.
type brokenError struct{ error }

func (e brokenError) Unwrap() []error { return []error{errBroken, e.error} }

// part is a local file on its way to its name.
type part struct {
	file *os.File
	name string // as the caller calls it, for errors
	dst  string // where it goes, which a symbolic link may say
}

// createPart makes a temporary file beside dst. Its errors are those that
// opening dst itself would give.
func createPart(dst string) (*part, error) {
	p := &part{name: dst, dst: dst}
	mode, exists := fs.FileMode(0), false
	if real, err := filepath.EvalSymlinks(dst); err == nil {
		p.dst = real
		info, err := os.Stat(real)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return nil, &fs.PathError{Op: "open", Path: dst, Err: syscall.EISDIR}
		}
		if !info.Mode().IsRegular() {
			return nil, &fs.PathError{Op: "open", Path: dst, Err: errors.New("is not a regular file")}
		}
		// Replacing a file needs no right to write to it, but whoever took that
		// right away meant it.
		f, err := os.OpenFile(dst, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.Close()
		mode, exists = info.Mode().Perm(), true
	}
	tmp := filepath.Join(filepath.Dir(p.dst), ".download-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, p.fail("open", err)
	}
	p.file = f
	if exists {
		if err := f.Chmod(mode); err != nil {
			p.discard()
			return nil, p.fail("chmod", err)
		}
	}
	return p, nil
}

// fail gives an error of the temporary file the name that the caller knows.
func (p *part) fail(op string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: pe.Op, Path: p.name, Err: pe.Err}
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: le.Op, Path: p.name, Err: le.Err}
	}
	return &fs.PathError{Op: op, Path: p.name, Err: err}
}

// fill copies r to the file. An error of r matches errBroken.
func (p *part) fill(ctx context.Context, r io.Reader) error {
	buf := transferBuffers.Get().(*[256 << 10]byte)
	defer transferBuffers.Put(buf)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			if _, err := p.file.Write(buf[:n]); err != nil {
				return p.fail("write", err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return brokenError{err}
		}
	}
}

// rewind empties the file for another attempt.
func (p *part) rewind() error {
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return p.fail("seek", err)
	}
	if err := p.file.Truncate(0); err != nil {
		return p.fail("truncate", err)
	}
	return nil
}

// commit gives the file its name.
func (p *part) commit() error {
	if err := p.file.Close(); err != nil {
		return p.fail("close", err)
	}
	if err := os.Rename(p.file.Name(), p.dst); err != nil {
		return p.fail("rename", err)
	}
	return nil
}

// discard removes what was not committed.
func (p *part) discard() {
	p.file.Close()
	os.Remove(p.file.Name())
}
