package sandbox

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
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

// operands puts "--" before paths when one of them would be taken for an
// option. It is left out otherwise, so that ordinary requests are those of the
// official SDK.
func operands(paths ...string) []string {
	for _, p := range paths {
		if strings.HasPrefix(p, "-") {
			return append([]string{"--"}, paths...)
		}
	}
	return paths
}

// run runs a program for a file operation and returns what it wrote to its
// standard output. A program that fails is an *FSError.
func (f *FileSystem) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := runFor(ctx, f.t, name, args, nil)
	if fe, ok := errors.AsType[*FSError](err); ok && !fe.understood() {
		again, errAgain := runFor(ctx, f.t, name, args, map[string]string{"LC_ALL": "C"})
		if _, ok := errors.AsType[*FSError](errAgain); ok || errAgain == nil {
			return again, errAgain
		}
	}
	return out, err
}

// query is run for programs that print a name and change nothing. Output that
// was not UTF-8, and so did not survive the way here, is asked for again in an
// encoding that does.
func (f *FileSystem) query(ctx context.Context, name string, args ...string) (string, error) {
	out, err := f.run(ctx, name, args...)
	if err != nil || !strings.ContainsRune(out, utf8.RuneError) {
		return out, err
	}
	name, args = encoded(name, args)
	if out, err = f.run(ctx, name, args...); err != nil {
		return "", err
	}
	decoded, err := base64.StdEncoding.DecodeString(out)
	return string(decoded), err
}

// encoded wraps a command so that its output is base64.
func encoded(name string, args []string) (string, []string) {
	const script = `set -o pipefail; "$@" | base64`
	return "bash", append([]string{"-c", script, "bash", name}, args...)
}

func runFor(ctx context.Context, t target, name string, args []string, env map[string]string) (string, error) {
	name, args = carry(name, args)
	done, err := t.RunCommand(ctx, name, args, &CommandOptions{Env: env})
	if err != nil {
		return "", err
	}
	if done.ExitCode != 0 {
		stderr, err := done.Stderr(ctx)
		if err != nil {
			return "", err
		}
		return "", newFSError(name, done.ExitCode, stderr)
	}
	return done.Stdout(ctx)
}

func newFSError(command string, exitCode int, stderr string) *FSError {
	return &FSError{Errno: errnoOf(stderr), Command: command, ExitCode: exitCode, Message: stderr}
}

// line cuts the newline that ends a program's answer, and nothing else: a name
// can begin and end with white space.
func line(out string) string { return strings.TrimSuffix(out, "\n") }

// carry rewrites a command whose arguments JSON can't carry, because they are
// not UTF-8, into one that says them in bash's quotes. Others stay as they are.
func carry(name string, args []string) (string, []string) {
	whole := true
	for _, a := range args {
		whole = whole && utf8.ValidString(a)
	}
	if whole {
		return name, args
	}
	var script strings.Builder
	script.WriteString("exec " + bashQuote(name))
	for _, a := range args {
		script.WriteString(" " + bashQuote(a))
	}
	return "bash", []string{"-c", script.String()}
}

// bashQuote quotes s so that bash reads it as one word of exactly these bytes.
func bashQuote(s string) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// FSError is the reason inside the [*fs.PathError] or [*os.LinkError] of a file
// operation that the sandbox refused.
type FSError struct {
	// Errno says what was wrong, such as [syscall.ENOTEMPTY], and is what
	// [errors.Is] compares with. It is 0 when the sandbox's words were not
	// understood.
	Errno syscall.Errno
	// Command is the program that failed and ExitCode the code that it ended
	// with. They are empty for what the API itself refused.
	Command  string
	ExitCode int
	// Message is what the program wrote to its standard error, or the API's
	// message.
	Message string
	// Err is the API's error, if it was the API that refused.
	Err error
}

// Error returns the errno in words, or else what the sandbox said.
func (e *FSError) Error() string {
	msg := strings.TrimSpace(e.Message)
	switch {
	case e.Errno != 0:
		return e.Errno.Error()
	case e.Err != nil:
		return e.Err.Error()
	case msg != "":
		return msg
	default:
		return fmt.Sprintf("%s ended with exit code %d", e.Command, e.ExitCode)
	}
}

// Unwrap returns Errno and Err, those of them that are set.
func (e *FSError) Unwrap() []error {
	var errs []error
	if e.Errno != 0 {
		errs = append(errs, e.Errno)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// understood reports whether asking again for a message in English is of no
// use: it was understood, there was none, or the program is missing.
func (e *FSError) understood() bool {
	const notExecutable, notFound = 126, 127
	return e.Errno != 0 || strings.TrimSpace(e.Message) == "" ||
		e.ExitCode == notExecutable || e.ExitCode == notFound
}

// errnos are the C library's messages in lower case. Go's own are the same.
var errnos = map[string]syscall.Errno{
	"no such file or directory":         syscall.ENOENT,
	"file exists":                       syscall.EEXIST,
	"permission denied":                 syscall.EACCES,
	"operation not permitted":           syscall.EPERM,
	"not a directory":                   syscall.ENOTDIR,
	"is a directory":                    syscall.EISDIR,
	"directory not empty":               syscall.ENOTEMPTY,
	"read-only file system":             syscall.EROFS,
	"no space left on device":           syscall.ENOSPC,
	"disk quota exceeded":               syscall.EDQUOT,
	"too many levels of symbolic links": syscall.ELOOP,
	"symbolic link loop":                syscall.ELOOP,
	"file name too long":                syscall.ENAMETOOLONG,
	"filename too long":                 syscall.ENAMETOOLONG,
	"invalid argument":                  syscall.EINVAL,
	"invalid cross-device link":         syscall.EXDEV,
	"device or resource busy":           syscall.EBUSY,
	"resource busy":                     syscall.EBUSY,
	"text file busy":                    syscall.ETXTBSY,
	"file too large":                    syscall.EFBIG,
	"input/output error":                syscall.EIO,
	"i/o error":                         syscall.EIO,
	"too many links":                    syscall.EMLINK,
	"too many open files":               syscall.EMFILE,
	"no such device or address":         syscall.ENXIO,
	"stale file handle":                 syscall.ESTALE,
	"operation not supported":           syscall.EOPNOTSUPP,
	"argument list too long":            syscall.E2BIG,
	"cannot allocate memory":            syscall.ENOMEM,
}

// phrases are what coreutils says in its own words. They are looked for only
// where no errno ends the line, as a file's name can hold anything.
var phrases = []struct {
	text  string
	errno syscall.Errno
}{
	{"cannot overwrite non-directory", syscall.ENOTDIR},
	{"cannot overwrite directory", syscall.EISDIR},
	{"omitting directory", syscall.EISDIR},
	{"to a subdirectory of itself", syscall.EINVAL},
	{"refusing to remove", syscall.EINVAL},
	{"it is dangerous to operate recursively on", syscall.EPERM},
	{"dangling symlink", syscall.ENOENT},
	{"invalid user", syscall.EINVAL},
	{"invalid group", syscall.EINVAL},
	{"invalid mode", syscall.EINVAL},
}

// errnoOf finds what a program's messages say: the first line that ends in the
// words of an errno decides.
func errnoOf(message string) syscall.Errno {
	for line := range strings.Lines(message) {
		line = strings.ToLower(strings.TrimSpace(line))
		if i := strings.LastIndex(line, ": "); i >= 0 {
			line = line[i+2:]
		}
		if errno, ok := errnos[line]; ok {
			return errno
		}
	}
	for line := range strings.Lines(message) {
		line = strings.ToLower(line)
		for _, p := range phrases {
			if strings.Contains(line, p.text) {
				return p.errno
			}
		}
	}
	return 0
}

// errnoOfAPI finds what an API error says about a file.
func errnoOfAPI(e *APIError) syscall.Errno {
	switch e.Code {
	case "is_directory":
		return syscall.EISDIR
	case "not_directory", "not_a_directory":
		return syscall.ENOTDIR
	case "already_exists", "file_exists", "exists":
		return syscall.EEXIST
	case "permission_denied":
		return syscall.EACCES
	case "no_space", "disk_full":
		return syscall.ENOSPC
	}
	if errno := errnoOf(e.Message); errno != 0 {
		return errno
	}
	switch strings.ToLower(e.Message) {
	case "exists", "already exists":
		return syscall.EEXIST
	case "disk full":
		return syscall.ENOSPC
	}
	return 0
}
