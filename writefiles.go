package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/tarball"
)

// File is a file to be written to a sandbox. At most one of Content, Text,
// Reader and Open is set; a file without any is empty.
type File struct {
	// Path is where the file is written. Relative paths start in the working
	// directory of the session, or in the home directory of the user.
	// Directories that lead to it are made.
	Path string

	// Content is the content of the file.
	Content []byte
	// Text is the content of the file.
	Text string
	// Reader is read from where it stands to its end. It is read again from
	// there when the upload has to be repeated, and is left at its end.
	Reader io.ReadSeeker
	// Open opens the content, which is Size bytes long. It is called again when
	// the upload has to be repeated. What it returns is closed.
	Open func() (io.ReadCloser, error)
	// Size is the length of what Open returns, in bytes.
	Size int64

	// Mode has the permissions of the file and its set-id and sticky bits; nil
	// means 0644. A mode of 0 makes a file that only root can use.
	Mode *fs.FileMode
	// ModTime is when the file was changed last. The zero value means now.
	ModTime time.Time
}

// WriteFilesOptions are the options of WriteFiles.
type WriteFilesOptions struct {
	// Progress is told how much was uploaded.
	Progress ProgressFunc
}

// WriteFiles writes files to the sandbox in one request, replacing those that
// exist. The sources are read once, as the data is sent, and opened again if the
// request has to be repeated; memory does not grow with their size.
//
// A path that is empty or leads to a known directory is refused before anything
// is sent.
func (s *Sandbox) WriteFiles(ctx context.Context, files []File, opts *WriteFilesOptions) error {
	return writeFiles(ctx, s, files, opts)
}

// WriteFiles is as [Sandbox.WriteFiles], but does not resume a session that has
// stopped.
func (s *Session) WriteFiles(ctx context.Context, files []File, opts *WriteFilesOptions) error {
	return writeFiles(ctx, s, files, opts)
}

func writeFiles(ctx context.Context, t target, files []File, opts *WriteFilesOptions) error {
	cwd := t.Cwd()
	entries := make([]tarball.Entry, len(files))
	total := int64(0)
	now := time.Now()
	for i := range files {
		e, err := files[i].entry(cwd, now)
		if err != nil {
			return fmt.Errorf("%w (file number %d)", err, i+1)
		}
		entries[i] = e
		total += e.Size
	}
	var report ProgressFunc
	if opts != nil {
		report = opts.Progress
	}
	return upload(ctx, t, func() iter.Seq2[tarball.Entry, error] { return all(entries) }, newMeter(report, total))
}

func all(entries []tarball.Entry) iter.Seq2[tarball.Entry, error] {
	return func(yield func(tarball.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// entry checks a file and describes it for the archive.
func (f *File) entry(cwd string, now time.Time) (tarball.Entry, error) {
	abs, err := filePath(cwd, f.Path)
	if err != nil {
		return tarball.Entry{}, err
	}
	e := tarball.Entry{Name: entryName(abs), Mode: 0o644, ModTime: f.ModTime}
	if f.Mode != nil {
		if f.Mode.Type() != 0 {
			return e, invalid("Mode", "%v of %q is not the mode of a file", *f.Mode, f.Path)
		}
		e.Mode = *f.Mode
	}
	if e.ModTime.IsZero() {
		e.ModTime = now
	}
	sources := 0
	if f.Content != nil {
		sources++
		data := f.Content
		e.Size = int64(len(data))
		e.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	if f.Text != "" {
		sources++
		text := f.Text
		e.Size = int64(len(text))
		e.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	}
	if f.Reader != nil {
		sources++
		if err := f.seekable(&e); err != nil {
			return e, err
		}
	}
	if f.Open != nil {
		sources++
		if f.Size < 0 {
			return e, invalid("Size", "%d of %q is negative", f.Size, f.Path)
		}
		e.Size, e.Open = f.Size, f.Open
	}
	if sources > 1 {
		return e, invalid("File", "%q has more than one of Content, Text, Reader and Open", f.Path)
	}
	if e.Open == nil {
		e.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }
	}
	return e, nil
}

// seekable makes an entry of a reader.
func (f *File) seekable(e *tarball.Entry) error {
	start, err := f.Reader.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("sandbox: the reader of %q: %w", f.Path, err)
	}
	end, err := f.Reader.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("sandbox: the reader of %q: %w", f.Path, err)
	}
	r := f.Reader
	e.Size = max(0, end-start)
	e.Open = func() (io.ReadCloser, error) {
		_, err := r.Seek(start, io.SeekStart)
		return io.NopCloser(r), err
	}
	return nil
}

// upload sends an archive, which is made anew by entries for each attempt, and
// hands over what it wrote.
func upload(ctx context.Context, t target, entries func() iter.Seq2[tarball.Entry, error], m *meter) error {
	open := tarball.Opener(ctx, func() iter.Seq2[tarball.Entry, error] {
		m.restart()
		return metered(entries(), m)
	})
	var last lastBody
	// net/http does not return before a Read of the body does, so a source that
	// is stuck would hold up whoever gives up.
	stop := context.AfterFunc(ctx, last.close)
	err := t.uploadTarGz(ctx, func() (io.ReadCloser, error) {
		rc, err := open()
		last.set(rc)
		if ctx.Err() != nil {
			last.close()
		}
		return rc, err
	})
	stop()
	last.end()
	if err != nil {
		return err
	}
	if o, ok := t.(owner); ok {
		return o.own(ctx, entries())
	}
	return nil
}

// lastBody sees to it that an upload which was answered before it was read to
// its end leaves the sources, and the progress callback, alone.
type lastBody struct {
	mu   sync.Mutex
	body io.ReadCloser
}

func (l *lastBody) set(rc io.ReadCloser) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.body = rc
}

func (l *lastBody) get() *tarball.Body {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, _ := l.body.(*tarball.Body)
	return b
}

// close ends the reading of the body and of a source.
func (l *lastBody) close() {
	if b := l.get(); b != nil {
		_ = b.Close() // nobody wants the rest
	}
}

// end closes the body and waits until the sources are left alone. One whose Read
// does not return although it was closed is left behind.
func (l *lastBody) end() {
	b := l.get()
	if b == nil {
		return
	}
	l.close()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-b.Done():
	case <-timer.C:
	}
}

// metered counts the content of entries as it is read.
func metered(entries iter.Seq2[tarball.Entry, error], m *meter) iter.Seq2[tarball.Entry, error] {
	if m == nil {
		return entries
	}
	return func(yield func(tarball.Entry, error) bool) {
		for e, err := range entries {
			if open := e.Open; open != nil {
				name := "/" + e.Name
				e.Open = func() (io.ReadCloser, error) {
					rc, err := open()
					if err != nil {
						return nil, err
					}
					return m.reader(name, rc), nil
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
