package coreutils

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// statFormat is that of the official SDK except for the times, which the
// official SDK requests in whole seconds.
const statFormat = "%s|%f|%u|%g|%.9X|%.9Y|%.9Z|%.9W|%h|%i|%d|%B|%b"

// Stat is everything that is known about a file.
type Stat struct {
	Size                                       int64
	RawMode                                    uint32 // st_mode of Linux
	UID, GID                                   int
	AccessTime, ModTime, ChangeTime, BirthTime time.Time
	Links, Inode, Device                       uint64
	BlockSize, Blocks                          int64
}

// Stat describes a file, or what a symbolic link points to if follow is set.
func (run Runner) Stat(ctx context.Context, name string, follow bool) (*Stat, error) {
	args := []string{"-c", statFormat}
	if follow {
		args = []string{"-L", "-c", statFormat}
	}
	out, err := run.Run(ctx, "stat", append(args, Operands(name)...)...)
	if err != nil {
		return nil, err
	}
	return parseStat(line(out))
}

// RealPath returns the path of a file without symbolic links. It calls stat first: GNU
// readlink never ends if a link goes through itself, but stat fails.
func (run Runner) RealPath(ctx context.Context, name string) (string, error) {
	const script = `stat -L -- "$1" >/dev/null || exit; exec readlink -f -- "$1"`
	return run.Query(ctx, "sh", "-c", script, "sh", name)
}

// ErrOutput matches the error about output that no program of coreutils writes.
var ErrOutput = errors.New("the sandbox's output is not valid")

// parseStat parses the output of statFormat.
func parseStat(s string) (*Stat, error) {
	const fields = 13
	parts := strings.Split(s, "|")
	if len(parts) != fields {
		return nil, fmt.Errorf("%w: %.100q does not have %d fields", ErrOutput, s, fields)
	}
	p := fieldParser{}
	st := &Stat{
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
		p.err = fmt.Errorf("%w: %.40q is not a %s", ErrOutput, s, kind)
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

// time parses seconds with or without a fraction. "-" is an unknown time, and so is "W",
// which BusyBox prints for an unknown birth time. It drops digits after the ninth of the
// fraction.
func (p *fieldParser) time(s string) time.Time {
	if s == "-" || s == "?" || s == "" || s == "W" {
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

// FileMode converts a st_mode.
func FileMode(raw uint32) fs.FileMode {
	mode := (&tar.Header{Mode: int64(raw)}).FileInfo().Mode()
	if mode.IsRegular() && raw&sIFMT != sIFREG {
		mode |= fs.ModeIrregular
	}
	return mode
}

// permBits converts the permissions of mode to those of chmod and archives.
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

// Octal returns the permissions of mode as an argument of chmod and mkdir.
func Octal(mode fs.FileMode) string { return strconv.FormatUint(uint64(permBits(mode)), 8) }
