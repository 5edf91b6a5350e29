package backend

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/localfile"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
)

// limits bounds the size of an archive, which may be endless.
type limits struct {
	entries int
	bytes   int64
}

// Extract unpacks a gzipped tar archive below dir.
func Extract(ctx context.Context, f FileSystem, archive io.Reader, dir string) error {
	return extract(ctx, f, archive, dir, limits{entries: 1 << 20, bytes: 64 << 30})
}

func extract(ctx context.Context, f FileSystem, archive io.Reader, dir string, max limits) error {
	zr, err := gzip.NewReader(archive)
	if err != nil {
		return ArchiveError(err)
	}
	defer zr.Close()
	x := &extraction{f: f, ctx: ctx, dir: dir, made: make(map[string]bool)}
	tr := tar.NewReader(zr)
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return ArchiveError(err)
		}
		if n >= max.entries {
			return ArchiveError(fmt.Errorf("more than %d entries", max.entries))
		}
		if x.bytes += hdr.Size; hdr.Size < 0 || x.bytes > max.bytes {
			return ArchiveError(fmt.Errorf("more than %d bytes", max.bytes))
		}
		if err := x.entry(hdr, tr); err != nil {
			return err
		}
	}
	// Read past the end of the tar only to verify the checksum.
	if _, err := io.Copy(io.Discard, io.LimitReader(zr, 1<<20)); err != nil {
		return ArchiveError(err)
	}
	return x.finish()
}

// typeGNUVolume marks the label of an archive, which GNU tar writes first with -V.
const typeGNUVolume = 'V'

// ArchiveError returns the error for an archive that can't be read. It returns err itself
// if the extraction was stopped.
func ArchiveError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStopped) {
		return err
	}
	return fmt.Errorf("box: %w: %w", ErrBadArchive, err)
}

// extraction is the state of one extract.
type extraction struct {
	f     FileSystem
	ctx   context.Context
	dir   string
	bytes int64
	// made contains the parents that are known to exist.
	made map[string]bool
	// dirs get their modes and times at the end: adding files to a directory changes its
	// time, and its mode may forbid adding files.
	dirs []*tar.Header
}

func (x *extraction) entry(hdr *tar.Header, r io.Reader) error {
	name, err := x.name(hdr.Name)
	if err != nil {
		return err
	}
	switch hdr.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeXGlobalHeader, typeGNUVolume:
		return nil
	default:
		return ArchiveError(fmt.Errorf("entry %q is not a file, directory or link (type %q)", hdr.Name, hdr.Typeflag))
	}
	if hdr.Typeflag == tar.TypeDir {
		if err := x.mkdirAll(name); err != nil {
			return err
		}
		dir := *hdr
		dir.Name = name
		x.dirs = append(x.dirs, &dir)
		return nil
	}
	if name == "/" || name == x.dir {
		return ArchiveError(fmt.Errorf("entry %q has no name", hdr.Name))
	}
	if err := x.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	switch hdr.Typeflag {
	case tar.TypeSymlink:
		if hdr.Linkname == "" || strings.ContainsRune(hdr.Linkname, 0) || len(hdr.Linkname) >= maxPath {
			return ArchiveError(fmt.Errorf("entry %q links to a bad name", hdr.Name))
		}
		if err := x.removeOld(name); err != nil {
			return err
		}
		delete(x.made, name)
		return x.f.Symlink(hdr.Linkname, name)
	case tar.TypeLink:
		old, err := x.name(hdr.Linkname)
		if err != nil {
			return err
		}
		if old == name {
			return ArchiveError(fmt.Errorf("entry %q links to itself", hdr.Name))
		}
		if err := x.removeOld(name); err != nil {
			return err
		}
		return x.f.Link(old, name)
	}
	return x.file(hdr, name, r)
}

// name resolves an entry's name inside the sandbox.
func (x *extraction) name(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", ArchiveError(errors.New("an entry has an empty name or a NUL byte in it"))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", ArchiveError(fmt.Errorf("entry %q has .. in its name", name))
		}
	}
	// Drop a leading slash, as tar does.
	full := path.Join(x.dir, name)
	if len(full) >= maxPath {
		return "", ArchiveError(errors.New("an entry's name is too long"))
	}
	return full, nil
}

func (x *extraction) mkdirAll(name string) error {
	if x.made[name] {
		return nil
	}
	if err := mkdirAllIn(x.f, name); err != nil {
		return err
	}
	if len(x.made) < 1<<16 {
		x.made[name] = true
	}
	return nil
}

// removeOld removes the file with the name of a new entry, unless it is a directory.
func (x *extraction) removeOld(name string) error {
	info, err := x.f.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "extract", Path: name, Err: inside.ErrIsDir}
	}
	return x.f.Remove(name)
}

func (x *extraction) file(hdr *tar.Header, name string, r io.Reader) error {
	info, err := x.f.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "extract", Path: name, Err: inside.ErrIsDir}
	case !info.Mode().IsRegular():
		// Replace a link instead of following it, as tar does.
		if err := x.f.Remove(name); err != nil {
			return err
		}
	}
	file, err := x.f.Create(name)
	if errors.Is(err, syscall.ETXTBSY) || errors.Is(err, fs.ErrPermission) && info != nil {
		// A running program or a read-only file can be replaced although it can't be
		// written.
		if err := x.f.Remove(name); err != nil {
			return err
		}
		file, err = x.f.Create(name)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(file, contextReader{x.ctx, r})
	if err == nil {
		err = file.Chmod(hdr.FileInfo().Mode().Perm())
	} else if _, ok := errors.AsType[*fs.PathError](err); !ok {
		err = ArchiveError(err)
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil && hasTime(hdr.ModTime) {
		err = x.f.Chtimes(name, localfile.Settable(hdr.ModTime))
	}
	return err
}

// finish sets the modes and times of directories, the deepest first.
func (x *extraction) finish() error {
	for _, hdr := range slices.Backward(x.dirs) {

		// Leave the directory of the extraction and the root as they are.
		if hdr.Name == x.dir || hdr.Name == "/" {
			continue
		}
		info, err := x.f.Lstat(hdr.Name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			continue // a later entry has replaced it
		}
		if err != nil {
			return err
		}
		// Don't change another user's directory.
		if err := x.f.Chmod(hdr.Name, hdr.FileInfo().Mode().Perm()); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				continue
			}
			return err
		}
		if hasTime(hdr.ModTime) {
			if err := x.f.Chtimes(hdr.Name, localfile.Settable(hdr.ModTime)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasTime reports whether an entry has a time. Archives use 0 for none.
func hasTime(t time.Time) bool { return t.Unix() != 0 }

// contextReader ends a long copy when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
