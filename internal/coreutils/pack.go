package coreutils

import (
	"cmp"
	"context"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox/internal/untar"
)

const packing = `set -o pipefail; d=$1; [ "$d" != - ] || d=./-; cd -- "$d" && tar --format=posix --pax-option=delete=atime,delete=ctime --hard-dereference --quoting-style=escape`

// PackScript writes a directory, its argument, to standard output as a compressed
// archive, in base64 because output is text. Lines are long, because each may become a
// record of the stream. [PackFaults] parses its messages about files that it can't pack
// unchanged.
const PackScript = packing + ` -cf - . | gzip -1 | base64 -w 8192`

// PackFault is a file that tar could not pack unchanged.
type PackFault struct {
	Name string // relative, and as the sandbox says: not to be trusted
	// Kind says what happened to it.
	Kind packKind
	// Errno is why it is unreadable.
	Errno syscall.Errno
	// Zeros is the number of bytes at the file's end in the archive that were never in
	// the file: the file became shorter, and tar filled it up to the announced length. If
	// ReadOnly is not negative, tar has read only that many bytes of the file, and the
	// rest in the archive is zeros.
	Zeros, ReadOnly int64
}

// packKind is what happened to a file.
type packKind int

// The kinds of faults.
const (
	Changed    packKind = iota // it was written to while it was read
	Gone                       // it was removed, and is not in the archive
	Unreadable                 // it is not in the archive, or only in part
	Socket                     // it can't be in an archive
)

// duringRead are messages about a file that existed when tar listed it, and was then
// removed or replaced by another kind of file. No file system causes them for an
// unchanged file.
var duringRead = map[string]bool{
	"File removed before we read it":                 true,
	"Cannot stat: No such file or directory":         true,
	"Cannot open: No such file or directory":         true,
	"Cannot open: Not a directory":                   true,
	"Cannot open: Too many levels of symbolic links": true,
	"Cannot readlink: No such file or directory":     true,
	"Cannot readlink: Invalid argument":              true,
	"Cannot savedir: No such file or directory":      true,
}

// unreadable matches messages about a file that could not be read, followed by the
// reason.
var unreadable = regexp.MustCompile(`^(?:Cannot (?:stat|open|readlink|savedir|read|seek)|Read error at byte (\d+), while reading \d+ bytes?): (.+)$`)

// PackFaults parses the messages of [PackScript] about files. only reports that tar failed
// for no other reason, so that the rest of the archive is complete.
func PackFaults(r Result) (faults []PackFault, only bool) {
	only = r.ExitCode == 1 || r.ExitCode == 2
	failures := 0
	for line := range strings.Lines(r.Stderr) {
		program, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if path.Base(program) != "tar" {
			only = false
			continue
		}
		if rest == "Exiting with failure status due to previous errors" {
			continue
		}
		fault, ok := packFault(unescape(rest))
		if !ok {
			only = false
			continue
		}
		if fault.Kind != Socket {
			failures++
		}
		faults = append(faults, fault)
	}
	return faults, only && failures > 0
}

// packFault parses a message about a file.
func packFault(name, said string) (PackFault, bool) {
	f := PackFault{Name: name, ReadOnly: -1}
	if said == "socket ignored" {
		f.Kind = Socket
		return f, true
	}
	if said == "file changed as we read it" {
		return f, true
	}
	if by, shrank := strings.CutPrefix(said, "File shrank by "); shrank {
		number, _, _ := strings.Cut(by, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		f.Zeros = n
		return f, err == nil && n >= 0
	}
	if path.Clean(name) == "." { // the directory itself
		return f, false
	}
	if duringRead[said] {
		f.Kind = Gone
		return f, true
	}
	m := unreadable.FindStringSubmatch(said)
	if m == nil {
		return f, false
	}
	f.Kind, f.Errno = Unreadable, cmp.Or(Errno("tar: "+m[2]), syscall.EIO)
	if m[1] != "" {
		n, err := strconv.ParseInt(m[1], 10, 64)
		f.ReadOnly = n
		return f, err == nil
	}
	return f, true
}

// Mend removes from an unpacked file what tar added because the file became shorter or
// could not be read to its end. It does so even if ctx has ended.
func Mend(ctx context.Context, f PackFault, root *os.Root, name string, o untar.Options) error {
	length := func(size int64) int64 { return size - f.Zeros }
	if f.ReadOnly >= 0 {
		length = func(int64) int64 { return f.ReadOnly }
	}
	return untar.Shorten(context.WithoutCancel(ctx), root, name, length, o)
}

// unescape splits a message into the name at its start and the rest. tar also escapes
// colons in a name.
func unescape(s string) (name, said string) {
	const from, to = "abfnrtv", "\a\b\f\n\r\t\v"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], ": "):
			return b.String(), s[i+2:]
		case s[i] != '\\' || i+1 == len(s):
			b.WriteByte(s[i])
			continue
		}
		i++
		if n, err := strconv.ParseUint(s[i:min(i+3, len(s))], 8, 8); err == nil {
			b.WriteByte(byte(n))
			i += 2
		} else if k := strings.IndexByte(from, s[i]); k >= 0 {
			b.WriteByte(to[k])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}
