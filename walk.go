package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"syscall"
)

// maxAhead is how many entries of a tree a walk lists with one request.
const maxAhead = 5000

// WalkDir walks the tree of files rooted at the directory root like
// [fs.WalkDir] with the file system that [FileSystem.IOFS] returns: in lexical
// order, with paths relative to root, which is itself ".", and without following
// links below it. The Info methods of the entries make no request.
//
// One request lists up to 5,000 files of the tree, where [fs.WalkDir] makes one
// for each directory. fn sees what was there when that request was made: what is
// changed below root during a walk may not be noticed, and a directory that is
// removed meanwhile is empty. A directory that can't be listed together with
// others, because it or one below it may not be read, or a name is not UTF-8,
// costs one more request.
func (f *FileSystem) WalkDir(ctx context.Context, root string, fn fs.WalkDirFunc) error {
	if _, err := enter(ctx, f); err != nil {
		return err
	}
	if fn == nil {
		return invalid("fn", "is nil")
	}
	return fs.WalkDir(&walkFS{ioFS: ioFS{ctx: ctx, fsys: f, root: root}}, ".", fn)
}

// walkFS is an ioFS that lists trees ahead, for one walk.
type walkFS struct {
	ioFS
	root  fs.FileInfo // nil if it is not known
	lists map[string][]fs.DirEntry
}

var (
	_ fs.ReadDirFS = (*walkFS)(nil)
	_ fs.StatFS    = (*walkFS)(nil)
)

// Stat is called once, with the root.
func (w *walkFS) Stat(name string) (fs.FileInfo, error) {
	if name == "." {
		if w.listTree("."); w.root != nil {
			return w.root, nil
		}
	}
	return w.ioFS.Stat(name)
}

// ReadDir is called at most once for each directory.
func (w *walkFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if _, ok := w.lists[name]; !ok && name != "." {
		w.listTree(name)
	}
	list, ok := w.lists[name]
	if !ok {
		list, err := w.ioFS.ReadDir(name)
		if fe, failed := errors.AsType[*FSError](err); failed && name != "." && (fe.errno == syscall.ENOENT || fe.errno == syscall.ENOTDIR) {
			return nil, nil // it was there
		}
		return list, err
	}
	delete(w.lists, name)
	return list, nil
}

// listTree lists a directory with those below it. If that fails, it is to be
// listed by itself, which says why.
func (w *walkFS) listTree(dir string) {
	p, err := w.path("readdir", dir)
	if err != nil || checkPath("open", p) != nil {
		return
	}
	top, tree, err := w.fsys.tools(p).Tree(w.ctx, p, maxAhead)
	if err != nil {
		return
	}
	if dir == "." && top != nil {
		w.root = &fileInfo{name: ".", stat: top.Stat}
	}
	w.lists = make(map[string][]fs.DirEntry, len(tree))
	for sub, entries := range tree {
		w.lists[path.Join(dir, sub)] = dirEntries(entries)
	}
}
