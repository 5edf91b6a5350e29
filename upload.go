package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/filefilter"
	"github.com/go-vercel/sandbox/internal/localfile"
	"github.com/go-vercel/sandbox/internal/tarball"
	"github.com/go-vercel/sandbox/internal/untar"
	"github.com/go-vercel/sandbox/observe"
)

// UploadOptions are the options of UploadDir and CopyFS. The zero
// value uploads everything.
type UploadOptions struct {
	// Include, if not empty, lists patterns of what to upload, and Exclude
	// lists patterns of what to leave out, which takes precedence. The syntax
	// is that of [path.Match], except that the element "**" matches any number
	// of elements. A pattern is matched against the path of a file relative to
	// the directory and against those of its parent directories; one without a
	// slash is matched against each of their names.
	Include, Exclude []string
	// OutsideLinks keeps symbolic links that lead out of the directory. They are
	// left out by default: in the sandbox they would lead to something else.
	OutsideLinks bool
	// LeftOut, if not nil, is called at the end with each path, relative to the directory,
	// that was not copied: sockets, pipes, devices, and the links that OutsideLinks would
	// keep.
	LeftOut func(name string)
	// Progress, if not nil, is called as the upload proceeds.
	Progress func(Progress)
}

// UploadDir copies the local directory localDir into the directory dir of the
// sandbox, with one request and in constant memory. Existing files are
// replaced, others are left alone. Permissions, modification times and symbolic
// links are preserved; a link to an absolute path in localDir becomes relative.
//
// Sockets, pipes, devices and symbolic links that lead out of localDir are left
// out: see [UploadOptions.LeftOut]. Files that can't be read, or that change
// or vanish meanwhile, don't stop the upload: the error at its end is a
// [*ChangedError] that names them.
func (f *FileSystem) UploadDir(ctx context.Context, localDir, dir string, opts *UploadOptions) error {
	if _, err := enter(ctx, f); err != nil {
		return err
	}
	if localDir == "" {
		return invalid("localDir", "is empty; the path of a local directory is needed")
	}
	root, err := os.OpenRoot(localDir)
	if err != nil {
		return err
	}
	defer root.Close()
	abs, err := filepath.Abs(localDir)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		real = abs // Windows can't resolve every kind of link
	}
	tree := localTree{root, [2]string{filepath.ToSlash(abs), filepath.ToSlash(real)}}
	return uploadTree(ctx, f.target(), dir, localDir, tree, opts, func(m fs.FileMode) fs.FileMode { return m &^ fs.ModeType })
}

// CopyFS copies the file system fsys into the directory dir of the sandbox, with
// one request and in constant memory. Existing files are replaced.
//
// As with [os.CopyFS], files are created with mode 0644, or 0755 if anyone may execute
// them, and directories with mode 0755. Symbolic links are preserved if fsys is an
// [fs.ReadLinkFS]. CopyFS leaves out the same kinds of files as [FileSystem.UploadDir],
// and handles files that can't be read in the same way.
func (f *FileSystem) CopyFS(ctx context.Context, dir string, fsys fs.FS, opts *UploadOptions) error {
	if _, err := enter(ctx, f); err != nil {
		return err
	}
	if fsys == nil {
		return invalid("fsys", "is nil")
	}
	return uploadTree(ctx, f.target(), dir, "", fsTree{fsys}, opts, copiedMode)
}

// File is a file to write to a sandbox. Set Content or Reader, but not both. Without
// either, the file is empty.
type File struct {
	// Path is the file's path. A relative path is resolved in the working
	// directory of the session, or in the home directory of the user. Missing
	// parent directories are created.
	Path string

	// Content is the content of the file.
	Content []byte
	// Reader is read from its current position to the end that it has when the call begins.
	// It is read again from that position if the upload is retried.
	Reader io.ReadSeeker

	// Mode holds the file's permissions and its set-id and sticky bits; nil
	// means 0644. A file of mode 0 is accessible only to root.
	Mode *fs.FileMode
	// ModTime is the file's modification time. The zero value means now.
	ModTime time.Time
}

// WriteFilesOptions are the options of [FileSystem.WriteFiles].
type WriteFilesOptions struct {
	// Progress, if not nil, is called as the upload proceeds.
	Progress func(Progress)
}

// WriteFiles writes files to the sandbox with one request, replacing existing
// files and symbolic links. Sources are streamed, and read again for a retry.
// If a source's Read hangs when ctx ends, WriteFiles returns within a second.
//
// A source that can't be read, or ends early, is an error at once. If a source grows
// during the call, WriteFiles writes as much as it had at the beginning and returns a
// [*ChangedError].
//
// A relative path starts in the working directory of the session that receives
// the files. ".." removes the element before it, even a symbolic link; trailing
// slashes are ignored. A path that is empty or names a known directory is
// refused.
//
// The API unpacks the files in place: other processes may see part of a file, a
// failed call may leave one, and late data of a broken first attempt can
// truncate one after the call has succeeded. [FileSystem.Create] has none of
// these effects.
func (f *FileSystem) WriteFiles(ctx context.Context, files []File, opts *WriteFilesOptions) error {
	if _, err := enter(ctx, f); err != nil {
		return err
	}
	opts = cmp.Or(opts, &WriteFilesOptions{})
	report := &copyReport{}
	entries := make([]tarball.Entry, len(files))
	total := int64(0)
	now := time.Now()
	for i := range files {
		e, err := files[i].entry(now)
		if err != nil {
			return fmt.Errorf("%w (file number %d)", err, i+1)
		}
		e.Fault = func(err error) error {
			if !errors.Is(err, tarball.ErrChanged) || errors.Is(err, io.ErrUnexpectedEOF) {
				return err
			}
			report.addFault(files[i].Path, err)
			return nil
		}
		entries[i] = e
		total += e.Size
	}
	err := upload(ctx, f.target(), func(cwd string) (iter.Seq2[tarball.Entry, error], error) {
		names := make([]string, len(files))
		for i := range files {
			abs, err := filePath(cwd, files[i].Path)
			if err != nil {
				return nil, fmt.Errorf("%w (file number %d)", err, i+1)
			}
			names[i] = entryName(abs)
		}
		return func(yield func(tarball.Entry, error) bool) {
			report.reset()
			for i, e := range entries {
				if e.Name = names[i]; !yield(e, nil) {
					return
				}
			}
		}, nil
	}, newMeter(opts.Progress, total))
	return cmp.Or(err, report.err(""))
}

// WriteFiles is short for the method of [Sandbox.FS].
func (s *Sandbox) WriteFiles(ctx context.Context, files []File, opts *WriteFilesOptions) error {
	return s.FS().WriteFiles(ctx, files, opts)
}

// singleEntry returns an archive of one entry.
func singleEntry(e tarball.Entry) iter.Seq2[tarball.Entry, error] {
	return func(yield func(tarball.Entry, error) bool) { yield(e, nil) }
}

// entry checks a file and describes it for the archive, without its path.
func (f *File) entry(now time.Time) (tarball.Entry, error) {
	e := tarball.Entry{Label: f.Path, Mode: 0o644, ModTime: f.ModTime}
	if f.Mode != nil {
		if f.Mode.Type() != 0 {
			return e, invalid("Mode", "%v of %q is not the mode of a file", *f.Mode, f.Path)
		}
		e.Mode = *f.Mode
	}
	if e.ModTime.IsZero() {
		e.ModTime = now
	}
	r := f.Reader
	switch {
	case r == nil:
		r = bytes.NewReader(f.Content)
	case f.Content != nil:
		return e, invalid("File", "%q has both Content and Reader", f.Path)
	}
	c, err := contentOf(r)
	if err != nil {
		return e, fmt.Errorf("sandbox: the reader of %q: %w", f.Path, err)
	}
	e.Size, e.Open = c.size, c.open
	return e, nil
}

// content is the data of a reader from its current position to its end. Each attempt opens
// it again.
type content struct {
	r           io.ReadSeeker
	start, size int64
}

func contentOf(r io.ReadSeeker) (content, error) {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return content{}, err
	}
	end, err := r.Seek(0, io.SeekEnd)
	return content{r, start, max(0, end-start)}, err
}

func (c content) open() (io.ReadCloser, error) {
	_, err := c.r.Seek(c.start, io.SeekStart)
	return io.NopCloser(c.r), err
}

// archiveFor makes an archive for the working directory of the session that receives it. The
// directory can be another one after a resume.
type archiveFor func(cwd string) (iter.Seq2[tarball.Entry, error], error)

// upload sends an archive and sets the owner of the written files.
func upload(ctx context.Context, t target, archive archiveFor, m *meter) error {
	// Refuse an impossible path before any request.
	if _, err := archive(t.cwd()); err != nil {
		return err
	}
	// The API writes files as the sandbox's default user.
	user, owned := t.(*User)
	if !owned {
		return send(ctx, t, archive, m)
	}
	var written []tarball.Entry
	err := send(ctx, t, func(cwd string) (iter.Seq2[tarball.Entry, error], error) {
		entries, err := archive(cwd)
		return func(yield func(tarball.Entry, error) bool) {
			written = nil
			for e, err := range entries {
				e.Written = func() { written = append(written, e) }
				if !yield(e, err) {
					return
				}
			}
		}, err
	}, m)
	if err != nil {
		return err
	}
	return user.ownUploads(ctx, written)
}

func send(ctx context.Context, t target, archive archiveFor, m *meter) error {
	c, err := enter(ctx, t)
	if err != nil {
		return err
	}
	ctx, e := c.beginEvent(ctx, t, observe.Event{Kind: observe.Upload})
	var entries iter.Seq2[tarball.Entry, error] // of the attempt
	open := tarball.Opener(ctx, func() iter.Seq2[tarball.Entry, error] {
		m.restart()
		return metered(entries, m)
	})
	var last lastBody
	// net/http does not return before a Read of the body does, so a source that
	// is stuck would delay the caller.
	stop := context.AfterFunc(ctx, last.close)
	e.Sent, err = t.uploadTarGz(ctx, func(cwd string) (rc io.ReadCloser, err error) {
		if entries, err = archive(cwd); err != nil {
			return nil, err
		}
		rc, err = open()
		last.set(rc)
		if ctx.Err() != nil {
			last.close()
		}
		return rc, err
	})
	stop()
	last.end()
	endEvent(&e, err)
	return err
}

// lastBody ensures that the sources and the progress callback are no longer used after an
// upload, even if the response arrived early.
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

// close stops reading the body and its source.
func (l *lastBody) close() {
	if b := l.get(); b != nil {
		_ = b.Close() // the rest is unwanted
	}
}

// end closes the body and waits until the sources are no longer used. It gives up on a
// source if Read does not return after Close.
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

// copiedMode returns the mode that os.CopyFS uses.
func copiedMode(m fs.FileMode) fs.FileMode {
	if m.IsDir() {
		return 0o777 &^ umask
	}
	return (0o666 | m.Perm()) &^ umask
}

// tree is a tree of files to upload. Its methods take slash-separated names
// below its root, as returned by the tree itself.
type tree interface {
	readDir(name string) ([]fs.DirEntry, error)
	readLink(name string) (string, error)
	// open opens a file. Closing it returns [tarball.ErrChanged] if it was written
	// to since modTime, as far as the tree can tell.
	open(name string, modTime time.Time) (io.ReadCloser, error)
}

type fsTree struct{ fsys fs.FS }

func (t fsTree) readDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(t.fsys, name) }

func (t fsTree) readLink(name string) (string, error) { return fs.ReadLink(t.fsys, name) }

func (t fsTree) open(name string, _ time.Time) (io.ReadCloser, error) { return t.fsys.Open(name) }

// localTree is a local directory. Unlike its fs.FS it supports names that are
// not valid UTF-8.
type localTree struct {
	root  *os.Root
	paths [2]string // absolute, slash-separated: as the caller named it, and without links
}

func (t localTree) readDir(name string) ([]fs.DirEntry, error) {
	f, err := t.root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(-1)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

func (t localTree) readLink(name string) (string, error) {
	target, err := t.root.Readlink(filepath.FromSlash(name))
	target = filepath.ToSlash(target)
	for _, base := range t.paths {
		target = untar.Inside(name, target, base)
	}
	return target, err
}

func (t localTree) open(name string, modTime time.Time) (io.ReadCloser, error) {
	f, err := t.root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	return localSource{f, modTime}, nil
}

// localSource is a local file that is being read.
type localSource struct {
	*os.File
	modTime time.Time
}

func (s localSource) Close() error {
	info, err := s.Stat()
	if closeErr := s.File.Close(); err == nil {
		err = closeErr
	}
	if err == nil && !info.ModTime().Equal(s.modTime) {
		return tarball.ErrChanged
	}
	return err
}

func uploadTree(ctx context.Context, t target, dir, path string, from tree, opts *UploadOptions, mode func(fs.FileMode) fs.FileMode) error {
	if dir == "" {
		return invalid("dir", "is empty; the path of a directory in the sandbox is needed")
	}
	o := orZero(opts)
	filter, err := newFilter(o.Include, o.Exclude)
	if err != nil {
		return err
	}
	w := &walker{ctx: ctx, tree: from, filter: filter, mode: mode, outsideLinks: o.OutsideLinks, report: &copyReport{}}
	var m *meter
	if o.Progress != nil {
		total := int64(0)
		for e, err := range w.entries() {
			if err != nil {
				return err
			}
			total += e.Size
		}
		m = newMeter(o.Progress, total)
	}
	err = upload(ctx, t, func(cwd string) (iter.Seq2[tarball.Entry, error], error) {
		abs, err := absolutePath(cwd, dir)
		at := *w
		at.base = entryName(abs)
		return at.entries(), err
	}, m)
	w.report.callLeftOut(o.LeftOut)
	return cmp.Or(err, w.report.err(path))
}

// walker describes a tree for an archive, one directory at a time.
type walker struct {
	ctx          context.Context
	tree         tree
	filter       *filefilter.Filter
	base         string // the entry name of the root
	mode         func(fs.FileMode) fs.FileMode
	outsideLinks bool
	report       *copyReport
}

// entries yields everything below the root. A directory follows its content, so
// that its permissions and time are set last. The root itself is included only
// if it is empty: it may well exist already, with permissions that must not
// change.
func (w *walker) entries() iter.Seq2[tarball.Entry, error] {
	return func(yield func(tarball.Entry, error) bool) {
		w.report.reset()
		count := 0
		counted := func(e tarball.Entry, err error) bool {
			count++
			return yield(e, err)
		}
		if !w.walk(".", false, counted) || count > 0 || w.base == "" {
			return
		}
		yield(tarball.Entry{Name: w.base, Mode: fs.ModeDir | 0o777&^umask}, nil)
	}
}

// walk yields everything below dir and reports whether to continue. whole means
// that a pattern has included dir, and thus everything in it.
func (w *walker) walk(dir string, whole bool, yield func(tarball.Entry, error) bool) bool {
	list, err := w.tree.readDir(dir)
	if err != nil {
		if dir == "." {
			yield(tarball.Entry{}, err)
			return false
		}
		w.report.addFault(dir, err)
		return true
	}
	for _, d := range list {
		if w.ctx.Err() != nil {
			yield(tarball.Entry{}, api.ContextError(w.ctx))
			return false
		}
		name := path.Join(dir, d.Name())
		if w.filter.Excluded(name) || localfile.IsTemp(d.Name()) { // left by a download that was killed
			continue
		}
		included := whole || w.filter.Included(name)
		if d.IsDir() && !w.walk(name, included, yield) {
			return false
		}
		if !included || w.report.has(name) { // a directory that can't be read
			continue
		}
		e, ok, err := w.entry(name, d)
		if err != nil {
			w.report.addFault(name, err)
		} else if ok && !yield(e, nil) {
			return false
		}
	}
	return true
}

// entry describes a file. It returns false for one that is not copied.
func (w *walker) entry(name string, d fs.DirEntry) (e tarball.Entry, ok bool, err error) {
	info, err := d.Info()
	if err != nil {
		return e, false, err
	}
	e = tarball.Entry{Name: path.Join(w.base, name), ModTime: info.ModTime()}
	switch info.Mode().Type() {
	case 0:
		e.Mode, e.Size = w.mode(info.Mode()), info.Size()
		e.Open = func() (io.ReadCloser, error) { return w.tree.open(name, info.ModTime()) }
		e.Fault = func(err error) error {
			if w.ctx.Err() != nil {
				return err
			}
			w.report.addFault(name, err)
			return nil
		}
	case fs.ModeDir:
		e.Mode = fs.ModeDir | w.mode(info.Mode())
	case fs.ModeSymlink:
		e.Mode = fs.ModeSymlink | 0o777
		e.Linkname, err = w.tree.readLink(name)
		if err == nil && !w.outsideLinks && untar.Leads(name, e.Linkname) {
			w.report.addLeftOut(name)
			return e, false, nil
		}
	default:
		w.report.addLeftOut(name)
		return e, false, nil
	}
	return e, err == nil, err
}
