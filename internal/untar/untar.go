// Package untar unpacks untrusted tar archives into a local directory, and
// nowhere else.
package untar

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/localfile"
	"github.com/klauspost/compress/gzip"
)

// ErrUnsafe matches the error of an archive with an entry that would leave the
// directory, that is of an unknown kind, or that exceeds a limit.
var ErrUnsafe = errors.New("the archive is not safe to unpack")

// unsafeError is the reason for which an entry is refused.
type unsafeError string

func (e unsafeError) Error() string { return string(e) }

// Unwrap returns ErrUnsafe.
func (e unsafeError) Unwrap() error { return ErrUnsafe }

// The refusals that an ordinary archive can meet: a name may mean something else only on
// this system, and the user may have made the link.
const (
	errForeign = unsafeError("its name means something else on this system")
	errLink    = unsafeError("it would be written through a symbolic link")
)

// Options are the options of [ExtractEncoded].
type Options struct {
	// MaxEntries and MaxBytes limit the number of entries and the total size of
	// the files as announced, including holes. Directories created implicitly
	// and entries that Keep omits count too. Both must be set.
	MaxEntries int
	MaxBytes   int64
	// OutsideLinks permits symbolic links whose target is outside of the
	// directory. They are never followed.
	OutsideLinks bool
	// Base, if not empty, is the absolute path of the directory that was packed.
	// Links to absolute paths below it become relative.
	Base string
	// LeftOut, if not nil, is called with the clean names of entries that are not unpacked:
	// devices, pipes, and the links that OutsideLinks would permit.
	LeftOut func(name string)
	// Unwritable, if not nil, is called with entries that can't be written because of
	// what is at the destination, and with the reason. Without it, the first one is an
	// error.
	Unwritable func(name string, err error)
	// Keep, if not nil, selects entries by their clean names, and by whether they
	// are directories.
	Keep func(name string, dir bool) bool
	// Top, if not nil, is set to the permissions of the directory itself, subject to the
	// umask, if the archive contains them.
	Top *fs.FileMode
	// Progress, if not nil, is called with the number of bytes written.
	Progress func(name string, n int)
}

// blockSize is how much is copied at once.
const blockSize = 128 << 10

const (
	// maxName limits the name of an entry, like Linux.
	maxName = 4096
	// maxDepth limits the depth of names: each parent directory costs system
	// calls for every entry, and a few bytes of an archive describe thousands
	// of them.
	maxDepth = 255
)

// unpack extracts the archive read from r into root, which it can't leave.
// Existing files are replaced, each when its new content is complete. It stops
// at the first entry that it refuses; what was unpacked until then remains.
//
// Permissions are subject to the umask. Set-id and sticky bits and owners are
// not restored.
func unpack(ctx context.Context, r io.Reader, root *os.Root, opts Options) (err error) {
	x := &extractor{opts: opts, buf: make([]byte, blockSize), zeros: make([]byte, blockSize)}
	x.openDirs = []openDir{{name: ".", dir: root}}
	defer func() { err = errors.Join(err, x.close()) }()
	x.umask = umask(root)
	localfile.Sweep(root)
	tr := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		h, err := tr.Next()
		if err == io.EOF {
			return errors.Join(x.leave("."), drain(r))
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("untar: %w", err)
		}
		err = x.entry(ctx, h, tr)
		if name := path.Clean(h.Name); err != nil && !x.reportConflict(name, err) {
			return fmt.Errorf("untar: entry %.200q: %w", h.Name, err)
		}
	}
}

// conflicts are the errors of the destination that concern one entry. A full disk is not
// among them. An error of the archive's stream may match one of them, but
// [tar.Reader.Next] returns it again, which ends the extraction.
var conflicts = []error{
	fs.ErrExist, fs.ErrNotExist, fs.ErrPermission, errForeign, errLink,
	syscall.EISDIR, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EILSEQ,
	syscall.EBUSY,       // a mount point, such as a file that a container has from its host
	syscall.Errno(1314), // ERROR_PRIVILEGE_NOT_HELD: not every user of Windows may make links
}

// reportConflict reports an error of one entry to Unwritable. It returns false if the
// error ends the extraction.
func (x *extractor) reportConflict(name string, err error) bool {
	if x.opts.Unwritable == nil || !slices.ContainsFunc(conflicts, func(c error) bool { return errors.Is(err, c) }) {
		return false
	}
	x.opts.Unwritable(name, err)
	return true
}

// drain reads the padding after an archive, so that the sender can finish and report its
// result.
func drain(r io.Reader) error {
	const padding = 1 << 20
	n, err := io.Copy(io.Discard, io.LimitReader(r, padding+1))
	if n > padding {
		return fmt.Errorf("untar: %w", unsafe("more than %d bytes follow the archive", padding))
	}
	return err
}

type extractor struct {
	opts    Options
	umask   fs.FileMode
	buf     []byte
	zeros   []byte
	entries int
	bytes   int64
	// openDirs holds the open parent directories of the current entry, outermost first. Each
	// is opened relative to the one before, and only if it is a real directory. Directories
	// that the next entry shares stay open.
	openDirs []openDir
}

// openDir is one of the parent directories.
type openDir struct {
	name string // clean, relative to the root
	dir  *os.Root
	// entry is set if mode and modTime must be set, which is done when the
	// directory is certain to be complete.
	entry   bool
	mode    fs.FileMode
	modTime time.Time
}

func unsafe(format string, args ...any) error { return unsafeError(fmt.Sprintf(format, args...)) }

// count counts an entry, or a directory that is created for one.
func (x *extractor) count() error {
	if x.entries++; x.entries > x.opts.MaxEntries {
		return unsafe("the archive has more than %d entries", x.opts.MaxEntries)
	}
	return nil
}

func (x *extractor) entry(ctx context.Context, h *tar.Header, r io.Reader) error {
	if err := x.count(); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := Clean(h.Name)
	if err != nil {
		return err
	}
	if h.Size < 0 || h.Size > x.opts.MaxBytes-x.bytes {
		return unsafe("the archive has more than %d bytes", x.opts.MaxBytes)
	}
	x.bytes += h.Size
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return unsafe("it would replace the directory itself")
		}
		if x.opts.Top != nil {
			*x.opts.Top = x.mode(h)
		}
		return nil
	}
	if x.opts.Keep != nil && !x.opts.Keep(name, h.Typeflag == tar.TypeDir) {
		return nil
	}
	if x.omits(name, h) {
		if x.opts.LeftOut != nil {
			x.opts.LeftOut(name)
		}
		return nil
	}
	in, err := x.enter(ctx, path.Dir(name))
	if err != nil {
		return err
	}
	// A device, a pipe or a socket is written to, or left alone, never replaced.
	info, err := in.Lstat(path.Base(name))
	switch {
	case err == nil && info.Mode()&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket|fs.ModeIrregular) != 0:
		return fmt.Errorf("a device, pipe or socket is in the way: %w", fs.ErrExist)
	case err == nil && info.IsDir() && h.Typeflag != tar.TypeDir:
		return fmt.Errorf("a directory is in the way: %w", fs.ErrExist)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return x.dir(in, name, h)
	case tar.TypeReg, tar.TypeGNUSparse:
		return x.file(ctx, in, name, h, r)
	case tar.TypeSymlink:
		return x.symlink(in, name, h)
	case tar.TypeLink:
		return x.link(in, name, h.Linkname)
	}
	return unsafe("type %q is not a file, directory or link", h.Typeflag)
}

// omits reports whether an entry is of a kind that is not unpacked. It makes the
// target of a link relative where it can.
func (x *extractor) omits(name string, h *tar.Header) bool {
	switch h.Typeflag {
	case tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		return true
	case tar.TypeSymlink:
		h.Linkname = Inside(name, h.Linkname, x.opts.Base)
		return !x.opts.OutsideLinks && (Leads(name, h.Linkname) || foreignPaths && (isWindowsSpecial(h.Linkname) || !isLocal(name, h.Linkname)))
	}
	return false
}

// Clean checks the name of an entry and returns it without "./", double and
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
	if depth := strings.Count(name, "/") + 1; depth > maxDepth {
		return "", unsafe("its name is %d directories deep, more than %d", depth, maxDepth)
	}
	// filepath.Localize would not accept names that are not UTF-8.
	if !filepath.IsLocal(filepath.FromSlash(name)) || foreignPaths && isWindowsSpecial(name) {
		return "", errForeign
	}
	return name, nil
}

// foreignPaths is set if the paths of this system differ from those of the sandbox.
const foreignPaths = os.PathSeparator != '/'

// isWindowsSpecial reports whether a name means something else as a Windows path, or can't
// be one: other separators, drives and streams, wildcards and the like, control
// characters, and trailing characters that are dropped.
func isWindowsSpecial(name string) bool {
	if strings.ContainsAny(name, `\:*?"<>|`) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return true
	}
	for elem := range strings.SplitSeq(name, "/") {
		if elem != "." && elem != ".." && strings.HasSuffix(strings.TrimRight(elem, " "), ".") || strings.HasSuffix(elem, " ") {
			return true
		}
	}
	return false
}

// umask determines the umask by creating a directory: asking the system for it
// means changing it for all threads.
func umask(root *os.Root) fs.FileMode {
	const usual = 0o022
	name := localfile.TempName()
	if err := root.Mkdir(name, 0o777); err != nil {
		return usual // root itself is not writable, but directories below it may be
	}
	info, err := root.Lstat(name)
	if err := errors.Join(err, root.Remove(name)); err != nil {
		return usual
	}
	return 0o777 &^ info.Mode().Perm()
}

// current returns the directory that the last call of enter has opened.
func (x *extractor) current() *openDir { return &x.openDirs[len(x.openDirs)-1] }

// leave completes the directories that are not parents of name.
func (x *extractor) leave(name string) error {
	for len(x.openDirs) > 1 {
		d := *x.current()
		if name == d.name || strings.HasPrefix(name, d.name) && name[len(d.name)] == '/' {
			return nil
		}
		x.openDirs = x.openDirs[:len(x.openDirs)-1]
		if err := d.dir.Close(); err != nil {
			return err
		}
		if !d.entry {
			continue
		}
		in, base := x.current().dir, path.Base(d.name)
		if info, err := in.Lstat(base); err != nil || !info.IsDir() {
			continue // somebody else removed it
		}
		err := in.Chmod(base, d.mode)
		if err == nil && !d.modTime.IsZero() {
			err = in.Chtimes(base, time.Time{}, localfile.Settable(d.modTime))
		}
		if err != nil && !x.reportConflict(d.name, err) {
			return err
		}
	}
	return nil
}

// close closes the directories that are still open after an error.
func (x *extractor) close() error {
	var errs []error
	for _, d := range x.openDirs[1:] {
		errs = append(errs, d.dir.Close())
	}
	return errors.Join(errs...)
}

// enter returns the directory of that name, creating it if necessary. Symbolic links in
// the path are refused, even those that stay inside: an entry must be written under the
// name that the archive says.
func (x *extractor) enter(ctx context.Context, name string) (*os.Root, error) {
	if err := x.leave(name); err != nil {
		return nil, err
	}
	if name == x.current().name {
		return x.current().dir, nil
	}
	rest := name
	if len(x.openDirs) > 1 {
		rest = name[len(x.current().name)+1:]
	}
	for elem := range strings.SplitSeq(rest, "/") {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		in := x.current().dir
		info, err := in.Lstat(elem)
		if errors.Is(err, fs.ErrNotExist) {
			if err = x.count(); err == nil {
				err = in.Mkdir(elem, 0o777)
			}
		} else if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = errLink
		} else if err == nil && !info.IsDir() {
			err = fmt.Errorf("%q is not a directory: %w", path.Join(x.current().name, elem), fs.ErrExist)
		}
		if err != nil {
			return nil, err
		}
		if err := x.open(elem); err != nil {
			return nil, err
		}
	}
	return x.current().dir, nil
}

// open descends into a directory.
func (x *extractor) open(elem string) error {
	in := x.current().dir
	dir, err := in.OpenRoot(elem)
	if err != nil {
		return err
	}
	// OpenRoot follows a link that replaces the directory at this moment.
	now, err := in.Lstat(elem)
	opened, oerr := dir.Stat(".")
	if err = errors.Join(err, oerr); err == nil && !os.SameFile(now, opened) {
		err = unsafe("%q is not the directory that it was", elem)
	}
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	x.openDirs = append(x.openDirs, openDir{name: path.Join(x.current().name, elem), dir: dir})
	return nil
}

func (x *extractor) dir(in *os.Root, name string, h *tar.Header) error {
	base := path.Base(name)
	// This process must be able to write to the directory until its content is complete.
	err := in.Mkdir(base, 0o700)
	existed := errors.Is(err, fs.ErrExist)
	if existed {
		info, lerr := in.Lstat(base)
		switch {
		case lerr != nil:
			return lerr
		case !info.IsDir():
			// A link to a directory must not be used as one.
			if err := in.Remove(base); err != nil {
				return err
			}
			err = in.Mkdir(base, 0o700)
		default:
			err = in.Chmod(base, info.Mode().Perm()|0o700)
		}
	}
	if err != nil {
		return err
	}
	if err := x.open(base); err != nil {
		return err
	}
	d := x.current()
	if existed {
		localfile.Sweep(d.dir)
	}
	d.entry, d.mode, d.modTime = true, x.mode(h), h.ModTime
	return nil
}

// mode returns the part of an entry's mode that is restored.
func (x *extractor) mode(h *tar.Header) fs.FileMode {
	return h.FileInfo().Mode().Perm() &^ x.umask
}

// file writes a file under a temporary name and renames it when it is complete.
func (x *extractor) file(ctx context.Context, in *os.Root, name string, h *tar.Header, r io.Reader) (err error) {
	tmp := localfile.TempName()
	f, err := in.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	release, _ := localfile.Hold(f)
	defer release()
	defer func() {
		if err != nil {
			f.Close()
			_ = in.Remove(tmp)
		}
	}()
	if err := x.copy(ctx, f, name, h.Size, r); err != nil {
		return err
	}
	if err := f.Chmod(x.mode(h)); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if !h.ModTime.IsZero() {
		if err := in.Chtimes(tmp, time.Time{}, localfile.Settable(h.ModTime)); err != nil {
			return err
		}
	}
	return in.Rename(tmp, path.Base(name))
}

// copy skips blocks of zeros, which become holes: a file that is all holes must
// not fill the disk.
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

func (x *extractor) symlink(in *os.Root, name string, h *tar.Header) error {
	target := h.Linkname
	if target == "" || len(target) > maxName || strings.IndexByte(target, 0) >= 0 {
		return unsafe("its target is not a path")
	}
	base := path.Base(name)
	if err := removeExisting(in, base); err != nil {
		return err
	}
	return in.Symlink(filepath.FromSlash(target), base)
}

// Inside returns the target of the symbolic link name, which is in the directory base. It
// makes an absolute target in base relative.
func Inside(name, target, base string) string {
	if base == "" || !path.IsAbs(target) && !filepath.IsAbs(filepath.FromSlash(target)) {
		return target
	}
	rest, ok := strings.CutPrefix(target+"/", strings.TrimSuffix(base, "/")+"/")
	if !ok {
		return target
	}
	up := strings.Repeat("../", strings.Count(name, "/"))
	return cmp.Or(strings.TrimRight(up+strings.TrimLeft(rest, "/"), "/"), ".")
}

// Leads reports whether a symbolic link may lead out of the root. A ".." after
// a name counts as such: the name may itself be a link, whose parent can't be
// determined from the text.
func Leads(name, target string) bool {
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

// isLocal reports whether the system considers the target of a link to be inside the root:
// on Windows some names are devices in any directory.
func isLocal(name, target string) bool {
	return filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(name), target)))
}

func (x *extractor) link(in *os.Root, name, target string) error {
	from, err := Clean(target)
	if err != nil {
		return fmt.Errorf("link to %.200q: %w", target, err)
	}
	if from == name {
		return nil
	}
	// Use paths relative to the root, since the two names may be in different directories.
	root, from, to := x.openDirs[0].dir, filepath.FromSlash(from), filepath.FromSlash(name)
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return unsafe("it is a hard link to %.200q, which is not a file", target)
	}
	if err := removeExisting(in, path.Base(name)); err != nil {
		return err
	}
	return root.Link(from, to)
}

// removeExisting removes the file that a link replaces.
func removeExisting(in *os.Root, base string) error {
	if err := in.Remove(base); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ExtractEncoded is unpack for a compressed archive in base64, as a sandbox sends it. It
// reads to the end of the stream, since only then is the archive known to be complete.
func ExtractEncoded(ctx context.Context, r io.Reader, root *os.Root, opts Options) error {
	gz, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, r))
	if err == nil {
		err = unpack(ctx, gz, root, opts)
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	switch n, err := io.Copy(io.Discard, io.LimitReader(r, 1)); {
	case n > 0:
		return unsafe("the sandbox sends more than an archive")
	default:
		return err
	}
}
