package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// statFormat is the official SDK's, but for the times, which that asks for in
// whole seconds.
const statFormat = "%s|%f|%u|%g|%.9X|%.9Y|%.9Z|%.9W|%h|%i|%d|%B|%b"

// Stat describes a file. It follows symbolic links. The Sys method of the result
// returns a [*FileStat].
func (f *FileSystem) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.stat(ctx, "stat", name, "-L", "-c", statFormat)
}

// Lstat is as [FileSystem.Stat] but describes a symbolic link itself.
func (f *FileSystem) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return f.stat(ctx, "lstat", name, "-c", statFormat)
}

func (f *FileSystem) stat(ctx context.Context, op, name string, args ...string) (fs.FileInfo, error) {
	if err := checkPath(op, name); err != nil {
		return nil, err
	}
	out, err := f.run(ctx, "stat", append(args, operands(name)...)...)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	st, err := parseStat(line(out))
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return &fileInfo{name: path.Base(name), stat: *st}, nil
}

// FileStat is all that the sandbox says of a file. The Sys method of the
// [fs.FileInfo] values of this package returns one.
type FileStat struct {
	// Size is the length in bytes.
	Size int64
	// RawMode is the st_mode of Linux: the type and the permissions.
	RawMode uint32
	// UID and GID are the owner and the group.
	UID, GID int
	// AccessTime, ModTime, ChangeTime and BirthTime have the precision that the
	// sandbox's stat gives. BirthTime is zero when it is not known, and in
	// directory listings.
	AccessTime, ModTime, ChangeTime, BirthTime time.Time
	// Links is the number of hard links.
	Links uint64
	// Inode and Device identify the file.
	Inode, Device uint64
	// BlockSize is the size in bytes of one of the Blocks. It is 512 in
	// directory listings.
	BlockSize int64
	// Blocks is the number of blocks that the content takes up.
	Blocks int64
}

type fileInfo struct {
	name string
	stat FileStat
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.stat.Size }
func (i *fileInfo) Mode() fs.FileMode  { return fileMode(i.stat.RawMode) }
func (i *fileInfo) ModTime() time.Time { return i.stat.ModTime }
func (i *fileInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *fileInfo) Sys() any           { return &i.stat }
func (i *fileInfo) String() string     { return fs.FormatFileInfo(i) }

var errOutput = errors.New("the sandbox's answer makes no sense")

// parseStat reads an answer to statFormat.
func parseStat(s string) (*FileStat, error) {
	const fields = 13
	parts := strings.Split(s, "|")
	if len(parts) != fields {
		return nil, fmt.Errorf("%w: %.100q does not have %d fields", errOutput, s, fields)
	}
	p := fieldParser{}
	st := &FileStat{
		Size:    p.int(parts[0]),
		RawMode: uint32(p.uint(parts[1], 16, 32)),
		UID:     int(p.uint(parts[2], 10, 32)), GID: int(p.uint(parts[3], 10, 32)),
		AccessTime: p.time(parts[4]), ModTime: p.time(parts[5]),
		ChangeTime: p.time(parts[6]), BirthTime: p.time(parts[7]),
		Links: p.uint(parts[8], 10, 64), Inode: p.uint(parts[9], 10, 64), Device: p.uint(parts[10], 10, 64),
		BlockSize: p.int(parts[11]), Blocks: p.int(parts[12]),
	}
	if p.err != nil {
		return nil, p.err
	}
	return st, nil
}

// fieldParser keeps the first error of many fields.
type fieldParser struct{ err error }

func (p *fieldParser) fail(kind, s string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %.40q is not a %s", errOutput, s, kind)
	}
}

func (p *fieldParser) int(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		p.fail("size", s)
		return 0
	}
	return n
}

func (p *fieldParser) uint(s string, base, bits int) uint64 {
	n, err := strconv.ParseUint(s, base, bits)
	if err != nil {
		p.fail("number", s)
	}
	return n
}

// time reads seconds with or without a fraction. "-" is a time that is not
// known. Digits after the ninth of the fraction are dropped.
func (p *fieldParser) time(s string) time.Time {
	if s == "-" || s == "?" || s == "" {
		return time.Time{}
	}
	whole, fraction, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		p.fail("time", s)
		return time.Time{}
	}
	ns := int64(0)
	if fraction != "" {
		digits := (fraction + "000000000")[:9]
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			p.fail("time", s)
			return time.Time{}
		}
		ns = int64(n)
		if strings.HasPrefix(whole, "-") {
			ns = -ns
		}
	}
	return time.Unix(sec, ns)
}

// The types of Linux's st_mode.
const (
	sIFMT   = 0o170000
	sIFSOCK = 0o140000
	sIFLNK  = 0o120000
	sIFREG  = 0o100000
	sIFBLK  = 0o060000
	sIFDIR  = 0o040000
	sIFCHR  = 0o020000
	sIFIFO  = 0o010000
	sISUID  = 0o4000
	sISGID  = 0o2000
	sISVTX  = 0o1000
)

// fileMode converts a st_mode.
func fileMode(raw uint32) fs.FileMode {
	mode := fs.FileMode(raw & 0o777)
	switch raw & sIFMT {
	case sIFDIR:
		mode |= fs.ModeDir
	case sIFLNK:
		mode |= fs.ModeSymlink
	case sIFBLK:
		mode |= fs.ModeDevice
	case sIFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case sIFIFO:
		mode |= fs.ModeNamedPipe
	case sIFSOCK:
		mode |= fs.ModeSocket
	case sIFREG:
	default:
		mode |= fs.ModeIrregular
	}
	if raw&sISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if raw&sISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if raw&sISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// permBits converts the permissions of mode, as chmod and archives have them.
func permBits(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= sISUID
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= sISGID
	}
	if mode&fs.ModeSticky != 0 {
		bits |= sISVTX
	}
	return bits
}
