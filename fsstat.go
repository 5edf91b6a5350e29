package sandbox

import (
	"context"
	"io/fs"
	"path"
	"time"

	"github.com/go-vercel/sandbox/internal/coreutils"
)

// Stat returns information about the named file. It follows symbolic links. The
// result's Sys method returns a [*FileStat].
func (f *FileSystem) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.stat(ctx, "stat", name, true)
}

// Lstat is like [FileSystem.Stat], but describes a symbolic link itself.
func (f *FileSystem) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.stat(ctx, "lstat", name, false)
}

func (f *FileSystem) stat(ctx context.Context, op, name string, follow bool) (fs.FileInfo, error) {
	if err := f.enter(ctx, op, name); err != nil {
		return nil, err
	}
	st, err := f.tools(name).Stat(ctx, name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: reason(err)}
	}
	return &fileInfo{name: path.Base(name), stat: *st}, nil
}

// FileStat is experimental: what the sandbox reports about a file beyond its
// [fs.FileInfo], whose Sys method returns a *FileStat.
type FileStat struct {
	// RawMode is Linux's st_mode: the file's type and permissions.
	RawMode uint32
	// UID and GID are the IDs of the owner and the group.
	UID, GID int
	// AccessTime, ChangeTime and BirthTime are as precise as the sandbox's stat
	// reports them. BirthTime is zero if unknown, and in directory listings.
	AccessTime, ChangeTime, BirthTime time.Time
	// Links is the number of hard links.
	Links uint64
	// Inode and Device identify the file.
	Inode, Device uint64
	// BlockSize is the size in bytes of a block as counted by Blocks. It is 512
	// in directory listings.
	BlockSize int64
	// Blocks is the number of blocks allocated.
	Blocks int64
}

type fileInfo struct {
	name string
	stat coreutils.Stat
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.stat.Size }
func (i *fileInfo) Mode() fs.FileMode  { return coreutils.FileMode(i.stat.RawMode) }
func (i *fileInfo) ModTime() time.Time { return i.stat.ModTime }
func (i *fileInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *fileInfo) String() string     { return fs.FormatFileInfo(i) }

func (i *fileInfo) Sys() any {
	s := &i.stat
	return &FileStat{
		RawMode: s.RawMode, UID: s.UID, GID: s.GID, AccessTime: s.AccessTime, ChangeTime: s.ChangeTime, BirthTime: s.BirthTime,
		Links: s.Links, Inode: s.Inode, Device: s.Device, BlockSize: s.BlockSize, Blocks: s.Blocks,
	}
}

// tools returns a Runner of programs that work on these paths.
func (f *FileSystem) tools(paths ...string) coreutils.Runner {
	return func(ctx context.Context, c coreutils.Call) (coreutils.Result, error) {
		return program{name: c.Name, args: c.Args, paths: paths, stdout: c.Stdout}.run(ctx, f.on())
	}
}
