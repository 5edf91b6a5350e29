package sandbox

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/tarball"
)

// UploadOptions are the options of CopyFS and UploadDir.
type UploadOptions struct {
	// Include, if not empty, has patterns of what to upload, and Exclude has
	// patterns of what to leave out, which wins. A pattern is one of
	// [path.Match] whose element "**" stands for any number of elements. It is
	// compared with the path of a file below the directory, and with those of
	// the directories that lead to it; a pattern without a slash is compared
	// with each of their names.
	Include, Exclude []string
	// Progress is told how much was uploaded.
	Progress ProgressFunc
}

// CopyFS writes the files of fsys below the directory dir of the sandbox, in one
// request and in constant memory. Files that exist are replaced.
//
// As with [os.CopyFS] the files are made with mode 0644, or 0755 if somebody may
// execute them, and the directories with mode 0755. Symbolic links are kept if
// fsys is an [fs.ReadLinkFS]; other files that are not regular are an error.
func (s *Sandbox) CopyFS(ctx context.Context, dir string, fsys fs.FS, opts *UploadOptions) error {
	return copyFS(ctx, s, dir, fsys, opts)
}

// CopyFS is as [Sandbox.CopyFS], but does not resume a session that has stopped.
func (s *Session) CopyFS(ctx context.Context, dir string, fsys fs.FS, opts *UploadOptions) error {
	return copyFS(ctx, s, dir, fsys, opts)
}

// UploadDir writes the files below the local directory localDir to the directory
// dir of the sandbox, in one request and in constant memory. Files that exist
// are replaced, others are left alone. Permissions and modification times are
// kept, and so are symbolic links, which are not followed. Local files that are
// neither are an error.
func (s *Sandbox) UploadDir(ctx context.Context, localDir, dir string, opts *UploadOptions) error {
	return uploadDir(ctx, s, localDir, dir, opts)
}

// UploadDir is as [Sandbox.UploadDir], but does not resume a session that has
// stopped.
func (s *Session) UploadDir(ctx context.Context, localDir, dir string, opts *UploadOptions) error {
	return uploadDir(ctx, s, localDir, dir, opts)
}

func uploadDir(ctx context.Context, t target, localDir, dir string, opts *UploadOptions) error {
	if localDir == "" {
		return invalid("localDir", "is empty; the path of a local directory is needed")
	}
	root, err := os.OpenRoot(localDir)
	if err != nil {
		return err
	}
	defer root.Close()
	return uploadTree(ctx, t, dir, localTree{root}, opts, func(m fs.FileMode) fs.FileMode { return m &^ fs.ModeType })
}

// copiedMode is the mode that os.CopyFS gives.
func copiedMode(m fs.FileMode) fs.FileMode {
	if m.IsDir() {
		return 0o777 &^ umask
	}
	return (0o666 | m.Perm()) &^ umask
}

func copyFS(ctx context.Context, t target, dir string, fsys fs.FS, opts *UploadOptions) error {
	return uploadTree(ctx, t, dir, fsTree{fsys}, opts, copiedMode)
}

// tree is what is uploaded. The names that it is asked for are slash-separated
// and below it, and those that it gave.
type tree interface {
	readDir(name string) ([]fs.DirEntry, error)
	readLink(name string) (string, error)
	open(name string) (io.ReadCloser, error)
}

type fsTree struct{ fsys fs.FS }

func (t fsTree) readDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(t.fsys, name) }
func (t fsTree) readLink(name string) (string, error)       { return fs.ReadLink(t.fsys, name) }
func (t fsTree) open(name string) (io.ReadCloser, error)    { return t.fsys.Open(name) }

// localTree is a local directory. Other than its fs.FS it takes names that are
// not UTF-8.
type localTree struct{ root *os.Root }

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
	return filepath.ToSlash(target), err
}

func (t localTree) open(name string) (io.ReadCloser, error) {
	return t.root.Open(filepath.FromSlash(name))
}

func uploadTree(ctx context.Context, t target, dir string, from tree, opts *UploadOptions, mode func(fs.FileMode) fs.FileMode) error {
	if dir == "" {
		return invalid("dir", "is empty; the path of a directory in the sandbox is needed")
	}
	var o UploadOptions
	if opts != nil {
		o = *opts
	}
	abs, err := absolutePath(t.Cwd(), dir)
	if err != nil {
		return err
	}
	filter, err := newFilter(o.Include, o.Exclude)
	if err != nil {
		return err
	}
	w := &walker{ctx: ctx, tree: from, filter: filter, base: entryName(abs), mode: mode}
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
	return upload(ctx, t, w.entries, m)
}

// walker describes a tree for an archive, one directory at a time.
type walker struct {
	ctx    context.Context
	tree   tree
	filter *filter
	base   string // the entry name of the root
	mode   func(fs.FileMode) fs.FileMode
}

// entries yields what is below the root. A directory comes after what is in it,
// so that it has got its contents when its permissions and time are set. The
// root itself is only there if nothing else is: it may well exist already, with
// permissions that are none of our business.
func (w *walker) entries() iter.Seq2[tarball.Entry, error] {
	return func(yield func(tarball.Entry, error) bool) {
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

// walk yields what is below dir and reports whether to go on. whole says that a
// pattern has included dir, and so all that is in it.
func (w *walker) walk(dir string, whole bool, yield func(tarball.Entry, error) bool) bool {
	list, err := w.tree.readDir(dir)
	if err != nil {
		yield(tarball.Entry{}, err)
		return false
	}
	for _, d := range list {
		if err := w.ctx.Err(); err != nil {
			yield(tarball.Entry{}, context.Cause(w.ctx))
			return false
		}
		name := path.Join(dir, d.Name())
		if w.filter.excluded(name) {
			continue
		}
		included := whole || w.filter.included(name)
		if d.IsDir() && !w.walk(name, included, yield) {
			return false
		}
		if !included {
			continue
		}
		if e, err := w.entry(name, d); !yield(e, err) || err != nil {
			return false
		}
	}
	return true
}

func (w *walker) entry(name string, d fs.DirEntry) (tarball.Entry, error) {
	info, err := d.Info()
	if err != nil {
		return tarball.Entry{}, err
	}
	e := tarball.Entry{Name: path.Join(w.base, name), ModTime: info.ModTime()}
	switch info.Mode().Type() {
	case 0:
		e.Mode, e.Size = w.mode(info.Mode()), info.Size()
		e.Open = func() (io.ReadCloser, error) { return w.tree.open(name) }
	case fs.ModeDir:
		e.Mode = fs.ModeDir | w.mode(info.Mode())
	case fs.ModeSymlink:
		e.Mode = fs.ModeSymlink | 0o777
		e.Linkname, err = w.tree.readLink(name)
	default:
		err = &fs.PathError{Op: "upload", Path: name, Err: fmt.Errorf("is %v, not a file, directory or symbolic link", info.Mode().Type())}
	}
	return e, err
}
