package sandbox

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/klauspost/compress/gzip"

	"github.com/go-vercel/sandbox/internal/untar"
)

// ErrUnsafeArchive matches the error of [Sandbox.DownloadDir] when the sandbox
// sends something that would leave the local directory, that is neither a file
// nor a directory nor a link, or that exceeds a limit.
var ErrUnsafeArchive = untar.ErrUnsafe

// The limits of DownloadDir when its options don't say. They are beyond what a
// sandbox should hold, and keep one that is hostile from filling the disk.
const (
	maxEntries = 500_000
	maxBytes   = 64 << 30
)

// DownloadDirOptions are the options of DownloadDir.
type DownloadDirOptions struct {
	// Include, if not empty, has patterns of what to unpack, and Exclude has
	// patterns of what to leave out. They are those of [UploadOptions].
	Include, Exclude []string
	// MaxEntries and MaxBytes limit the number of files and their total length.
	// Zero means 500,000 files and 64 GiB.
	MaxEntries int
	MaxBytes   int64
	// OutsideLinks keeps symbolic links that lead out of the directory. The
	// default is to refuse them, because whoever works with the local directory
	// later would follow them.
	OutsideLinks bool
	// Progress is told how much was unpacked. The total is not known.
	Progress ProgressFunc
}

// DownloadDir copies the directory src of the sandbox to the local directory
// dst, which is made if it does not exist. Files that exist are replaced, others
// are left alone. Permissions, modification times and symbolic links are kept;
// set-id bits and owners are not.
//
// The content comes as one stream, in constant memory, and is unpacked as it
// comes. It is not trusted: what would be written outside of dst is refused, and
// so are devices, pipes and symbolic links that lead out of dst; the error
// matches [ErrUnsafeArchive]. After an error the files that were whole by then
// stay, and no part of another.
//
// The sandbox needs bash, GNU tar, gzip and base64. A directory that is missing
// there is a [*fs.PathError] that matches [fs.ErrNotExist].
func (s *Sandbox) DownloadDir(ctx context.Context, src, dst string, opts *DownloadDirOptions) error {
	return downloadDir(ctx, s, src, dst, opts)
}

// DownloadDir is as [Sandbox.DownloadDir], but does not resume a session that
// has stopped.
func (s *Session) DownloadDir(ctx context.Context, src, dst string, opts *DownloadDirOptions) error {
	return downloadDir(ctx, s, src, dst, opts)
}

// packScript writes a directory to standard output as a compressed archive in
// base64, since that carries only text. Lines are long, as each may become a
// record of the stream.
const packScript = `set -o pipefail; cd -- "$1" && tar --format=posix --pax-option=delete=atime,delete=ctime --hard-dereference -cf - . | gzip -1 | base64 -w 8192`

func downloadDir(ctx context.Context, t target, src, dst string, opts *DownloadDirOptions) error {
	var o DownloadDirOptions
	if opts != nil {
		o = *opts
	}
	if o.MaxEntries < 0 || o.MaxBytes < 0 {
		return invalid("MaxEntries", "a limit is negative")
	}
	if dst == "" {
		return invalid("dst", "is empty; the path of a local directory is needed")
	}
	if err := checkPath("open", src); err != nil {
		return err
	}
	filter, err := newFilter(o.Include, o.Exclude)
	if err != nil {
		return err
	}
	cmd, err := readCommand(ctx, t, "bash", []string{"-c", packScript, "bash", src})
	if err != nil {
		return &fs.PathError{Op: "open", Path: src, Err: err}
	}
	defer cmd.Close()
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer root.Close()
	m := newMeter(o.Progress, -1)
	err = unpack(ctx, cmd, root, untar.Options{
		MaxEntries: orDefault(o.MaxEntries, maxEntries), MaxBytes: orDefault(o.MaxBytes, maxBytes),
		OutsideLinks: o.OutsideLinks, Keep: filter.keeps,
		Progress: func(name string, n int) { m.add(path.Join(src, name), n) },
	})
	if err == nil {
		return nil
	}
	// The sandbox's own complaint is the better one.
	if fe, ok := errors.AsType[*FSError](err); ok {
		return &fs.PathError{Op: "read", Path: src, Err: fe}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// unpack reads what packScript wrote, to its very end: only then is it certain
// that nothing is missing.
func unpack(ctx context.Context, r io.Reader, root *os.Root, opts untar.Options) error {
	gz, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, r))
	if err != nil {
		return truncated(err)
	}
	if err := untar.Extract(ctx, gz, root, opts); err != nil {
		return truncated(err)
	}
	switch _, err := r.Read(make([]byte, 1)); err {
	case io.EOF:
		return nil
	case nil:
		return errors.Join(ErrUnsafeArchive, errors.New("the sandbox sends more than an archive"))
	default:
		return err
	}
}

func truncated(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func orDefault[T int | int64](n, def T) T {
	if n == 0 {
		return def
	}
	return n
}
