package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// IOFS returns the directory root as an [fs.FS], for [fs.WalkDir], [fs.Glob],
// template.ParseFS, http.FileServerFS and the like. It is also an
// [fs.ReadDirFS], [fs.ReadFileFS], [fs.StatFS], [fs.SubFS] and [fs.ReadLinkFS].
//
// ctx holds for all requests of the file system. The result is safe for
// concurrent use; each file is for one goroutine at a time. Symbolic links are
// followed where [os.DirFS] follows them, also out of root.
//
// Opening a file and asking for its FileInfo is one request; its content is
// another, made at the first read. Seeking works; going back in a file of more
// than 256 KiB fetches it again.
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

// path returns where name is in the sandbox.
func (x *ioFS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	root := x.root
	if root == "" {
		root = "."
	}
	switch {
	case name == ".":
		return root, nil
	case strings.HasSuffix(root, "/"):
		return root + name, nil
	default:
		return root + "/" + name, nil
	}
}

// fail gives an error the name that the file has in this file system.
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
