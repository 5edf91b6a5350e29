package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"
)

// IOFS returns a file system (an [fs.FS]) for the tree rooted at the directory
// root. It implements [fs.ReadDirFS], [fs.ReadFileFS], [fs.StatFS], [fs.SubFS]
// and [fs.ReadLinkFS]. ctx applies to all of its requests. It is safe for
// concurrent use. Links are followed as by [os.DirFS].
//
// Opening a file makes one request, which also serves its FileInfo; the first read makes
// another, and compares the content with the size as [FileSystem.Open] does. Files
// implement [io.Seeker] and [io.ReaderAt]. A command (dd, base64) serves a read that
// starts more than 256 KiB after the last one, and each ReadAt of a file of more than 256
// KiB. Such a command costs one request and reads a piece of 256 KiB. While reads continue
// there, the pieces grow to 4 MiB. They arrive at the speed of a command's output. So
// [http.FileServerFS] serves ranges, and the end of a file costs as much as its start.
//
// Reading a directory makes one request, so [fs.WalkDir] makes one for each;
// [FileSystem.WalkDir] makes one for 5,000 files.
func (f *FileSystem) IOFS(ctx context.Context, root string) fs.FS {
	return &ioFS{ctx: ctx, fsys: f, root: root}
}

type ioFS struct {
	ctx  context.Context
	fsys *FileSystem
	root string
}

var (
	_ fs.ReadDirFS  = (*ioFS)(nil)
	_ fs.ReadFileFS = (*ioFS)(nil)
	_ fs.StatFS     = (*ioFS)(nil)
	_ fs.SubFS      = (*ioFS)(nil)
	_ fs.ReadLinkFS = (*ioFS)(nil)
)

// path returns the path of name in the sandbox.
func (x *ioFS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	root := cmp.Or(x.root, ".")
	switch {
	case name == ".":
		return root, nil
	case strings.HasSuffix(root, "/"):
		return root + name, nil
	default:
		return root + "/" + name, nil
	}
}

// fail replaces the name in an error by the file's name in this file system.
func (x *ioFS) fail(op, name string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (x *ioFS) Open(name string) (fs.File, error) {
	info, err := x.stat("open", name, x.fsys.Stat)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &ioDir{fsys: x, name: name, info: info}, nil
	}
	return &ioFile{fsys: x, name: name, info: info}, nil
}

func (x *ioFS) stat(op, name string, stat func(context.Context, string) (fs.FileInfo, error)) (fs.FileInfo, error) {
	p, err := x.path(op, name)
	if err != nil {
		return nil, err
	}
	info, err := stat(x.ctx, p)
	if err != nil {
		return nil, x.fail(op, name, err)
	}
	info.(*fileInfo).name = path.Base(name)
	return info, nil
}

func (x *ioFS) Stat(name string) (fs.FileInfo, error)  { return x.stat("stat", name, x.fsys.Stat) }
func (x *ioFS) Lstat(name string) (fs.FileInfo, error) { return x.stat("lstat", name, x.fsys.Lstat) }

func (x *ioFS) ReadDir(name string) ([]fs.DirEntry, error) {
	p, err := x.path("readdir", name)
	if err != nil {
		return nil, err
	}
	list, err := x.fsys.ReadDir(x.ctx, p)
	if err != nil {
		return nil, x.fail("readdir", name, err)
	}
	return list, nil
}

func (x *ioFS) ReadFile(name string) ([]byte, error) {
	p, err := x.path("readfile", name)
	if err != nil {
		return nil, err
	}
	data, err := x.fsys.ReadFile(x.ctx, p)
	if err != nil {
		return nil, x.fail("readfile", name, err)
	}
	return data, nil
}

func (x *ioFS) ReadLink(name string) (string, error) {
	p, err := x.path("readlink", name)
	if err != nil {
		return "", err
	}
	target, err := x.fsys.Readlink(x.ctx, p)
	if err != nil {
		return "", x.fail("readlink", name, err)
	}
	return target, nil
}

func (x *ioFS) Sub(dir string) (fs.FS, error) {
	p, err := x.path("sub", dir)
	if err != nil {
		return nil, err
	}
	return &ioFS{ctx: x.ctx, fsys: x.fsys, root: p}, nil
}

// smallSize is the size up to which an open file is read at once and held in memory, so
// that seeking in it makes no request.
const smallSize = 256 << 10

// ioFile is an open file of an ioFS. Its content is requested when it is read.
type ioFile struct {
	fsys *ioFS
	name string
	info fs.FileInfo

	mu     sync.Mutex
	small  *bytes.Reader // the content of a small file; nil before it is read
	large  bool          // the file has grown too large for small
	body   *FileReader   // the stream of a large file, at pos
	pos    int64         // the position of body
	piece  piece         // the last piece that a command has read
	offset int64         // the position of the next read
	closed bool
}

// piece is a part of a large file.
type piece struct {
	at, size int64 // as requested
	data     []byte
}

// maxPieceSize is the maximum size of a piece. Like all sizes of pieces it is a whole
// number of blocks.
const maxPieceSize = 4 << 20

func (f *ioFile) check(op string) error {
	if f.closed {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	return nil
}

func (f *ioFile) Stat() (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check("stat"); err != nil {
		return nil, err
	}
	return f.info, nil
}

func (f *ioFile) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := f.open(); err != nil {
		return 0, f.fsys.fail("read", f.name, err)
	}
	var (
		n   int
		err error
	)
	switch {
	case f.small != nil:
		n, err = f.small.ReadAt(p, f.offset)
		if n > 0 {
			err = nil // the next read reports EOF
		}
	case f.body != nil:
		n, err = f.body.Read(p)
		f.pos += int64(n)
	default:
		n, err = f.readPiece(p, f.offset)
	}
	f.offset += int64(n)
	if err != nil && err != io.EOF {
		err = f.fsys.fail("read", f.name, err)
	}
	return n, err
}

// ReadAt implements [io.ReaderAt].
func (f *ioFile) ReadAt(p []byte, offset int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if offset < 0 || !f.info.Mode().IsRegular() {
		return 0, f.fsys.fail("read", f.name, fs.ErrInvalid)
	}
	if err := f.readSmall(); err != nil {
		return 0, f.fsys.fail("read", f.name, err)
	}
	if f.small != nil {
		return f.small.ReadAt(p, offset)
	}
	for n < len(p) && err == nil {
		var read int
		read, err = f.readPiece(p[n:], offset+int64(n))
		n += read
	}
	if err != nil && err != io.EOF {
		err = f.fsys.fail("read", f.name, err)
	}
	return n, err
}

// readPiece reads from the piece that contains the offset. It requests the piece unless
// it is the last one used.
func (f *ioFile) readPiece(p []byte, offset int64) (int, error) {
	if end := f.piece.at + int64(len(f.piece.data)); offset < f.piece.at || offset >= end {
		size := int64(smallSize)
		if offset == end && end > 0 {
			size = min(4*f.piece.size, maxPieceSize)
		}
		path, err := f.fsys.path("read", f.name)
		if err != nil {
			return 0, err
		}
		at := offset - offset%pieceBlock
		data, err := readBlocks(f.fsys.ctx, f.fsys.fsys.target(), path, at/pieceBlock, size/pieceBlock)
		if err != nil {
			return 0, err
		}
		f.piece = piece{at, size, data}
	}
	if offset >= f.piece.at+int64(len(f.piece.data)) {
		return 0, io.EOF
	}
	return copy(p, f.piece.data[offset-f.piece.at:]), nil
}

// readSmall reads a small file into memory, unless that was done before.
func (f *ioFile) readSmall() error {
	if f.small == nil && !f.large && f.info.Mode().IsRegular() && f.info.Size() > 0 && f.info.Size() <= smallSize {
		return f.load()
	}
	return nil
}

// open makes the content available at offset: in small or in body. If both are nil
// afterwards, Read uses readPiece.
func (f *ioFile) open() error {
	if err := f.readSmall(); f.small != nil || err != nil {
		return err
	}
	if f.body != nil && f.pos > f.offset {
		f.body.Close()
		f.body = nil
	}
	from := int64(0)
	if f.body != nil {
		from = f.pos
	}
	if f.offset-from > smallSize && f.info.Mode().IsRegular() && f.info.Size() > smallSize {
		if f.body != nil {
			f.body.Close()
			f.body = nil
		}
		return nil
	}
	if f.body == nil {
		body, err := f.start()
		if err != nil {
			return err
		}
		f.body, f.pos = body, 0
	}
	if f.pos == f.offset {
		return nil
	}
	n, err := io.CopyN(io.Discard, f.body, f.offset-f.pos)
	f.pos += n
	if err == io.EOF {
		// The offset is beyond the end, so the next read reports EOF.
		return nil
	}
	return err
}

func (f *ioFile) start() (*FileReader, error) {
	p, err := f.fsys.path("open", f.name)
	if err != nil {
		return nil, err
	}
	r, err := f.fsys.fsys.Open(f.fsys.ctx, p, &OpenOptions{NoSizeCheck: true})
	if err == nil && f.info.Mode().IsRegular() {
		// Request the size only if the file is shorter than before: it may have been
		// truncated.
		r.check = newSizeCheck(f.fsys.ctx, f.fsys.fsys.target(), r, p, f.info.Size())
	}
	return r, err
}

// load reads a file whose reported size is small. It marks a file that has grown since
// as large, to be streamed.
func (f *ioFile) load() error {
	body, err := f.start()
	if err != nil {
		return err
	}
	data, err := readAll(io.LimitReader(body, smallSize+1), body.Size())
	body.Close()
	if err != nil {
		return err
	}
	if len(data) <= smallSize {
		f.small = bytes.NewReader(data)
		return nil
	}
	f.large = true
	return nil
}

// Seek implements [io.Seeker].
func (f *ioFile) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check("seek"); err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += f.info.Size()
	default:
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: fs.ErrInvalid}
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "seek", Path: f.name, Err: fs.ErrInvalid}
	}
	f.offset = offset
	return offset, nil
}

func (f *ioFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check("close"); err != nil {
		return err
	}
	f.closed, f.small, f.piece = true, nil, piece{}
	if f.body != nil {
		return f.body.Close()
	}
	return nil
}

// ioDir is an open directory of an ioFS. It is listed when it is read.
type ioDir struct {
	fsys   *ioFS
	name   string
	info   fs.FileInfo
	list   []fs.DirEntry
	listed bool
	closed bool
}

func (d *ioDir) Stat() (fs.FileInfo, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "stat", Path: d.name, Err: fs.ErrClosed}
	}
	return d.info, nil
}

func (d *ioDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: syscall.EISDIR}
}

func (d *ioDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	if !d.listed {
		list, err := d.fsys.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.list, d.listed = list, true
	}
	if n <= 0 || n > len(d.list) {
		if n > 0 && len(d.list) == 0 {
			return nil, io.EOF
		}
		n = len(d.list)
	}
	list := d.list[:n:n]
	d.list = d.list[n:]
	return list, nil
}

func (d *ioDir) Close() error {
	if d.closed {
		return &fs.PathError{Op: "close", Path: d.name, Err: fs.ErrClosed}
	}
	d.closed = true
	return nil
}

// maxListed is how many entries of a tree a walk lists with one request.
const maxListed = 5000

// WalkDir walks the tree of files rooted at the directory root like
// [fs.WalkDir] with the file system that [FileSystem.IOFS] returns: in lexical
// order, with paths relative to root, which is itself ".", and without following
// links below it. The Info methods of the entries make no request.
//
// One request lists up to 5,000 files of the tree, where [fs.WalkDir] makes one for each
// directory. fn sees the tree as it was at that request: later changes below root may not
// show, and a directory that was removed since then is empty. A directory that can't be
// listed together with others costs one more request. The reason may be an unreadable
// directory, or a name that is not UTF-8.
func (f *FileSystem) WalkDir(ctx context.Context, root string, fn fs.WalkDirFunc) error {
	if _, err := enter(ctx, f); err != nil {
		return err
	}
	if fn == nil {
		return invalid("fn", "is nil")
	}
	return fs.WalkDir(&walkFS{ioFS: ioFS{ctx: ctx, fsys: f, root: root}}, ".", fn)
}

// walkFS is an ioFS for one walk. It lists many directories with one request.
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
			return nil, nil // it was removed after it was listed
		}
		return list, err
	}
	delete(w.lists, name)
	return list, nil
}

// listTree lists a directory together with those below it. If that fails, the directory
// must be listed alone, which gives the reason.
func (w *walkFS) listTree(dir string) {
	p, err := w.path("readdir", dir)
	if err != nil || checkPath("open", p) != nil {
		return
	}
	top, tree, err := w.fsys.tools(p).Tree(w.ctx, p, maxListed)
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
