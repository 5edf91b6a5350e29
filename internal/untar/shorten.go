package untar

import (
	"archive/tar"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path"
)

// Shorten cuts off the end of a file that unpack has made, if the sandbox's tar reports
// that it padded the file. length returns the new length for a size. Shorten replaces the
// file, since it may have other names. It does nothing unless the name is that of a longer
// regular file that Keep selects.
func Shorten(ctx context.Context, root *os.Root, name string, length func(size int64) int64, opts Options) (err error) {
	if name, err = Clean(name); err != nil || name == "." || opts.Keep != nil && !opts.Keep(name, false) {
		return err
	}
	x := &extractor{opts: Options{MaxEntries: maxDepth}, buf: make([]byte, blockSize), zeros: make([]byte, blockSize)}
	x.openDirs = []openDir{{name: ".", dir: root}}
	defer func() { err = errors.Join(err, x.leave("."), x.close()) }()
	// Links in the path are not followed, and directories keep their times and
	// permissions.
	for dir := range parents(name) {
		info, err := x.current().dir.Lstat(path.Base(dir))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		if err := x.dir(x.current().dir, dir, &tar.Header{Typeflag: tar.TypeDir, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}); err != nil {
			return err
		}
	}
	in, base := x.current().dir, path.Base(name)
	info, err := in.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || length(info.Size()) < 0 || length(info.Size()) >= info.Size()) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := in.Chmod(base, info.Mode().Perm()|0o400); err != nil {
		return err
	}
	f, err := in.Open(base)
	if err != nil {
		return err
	}
	defer f.Close()
	h := &tar.Header{Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: length(info.Size()), ModTime: info.ModTime()}
	return x.file(ctx, in, name, h, f)
}

// parents returns the parent directories of a name, outermost first.
func parents(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, c := range []byte(name) {
			if c == '/' && !yield(name[:i]) {
				return
			}
		}
	}
}
