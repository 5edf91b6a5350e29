package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/filefilter"
	"github.com/go-vercel/sandbox/internal/localfile"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/untar"
	"github.com/go-vercel/sandbox/observe"
)

// DownloadFileOptions are the options of DownloadFile. The zero value is ready
// to use.
type DownloadFileOptions struct {
	// Cwd is the directory in the sandbox that a relative path is resolved in.
	// Empty means the working directory of the session, or the home directory
	// of the user.
	Cwd string
	// MkdirAll creates missing local directories on the path to the file.
	MkdirAll bool
	// MaxBytes is the maximum size of the file. If it is larger, nothing is
	// kept and the error wraps an [*http.MaxBytesError]. Zero means no limit.
	MaxBytes int64
	// Progress, if not nil, is called as the download proceeds.
	Progress func(Progress)
}

// downloadAttempts limits how often a file is requested if its connection breaks.
const downloadAttempts = 3

// DownloadFile copies the file src of the sandbox to the local file dst. It
// writes to a temporary file next to dst and renames that when it is complete:
// dst never holds part of the file, and an error leaves it unchanged. An existing
// file keeps its permissions; one that is not writable is an error. If this process
// is killed, the temporary file remains until the next download to the directory
// removes it. Uploads leave it out.
//
// It makes one request, and a second one for the file's size, which it compares
// with what it received as [FileSystem.Open] does. If the connection breaks, or the
// file's size changes meanwhile, it starts again, up to twice.
//
// If src does not exist, the error is an [*fs.PathError] for src that matches
// [fs.ErrNotExist]. Errors of the local disk name dst.
func (f *FileSystem) DownloadFile(ctx context.Context, src, dst string, opts *DownloadFileOptions) error {
	t := f.target()
	if _, err := enter(ctx, t); err != nil {
		return err
	}
	o := orZero(opts)
	if src == "" {
		return invalid("src", "is empty; the path of a file in the sandbox is needed")
	}
	if dst == "" {
		return invalid("dst", "is empty; the path of a local file is needed")
	}
	if o.MaxBytes < 0 {
		return invalid("MaxBytes", "%d is negative", o.MaxBytes)
	}
	open := func() (*FileReader, error) {
		return openFile(ctx, t, src, o.Cwd, o.Progress)
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer func() { r.Close() }()

	if o.MkdirAll {
		if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
			return err
		}
	}
	w, err := createPartial(dst)
	if err != nil {
		return err
	}
	defer w.discard()
	w.limit = o.MaxBytes
	check := newSizeCheck(ctx, t, r, joinCwd(o.Cwd, src), math.MaxInt64).start()
	defer check.stop()
	for attempt := 1; ; attempt++ {
		err := w.fill(ctx, r)
		if err == nil {
			err = check.compare(r.read)
		}
		if err == nil {
			return w.commit()
		}
		if !isBroken(err) || ctx.Err() != nil || attempt == downloadAttempts {
			return err
		}
		if _, fault := errors.AsType[*FSError](err); fault {
			return err // the sandbox can't read the file
		}
		if err := api.Pause(ctx, time.Duration(attempt)*400*time.Millisecond); err != nil {
			return err
		}
		r.Close()
		check.renew()
		again, err := open()
		if err != nil {
			return err
		}
		r = again
		if err := w.rewind(); err != nil {
			return err
		}
	}
}

// brokenError is an error of the sandbox or the connection, as opposed to the local disk.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

func isBroken(err error) bool {
	_, broken := errors.AsType[brokenError](err)
	return broken
}

// partialFile is the temporary file of a download.
type partialFile struct {
	file *os.File
	name string // the destination as the caller named it, for errors
	dst  string // the destination, with symbolic links resolved

	limit   int64  // in bytes; 0 for none
	release func() // lets other downloads remove the file if it still exists
}

// createPartial creates a temporary file next to dst. Its errors look like those of
// opening dst itself.
func createPartial(dst string) (*partialFile, error) {
	place, err := localfile.Resolve(dst)
	if err != nil {
		return nil, err
	}
	p := &partialFile{name: dst, dst: place.Path}
	mode, exists := fs.FileMode(0), false
	switch {
	case place.Special:
		return nil, &fs.PathError{Op: "open", Path: dst, Err: errors.New("is not a regular file")}
	case place.Info != nil && place.Info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: dst, Err: syscall.EISDIR}
	case place.Info != nil:
		// Replacing a file requires no permission to write to it, but somebody
		// made it read-only for a reason.
		f, err := os.OpenFile(dst, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.Close()
		mode, exists = place.Info.Mode().Perm(), true
	}
	if dir, err := os.OpenRoot(filepath.Dir(p.dst)); err == nil {
		localfile.Sweep(dir)
		dir.Close()
	}
	tmp := filepath.Join(filepath.Dir(p.dst), localfile.TempName())
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, p.fail("open", err)
	}
	p.file = f
	p.release, _ = localfile.Hold(f)
	if exists {
		if err := f.Chmod(mode); err != nil {
			p.discard()
			return nil, p.fail("chmod", err)
		}
	}
	return p, nil
}

// fail returns err with the caller's name in place of the temporary file's.
func (p *partialFile) fail(op string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: pe.Op, Path: p.name, Err: pe.Err}
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: le.Op, Path: p.name, Err: le.Err}
	}
	return &fs.PathError{Op: op, Path: p.name, Err: err}
}

// tooLarge wraps an [*http.MaxBytesError], whose text is about a request. Its own text is
// about a file.
type tooLarge struct{ *http.MaxBytesError }

func (e tooLarge) Error() string {
	return fmt.Sprintf("the file is larger than the limit of %d bytes", e.Limit)
}

func (e tooLarge) Unwrap() error { return e.MaxBytesError }

// fill copies r to the file. An error of r becomes a brokenError, unless ctx has ended.
func (p *partialFile) fill(ctx context.Context, r io.Reader) error {
	buf := transferBuffers.Get().(*[256 << 10]byte)
	defer transferBuffers.Put(buf)
	var total int64
	for {
		n, err := r.Read(buf[:])
		if total += int64(n); p.limit > 0 && total > p.limit {
			return p.fail("download", tooLarge{&http.MaxBytesError{Limit: p.limit}})
		}
		if n > 0 {
			if _, err := p.file.Write(buf[:n]); err != nil {
				return p.fail("write", err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && ctx.Err() != nil:
			return api.ContextError(ctx)
		case err != nil:
			return brokenError{err}
		}
	}
}

// rewind truncates the file for another attempt.
func (p *partialFile) rewind() error {
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return p.fail("seek", err)
	}
	if err := p.file.Truncate(0); err != nil {
		return p.fail("truncate", err)
	}
	return nil
}

// commit renames the file to its destination.
func (p *partialFile) commit() error {
	if err := p.file.Close(); err != nil {
		return p.fail("close", err)
	}
	if err := os.Rename(p.file.Name(), p.dst); err != nil {
		return p.fail("rename", err)
	}
	return nil
}

// discard removes a file that was not committed.
func (p *partialFile) discard() {
	p.file.Close()
	os.Remove(p.file.Name())
	p.release()
}

// ErrUnsafeArchive matches the error of [FileSystem.DownloadDir] if the sandbox sends an
// entry that would leave the local directory, that is of an unknown kind, or that exceeds
// a limit. A [*ChangedError] matches it, too, if one of its Unwritable files would have
// been written through a symbolic link. You may have made that link in the local directory
// yourself.
var ErrUnsafeArchive = untar.ErrUnsafe

// Default limits of DownloadDir. They are larger than the files of an ordinary sandbox,
// and keep a hostile one from filling the disk.
const (
	maxEntries = 500_000
	maxBytes   = 64 << 30
)

// DownloadDirOptions are the options of DownloadDir. The zero value is ready to
// use.
type DownloadDirOptions struct {
	// Include, if not empty, lists patterns of what to unpack, and Exclude
	// lists patterns of what to leave out, with the syntax of [UploadOptions].
	Include, Exclude []string
	// MaxEntries and MaxBytes limit the number of files, directories and links
	// that the sandbox sends, and the total size of the files, including those
	// that Include and Exclude leave out. Zero means 500,000 and 64 GiB.
	MaxEntries int
	MaxBytes   int64
	// OutsideLinks keeps symbolic links that lead out of the directory. They are
	// left out by default, because anyone who works with the local directory later
	// would follow them.
	OutsideLinks bool
	// DotGit unpacks files that tools run or obey without asking. By default they are
	// left out if dst is in a working tree of Git, Mercurial or another version control
	// system:
	//
	//   - .git, in any spelling that a file system accepts for it, because Git runs the
	//     hooks in it;
	//   - files named HEAD, and files for a directory that has one, because Git takes
	//     such a directory for a repository;
	//   - repositories of other systems (.hg, .sl, .jj, .bzr, .fslckout, _darcs and the
	//     like), which name programs to run as well;
	//   - settings of editors, agents and shells (.vscode, .idea, .vim, .exrc, .claude,
	//     .cursor, .husky, mise.toml and the like).
	DotGit bool
	// LeftOut, if not nil, is called at the end with each path, relative to dst, that
	// was left out: sockets, pipes, devices, and what OutsideLinks or DotGit would have
	// kept. A directory's path stands for everything in it.
	LeftOut func(name string)
	// Progress, if not nil, is called as files are unpacked. The total is not
	// known.
	Progress func(Progress)
}

// check refuses options that are invalid for every download.
func (o *DownloadDirOptions) check(src, dst string) error {
	switch {
	case o.MaxEntries < 0:
		return invalid("MaxEntries", "%d is negative", o.MaxEntries)
	case o.MaxBytes < 0:
		return invalid("MaxBytes", "%d is negative", o.MaxBytes)
	case dst == "":
		return invalid("dst", "is empty; the path of a local directory is needed")
	}
	return checkPath("open", src)
}

// DownloadDir copies the directory src of the sandbox to the local directory dst, which is
// created if it does not exist. Existing files are replaced, others are left alone.
// Modification times, symbolic links and, subject to the umask, permissions are preserved.
// The permissions of src itself are copied only if dst is new. Set-id bits and owners are
// not preserved. A link to an absolute path in src becomes relative.
//
// Sockets, pipes, devices and symbolic links that lead out of src are left out: see
// [DownloadDirOptions.LeftOut]. If dst is in a working tree of Git, files that Git and
// editors run by themselves are left out as well, unless DotGit is set. Files that can't
// be read, that change or vanish meanwhile, or that can't be written because of what is in
// dst, don't stop the download: the error at its end is a [*ChangedError] that names them.
//
// The content is one stream, the output of a command, and is unpacked as it
// arrives, in constant memory. It is not trusted: entries outside of dst are
// refused, and so are names more than 255 directories deep; the error then matches
// [ErrUnsafeArchive]. After an error, the files that were complete remain; no file
// remains in part.
//
// The sandbox needs bash, GNU tar, gzip and base64. If src does not exist, the
// error is an [*fs.PathError] that matches [fs.ErrNotExist].
func (f *FileSystem) DownloadDir(ctx context.Context, src, dst string, opts *DownloadDirOptions) (err error) {
	t := f.target()
	c, err := enter(ctx, t)
	if err != nil {
		return err
	}
	o := orZero(opts)
	if err := o.check(src, dst); err != nil {
		return err
	}
	filter, err := newFilter(o.Include, o.Exclude)
	if err != nil {
		return err
	}
	ctx, e := c.beginEvent(ctx, t, observe.Event{Kind: observe.Download})
	defer func() { endEvent(&e, err) }()
	onlyFaults := func(r coreutils.Result) bool { // tar failed only for single files: the archive is complete
		_, only := coreutils.PackFaults(r)
		return only
	}
	cmd, err := readCommand(ctx, t, src, "bash", []string{"-c", coreutils.PackScript, "bash", src}, onlyFaults)
	if err != nil {
		return &fs.PathError{Op: "open", Path: src, Err: err}
	}
	defer cmd.Close()
	_, lstatErr := os.Lstat(dst)
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer root.Close()
	var top fs.FileMode // the permissions of src, if they have arrived
	if errors.Is(lstatErr, fs.ErrNotExist) {
		defer func() {
			if top != 0 { // keep a private directory private
				err = joinErrors(err, root.Chmod(".", top))
			}
		}()
	}
	report := &copyReport{}
	defer report.callLeftOut(o.LeftOut)
	keep := func(name string, _ bool) bool { return filter.Keeps(name) }
	if !o.DotGit {
		within, err := filefilter.WorkTree(dst)
		if err != nil {
			return err
		}
		if within {
			guard := filefilter.NewGuard(root, report.addLeftOut)
			keep = func(name string, dir bool) bool { return filter.Keeps(name) && guard.Keeps(name, dir) }
		}
	}
	m := newMeter(o.Progress, -1)
	base, err := absolutePath(t.cwd(), src)
	if err != nil {
		return err
	}
	unpacking := untar.Options{
		MaxEntries: cmp.Or(o.MaxEntries, maxEntries), MaxBytes: cmp.Or(o.MaxBytes, maxBytes),
		OutsideLinks: o.OutsideLinks, Base: base, LeftOut: report.addLeftOut, Unwritable: report.addUnwritable, Keep: keep, Top: &top,
		Progress: func(name string, n int) {
			e.Received += int64(n)
			m.add(path.Join(src, name), n)
		},
	}
	err = untar.ExtractEncoded(ctx, cmd, root, unpacking)
	cmd.Close()
	// Report the files that tar could not pack whole, and remove what it sent in place of
	// their missing parts.
	faults, _ := coreutils.PackFaults(cmd.result)
	for _, fault := range faults {
		name, unsafe := untar.Clean(fault.Name)
		if unsafe != nil || name != "." && !keep(name, false) {
			continue
		}
		report.addPackFault(name, fault)
		if !report.isUnwritable(name) && (fault.Zeros > 0 || fault.ReadOnly >= 0) {
			err = joinErrors(err, coreutils.Mend(ctx, fault, root, name, unpacking))
		}
	}
	if err == nil {
		return report.err(src)
	}
	// The sandbox's own error says more.
	if fe, ok := errors.AsType[*FSError](err); ok {
		return &fs.PathError{Op: "read", Path: src, Err: fe}
	}
	if errors.Is(err, untar.ErrUnsafe) {
		err = fmt.Errorf("%w: %w", ErrUnsafeArchive, err)
	}
	return fmt.Errorf("sandbox: download %s: %w", redact.Printable(src), err)
}
