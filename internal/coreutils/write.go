package coreutils

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"strconv"
	"strings"
)

// ErrLost matches the error of a script that did nothing because a file that it needs is
// missing or was changed. The machine may be a new one, or another program may have
// removed the file.
var ErrLost = errors.New("what was uploaded before is gone")

// lostCode is the exit code of a script in that case: EX_TEMPFAIL.
const lostCode = 75

// MaxWrite is the largest write of package os.
const MaxWrite = 1 << 30

// Piece is an uploaded file that becomes part of another one.
type Piece struct {
	Path string
	Size int64
	Sum  string // SHA-256 in hexadecimal
}

// makeParent creates the parent directory $d of a file, and prints that it did.
const makeParent = `[ -e "$d" ] || [ -L "$d" ] || { mkdir -p -- "$d" && echo made; } || exit
`

// checkSum ends the script unless the piece $p has the checksum $s.
const checkSum = `printf '%s  %s\n' "$s" "$p" | sha256sum -c >/dev/null 2>&1 || exit 75
`

// sweep removes old pieces, whose upload arrived after their call had given up. A piece
// that is still needed is less than a day old. sweep runs no program if $p is the only
// piece.
const sweep = `for x in /tmp/.piece-*; do
[ "$x" = "$p" ] || [ ! -e "$x" ] || { find /tmp -maxdepth 1 -type f -name '.piece-*' -ctime +0 -delete 2>/dev/null; break; }
done
`

// appendOnce appends its standard input, $n bytes, to $f with one write(2), like package
// os, so that concurrent appends do not mix. dd reports how many blocks it wrote, which
// shows whether its input was cut off.
const appendOnce = `dd of="$f" bs="$n" iflag=fullblock oflag=append conv=notrunc 2>&1) || { echo "$out" >&2; exit 1; }
case $out in *'1+0 records out'*) ;; *) echo "$out" >&2; exit 1;; esac
`

// Append adds data, at most MaxWrite bytes, to the end of a file in one write. It creates
// a missing file and its missing parent directories. made reports whether it created
// directories. The data is passed as an argument.
func (run Runner) Append(ctx context.Context, name string, data []byte) (made bool, err error) {
	const script = `f=$1 d=$2 n=$3
` + makeParent + `[ "$n" -gt 0 ] || exec dd if=/dev/null of="$f" conv=notrunc status=none
out=$(printf %s "$4" | base64 -d | ` + appendOnce
	return run.write(ctx, script, name, Dir(name), strconv.Itoa(len(data)), base64.StdEncoding.EncodeToString(data))
}

// AppendPiece is like Append for uploaded data, and removes the piece.
func (run Runner) AppendPiece(ctx context.Context, name string, p Piece) (made bool, err error) {
	const script = `f=$1 d=$2 n=$3 p=$4 s=$5
trap 'rm -f -- "$p"' EXIT
` + sweep + checkSum + makeParent + `out=$(<"$p" ` + appendOnce
	return run.write(ctx, script, name, Dir(name), strconv.FormatInt(p.Size, 10), p.Path, p.Sum)
}

// Placement is the final name of a file.
type Placement struct {
	Name string
	Mode fs.FileMode
}

// Join appends an uploaded piece to the file name, whose size must be at, and removes the
// piece. If at is zero, Join creates the file, with permissions for its owner only.
//
// If to is not nil, and the file then ends with the piece, Join sets the mode of the file
// and renames it to its final name. That replaces a regular file of that name, and follows
// a symbolic link, as package os does.
//
// If the outcome of a run is unknown, Join may run a second time, with again set, even
// while the first run continues. If a file of the right size has the final name, the
// second run assumes that the first one renamed it. If the first run removes a file that
// the second one needs, the second run tries again. The second run may create an empty
// file just after the first one has renamed its own. It then finds no piece, and removes
// the empty file. A late run that finds neither the file nor the piece does nothing. Every
// file therefore needs a piece, even an empty one.
func (run Runner) Join(ctx context.Context, name string, at int64, p Piece, to *Placement, again bool) (made bool, err error) {
	const script = "p=$7\n" + sweep + `join() {
f=$1 d=$2 at=$3 to=$4 mode=$5 again=$6 p=$7 n=$8 s=$9
size=$((at+n))
if [ -n "$again" ] && [ -n "$to" ] && [ ! -e "$f" ] && [ ! -e "$p" ] && [ -f "$to" ]; then
[ "$(stat -L -c %s -- "$to")" = "$size" ]; exit $(($? * 75))
fi
[ -e "$f" ] || [ -e "$p" ] || exit 75
if [ "$at" = 0 ]; then
` + makeParent + `(umask 077; dd if=/dev/null of="$f" conv=notrunc status=none) || exit
fi
have=0
[ "$at" = 0 ] && [ -e "$p" ] || have=$(stat -c %s -- "$f" 2>/dev/null) || exit 75
if [ -e "$p" ]; then
[ "$have" -ge "$at" ] || exit 75
` + checkSum + `dd if="$p" of="$f" bs=1M seek="$at" oflag=seek_bytes conv=notrunc,nocreat status=none || exit
rm -f -- "$p"
else
[ "$have" -ge "$size" ] || { [ -s "$f" ] || rm -f -- "$f"; exit 75; }
fi
[ -n "$to" ] || exit 0
[ "$(stat -c %s -- "$f" 2>/dev/null)" = "$size" ] || exit 75
if [ -L "$to" ]; then
e=$(stat -L -- "$to" 2>&1) || case $e in *': Too many levels of symbolic links') echo "$e" >&2; exit 1;; esac
t=$(readlink -f -v -- "$to" && echo x) || exit
to=${t%??}
q=${to%/*}/${f##*/}
fi
if [ -d "$to" ]; then echo 'Is a directory' >&2; exit 1; fi
if [ -e "$to" ] && [ ! -f "$to" ]; then echo 'is not a regular file' >&2; exit 1; fi
chmod -- "$mode" "$f" || exit
if [ -n "$q" ] && [ ! "$q" -ef "$f" ]; then
mv -f -T -- "$f" "$q" || exit
f=$q
fi
mv -f -T -- "$f" "$to" || { r=$?; rm -f -- "$f"; exit $r; }
}
if [ -n "$6" ]; then
for try in 1 2 3 4 5 6 7 8 9; do
(join "$@") 2>/dev/null && exit
sleep 0.1 2>/dev/null || sleep 1
done
fi
join "$@"`
	args := []string{name, Dir(name), strconv.FormatInt(at, 10), "", "0", "", p.Path, strconv.FormatInt(p.Size, 10), p.Sum}
	if to != nil {
		args[3], args[4] = to.Name, Octal(to.Mode)
	}
	if again {
		args[5] = "again"
	}
	return run.write(ctx, script, args...)
}

// Truncate changes the size of an existing regular file. The program truncate
// would create a missing one, and dd would wait for the reader of a pipe.
func (run Runner) Truncate(ctx context.Context, name string, size int64) error {
	const script = `if [ -e "$1" ] && [ ! -f "$1" ] && [ ! -d "$1" ]; then echo 'Invalid argument' >&2; exit 1; fi
exec dd if=/dev/null of="$1" bs=1 count=0 seek="$2" conv=nocreat status=none`
	_, err := run.Run(ctx, "sh", "-c", script, "sh", name, strconv.FormatInt(size, 10))
	return err
}

// SameFile reports whether two names are hard links to the same file.
func (run Runner) SameFile(ctx context.Context, a, b string) (bool, error) {
	out, err := run.Run(ctx, "stat", append([]string{"-c", "%d:%i"}, Operands(a, b)...)...)
	first, second, _ := strings.Cut(line(out), "\n")
	return err == nil && first == second, err
}

// write runs a script that may create directories.
func (run Runner) write(ctx context.Context, script string, args ...string) (made bool, err error) {
	out, err := run.Script(ctx, script, args...)
	if e, ok := errors.AsType[*Error](err); ok && e.ExitCode == lostCode {
		err = ErrLost
	}
	return strings.HasPrefix(out, "made\n"), err
}

// Dir returns the directory that a file is in, without resolving symbolic links
// in the path: "l/../x" is in "l/..".
func Dir(name string) string {
	i := strings.LastIndexByte(name, '/')
	switch {
	case i < 0:
		return "."
	case i == 0:
		return "/"
	}
	return name[:i]
}
