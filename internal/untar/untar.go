// Package untar unpacks tar archives that nobody vouches for into a local
// directory, and nowhere else.
package untar

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// ErrUnsafe matches the error of an archive with an entry that would leave the
// directory, that is neither a file nor a directory nor a link, or that exceeds
// a limit.
var ErrUnsafe = errors.New("refused")

// Options says what to take from an archive.
type Options struct {
	// MaxEntries and MaxBytes limit the number of entries and the total length
	// of the files as they are said to be, holes included. Both have to be set.
	MaxEntries int
	MaxBytes   int64
	// OutsideLinks keeps symbolic links whose target is absolute or outside of
	// the directory. They are never followed.
	OutsideLinks bool
	// Keep, if set, chooses entries by their clean names.
	Keep func(name string) bool
	// Progress, if set, is told of the bytes written.
	Progress func(name string, n int)
}

// blockSize is how much is copied at once.
const blockSize = 128 << 10

// maxName bounds the name of an entry, as Linux does.
const maxName = 4096

// Extract unpacks the archive that r reads into root, through which it can't
// get out. Existing files are replaced, each when its new content is whole. It
// stops at the first entry that it refuses; what was unpacked until then stays.
//
// Set-id and sticky bits and owners are not taken over.
func Extract(ctx context.Context, r io.Reader, root *os.Root, opts Options) error {
	x := &extractor{root: root, opts: opts, buf: make([]byte, blockSize), zeros: make([]byte, blockSize)}
	tr := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		h, err := tr.Next()
		if err == io.EOF {
			return errors.Join(x.leave(""), drain(r))
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("untar: %w", err)
		}
		if err := x.entry(ctx, h, tr); err != nil {
			return fmt.Errorf("untar: entry %.200q: %w", h.Name, err)
		}
	}
}

// drain reads the padding behind an archive, so that whoever makes the stream
// comes to its end and can say how it went.
func drain(r io.Reader) error {
	const padding = 1 << 20
	n, err := io.Copy(io.Discard, io.LimitReader(r, padding+1))
	if n > padding {
		return fmt.Errorf("untar: %w: more than %d bytes follow the archive", ErrUnsafe, padding)
	}
	return err
}

type extractor struct {
	root    *os.Root
	opts    Options
	buf     []byte
	zeros   []byte
	entries int
	bytes   int64
	// open are the directories that lead to the present entry and whose
	// permissions and times are set when it is certain that they are finished.
	open []openDir
}

type openDir struct {
	name    string
	mode    fs.FileMode
	modTime time.Time
}

func unsafe(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsafe, fmt.Sprintf(format, args...))
}

func (x *extractor) entry(ctx context.Context, h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if x.entries++; x.entries > x.opts.MaxEntries {
		return unsafe("the archive has more than %d entries", x.opts.MaxEntries)
	}
	name, err := Clean(h.Name)
	if err != nil {
		return err
	}
	if h.Size < 0 || h.Size > x.opts.MaxBytes-x.bytes {
		return unsafe("the archive has more than %d bytes", x.opts.MaxBytes)
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return unsafe("it would replace the directory itself")
		}
		return nil
	}
	if x.opts.Keep != nil && !x.opts.Keep(name) {
		return nil
	}
	if err := x.leave(name); err != nil {
		return err
	}
	if err := x.parents(path.Dir(name)); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return x.dir(name, h)
	case tar.TypeReg, tar.TypeGNUSparse:
		x.bytes += h.Size
		return x.file(ctx, name, h, r)
	case tar.TypeSymlink:
		return x.symlink(name, h.Linkname)
	case tar.TypeLink:
		return x.link(name, h.Linkname)
	}
	return unsafe("type %q is not a file, directory or link", h.Typeflag)
}

// Clean checks the name of an entry and returns it without "./", doubled and
// trailing slashes. "." is the directory itself.
func Clean(name string) (string, error) {
	switch {
	case name == "":
		return "", unsafe("its name is empty")
	case len(name) > maxName:
		return "", unsafe("its name is %d bytes long", len(name))
	case strings.IndexByte(name, 0) >= 0:
		return "", unsafe("its name has a NUL byte")
	case strings.HasPrefix(name, "/"):
		return "", unsafe("its name is absolute")
	}
	for elem := range strings.SplitSeq(name, "/") {
		if elem == ".." {
			return "", unsafe("its name has the element ..")
		}
	}
	name = path.Clean(name)
	// filepath.Localize would not take names that are not UTF-8.
	if !filepath.IsLocal(filepath.FromSlash(name)) || os.PathSeparator != '/' && strings.ContainsRune(name, os.PathSeparator) {
		return "", unsafe("its name means something else on this system")
	}
	return name, nil
}

// leave finishes the directories that do not lead to name.
func (x *extractor) leave(name string) error {
	for len(x.open) > 0 {
		d := x.open[len(x.open)-1]
		if strings.HasPrefix(name, d.name) && len(name) > len(d.name) && name[len(d.name)] == '/' {
			return nil
		}
		x.open = x.open[:len(x.open)-1]
		local := filepath.FromSlash(d.name)
		if info, err := x.root.Lstat(local); err != nil || !info.IsDir() {
			continue // a later entry took its place
		}
		if err := x.root.Chmod(local, d.mode); err != nil {
			return err
		}
		if !d.modTime.IsZero() {
			if err := x.root.Chtimes(local, time.Time{}, d.modTime); err != nil {
				return err
			}
		}
	}
	return nil
}

// parents makes the directories that lead to an entry. A symbolic link among
// them is refused, even one that stays inside: what the archive calls a name
// must be that name.
func (x *extractor) parents(dir string) error {
	if dir == "." || len(x.open) > 0 && x.open[len(x.open)-1].name == dir {
		return nil
	}
	for i := 0; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		local := filepath.FromSlash(dir[:i])
		info, err := x.root.Lstat(local)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := x.root.Mkdir(local, 0o777); err != nil {
				return err
			}
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return unsafe("%q is a symbolic link", dir[:i])
		}
	}
	return nil
}

func (x *extractor) dir(name string, h *tar.Header) error {
	local := filepath.FromSlash(name)
	// Until its content is there we have to be able to write to it.
	err := x.root.Mkdir(local, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, lerr := x.root.Lstat(local)
		switch {
		case lerr != nil:
			return lerr
		case !info.IsDir():
			// A link to a directory must not become the way into it.
			if err := x.root.Remove(local); err != nil {
				return err
			}
			err = x.root.Mkdir(local, 0o700)
		default:
			err = x.root.Chmod(local, info.Mode().Perm()|0o700)
		}
	}
	if err != nil {
		return err
	}
	x.open = append(x.open, openDir{name, h.FileInfo().Mode().Perm(), h.ModTime})
	return nil
}

// file writes a file under another name and renames it when it is whole.
func (x *extractor) file(ctx context.Context, name string, h *tar.Header, r io.Reader) (err error) {
	local := filepath.FromSlash(name)
	tmp := filepath.Join(filepath.Dir(local), ".download-"+rand.Text())
	f, err := x.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			_ = x.root.Remove(tmp)
		}
	}()
	if err := x.copy(ctx, f, name, h.Size, r); err != nil {
		return err
	}
	if err := f.Chmod(h.FileInfo().Mode().Perm()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if !h.ModTime.IsZero() {
		if err := x.root.Chtimes(tmp, time.Time{}, h.ModTime); err != nil {
			return err
		}
	}
	return x.root.Rename(tmp, local)
}

// copy leaves out blocks of zeros, which are holes then: a file that is all hole
// must not take up the disk.
func (x *extractor) copy(ctx context.Context, f *os.File, name string, size int64, r io.Reader) error {
	hole, pos := false, int64(0)
	for pos < size {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := io.ReadFull(r, x.buf[:min(int64(len(x.buf)), size-pos)])
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if hole = bytes.Equal(x.buf[:n], x.zeros[:n]); hole {
			_, err = f.Seek(int64(n), io.SeekCurrent)
		} else {
			_, err = f.Write(x.buf[:n])
		}
		if err != nil {
			return err
		}
		pos += int64(n)
		if x.opts.Progress != nil {
			x.opts.Progress(name, n)
		}
	}
	if hole {
		return f.Truncate(size)
	}
	return nil
}

func (x *extractor) symlink(name, target string) error {
	if target == "" || len(target) > maxName || strings.IndexByte(target, 0) >= 0 {
		return unsafe("its target is not a path")
	}
	if !x.opts.OutsideLinks && leads(name, target) {
		return unsafe("it is a symbolic link to %.200q, outside of the directory", target)
	}
	local := filepath.FromSlash(name)
	if err := x.clear(local); err != nil {
		return err
	}
	return x.root.Symlink(filepath.FromSlash(target), local)
}

// leads reports whether a symbolic link may lead out of the root. A ".." behind
// a name counts as such: the name may be a link, and then nobody can tell from
// the words where its parent is.
func leads(name, target string) bool {
	if path.IsAbs(target) || filepath.IsAbs(filepath.FromSlash(target)) {
		return true
	}
	depth, named := strings.Count(name, "/"), false
	for elem := range strings.SplitSeq(target, "/") {
		switch elem {
		case "", ".":
		case "..":
			if depth--; depth < 0 || named {
				return true
			}
		default:
			named = true
		}
	}
	return false
}

func (x *extractor) link(name, target string) error {
	from, err := Clean(target)
	if err != nil {
		return fmt.Errorf("link to %.200q: %w", target, err)
	}
	if from == name {
		return nil
	}
	info, err := x.root.Lstat(filepath.FromSlash(from))
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return unsafe("it is a hard link to %.200q, which is no file", target)
	}
	local := filepath.FromSlash(name)
	if err := x.clear(local); err != nil {
		return err
	}
	return x.root.Link(filepath.FromSlash(from), local)
}

// clear removes what a link takes the place of.
func (x *extractor) clear(local string) error {
	info, err := x.root.Lstat(local)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("a directory is in the way: %w", fs.ErrExist)
	}
	return x.root.Remove(local)
}
