package sandbox

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/glob"
	"github.com/go-vercel/sandbox/internal/localfile"
	"github.com/go-vercel/sandbox/internal/tarball"
	"github.com/go-vercel/sandbox/internal/untar"
)

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
	root *os.Root
	path string // absolute, slash-separated
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
	return untar.Inside(name, filepath.ToSlash(target), t.path), err
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
	var o UploadOptions
	if opts != nil {
		o = *opts
	}
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
	w.report.tell(o.LeftOut)
	return cmp.Or(err, w.report.err(path))
}

// walker describes a tree for an archive, one directory at a time.
type walker struct {
	ctx          context.Context
	tree         tree
	filter       *glob.Filter
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
		w.report.fault(dir, err)
		return true
	}
	for _, d := range list {
		if w.ctx.Err() != nil {
			yield(tarball.Entry{}, api.ContextError(w.ctx))
			return false
		}
		name := path.Join(dir, d.Name())
		if w.filter.Excluded(name) || localfile.IsTemp(d.Name()) { // of a download that was killed
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
			w.report.fault(name, err)
		} else if ok && !yield(e, nil) {
			return false
		}
	}
	return true
}

// entry describes a file. It returns false for one that a copy does not carry.
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
			w.report.fault(name, err)
			return nil
		}
	case fs.ModeDir:
		e.Mode = fs.ModeDir | w.mode(info.Mode())
	case fs.ModeSymlink:
		e.Mode = fs.ModeSymlink | 0o777
		e.Linkname, err = w.tree.readLink(name)
		if err == nil && !w.outsideLinks && untar.Leads(name, e.Linkname) {
			w.report.omit(name)
			return e, false, nil
		}
	default:
		w.report.omit(name)
		return e, false, nil
	}
	return e, err == nil, err
}
