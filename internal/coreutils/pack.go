package coreutils

import (
	"context"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox/internal/untar"
)

const packing = `set -o pipefail; d=$1; [ "$d" != - ] || d=./-; cd -- "$d" && tar --format=posix --pax-option=delete=atime,delete=ctime --hard-dereference --quoting-style=escape`

// PackScript writes a directory, its argument, to standard output as a compressed
// archive, in base64, since output carries only text. Lines are long, as each may
// become a record of the stream. See [PackChanges] for what it says of files that
// are in use. PackNamedScript writes files of the directory, whose names standard
// input has, each followed by a NUL.
const (
	PackScript      = packing + ` -cf - . | gzip -1 | base64 -w 8192`
	PackNamedScript = packing + ` --no-recursion --null -T - -cf - | gzip -1 | base64 -w 8192`
)

// Changed is a file that was in use while tar read it.
type Changed struct {
	Name string // relative, and as the sandbox says: not to be trusted
	// Gone is set if it is not in the archive.
	Gone bool
	// Zeros is how many bytes at its end in the archive were never in the file:
	// it became shorter, and tar fills it up to the length that it has announced.
	Zeros int64
}

// duringRead are the complaints about a file that was there when tar learned of it
// and was then removed, or replaced by one of another kind. A file system can
// say none of them of one that stays as it is.
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

// PackChanges reads what the tar of [PackScript] has said of files in use. only
// means that it has failed for nothing else: the archive is complete.
func PackChanges(r Result) (changed []Changed, only bool) {
	only = r.ExitCode == 1 || r.ExitCode == 2
	for line := range strings.Lines(r.Stderr) {
		program, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		name, said := unescape(rest)
		c := Changed{Name: name}
		switch {
		case path.Base(program) != "tar":
			only = false
			continue
		case rest == "Exiting with failure status due to previous errors":
			continue
		case said == "socket ignored":
			continue
		case said == "file changed as we read it":
		case duringRead[said] && name != ".":
			c.Gone = true
		default:
			by, shrank := strings.CutPrefix(said, "File shrank by ")
			number, _, _ := strings.Cut(by, " ")
			n, err := strconv.ParseInt(number, 10, 64)
			if !shrank || err != nil || n < 0 {
				only = false
				continue
			}
			c.Zeros = n
		}
		changed = append(changed, c)
	}
	return changed, only && len(changed) > 0
}

// Mend takes from files that were unpacked what tar made up of those that became
// shorter, also when ctx has ended, and returns the files that were in use: of them,
// those that keep wants.
func Mend(ctx context.Context, said Result, root *os.Root, keep func(name string) bool, o untar.Options) (changed, gone []string, err error) {
	files, _ := PackChanges(said)
	for _, file := range files {
		name, unsafe := untar.Clean(file.Name)
		if unsafe != nil || name != "." && !keep(name) {
			continue
		}
		if file.Zeros > 0 {
			err = errors.Join(err, untar.Shorten(context.WithoutCancel(ctx), root, name, file.Zeros, o))
		}
		if file.Gone {
			gone = append(gone, name)
		} else if n := len(changed); n == 0 || changed[n-1] != name { // tar may say two things of it
			changed = append(changed, name)
		}
	}
	return changed, gone, err
}

// unescape splits a complaint into the name that it begins with and what is said
// of it. In a name colons are escaped as well.
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
