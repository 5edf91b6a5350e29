package sandbox

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
)

// A command's log is text, in which bytes that are not UTF-8 are replaced. With Binary, a
// shell in the sandbox encodes the output of the command, and a binaryDecoder decodes it
// here.

// binaryScript runs a program with both of its outputs encoded: each piece that can be
// read at once is a line in base64, so that output does not wait for more of it.
// The exit code is the program's. A signal to all processes is for the program: the
// shells wait for it, and the encoders for the rest of its output. What the shells
// say themselves, as of a program that was killed, is not output. What bash and the
// loader say before the script runs, as of a missing locale, ends at a mark. The shell that
// starts the program sets no variable: it would replace the program's of that name.
const binaryScript = `(PATH=/usr/bin:/bin:$PATH; command -v dd && command -v base64) >/dev/null || { echo 'Binary needs the programs dd and base64' >&2; exit 127; }
trap '' HUP INT QUIT PIPE ALRM TERM USR1 USR2
e() { PATH=/usr/bin:/bin:$PATH
while x=$(dd bs=49152 count=1 status=none | base64 -w 0); [ -n "$x" ]; do printf '%s\n' "$x"; done; }
exec 3>&1 5>&2 2>/dev/null
printf '\n:\n' >&3; printf '\n:\n' >&5
{ (trap - HUP INT QUIT PIPE ALRM TERM USR1 USR2; exec -- "$@" 3>&- 4>&- 5>&-) 2>&4 | e >&3 4>&- 5>&-; exit "${PIPESTATUS[0]}"; } 4>&1 | e >&5 3>&-
exit "${PIPESTATUS[0]}"`

// binaryWords are the words before the command. With -p, bash reads no BASH_ENV and
// takes no functions from the environment, but passes it on.
var binaryWords = []string{"bash", "-p", "-c", binaryScript, "bash"}

// wrapBinary returns the command that runs another one with its output encoded.
func wrapBinary(name string, args []string) (string, []string) {
	return binaryWords[0], slices.Concat(binaryWords[1:], []string{name}, args)
}

// unwrapBinary returns the command that was passed to wrapBinary. It recognizes the
// wrapper's words, because a handle from another process has only the command's
// arguments.
func unwrapBinary(name string, args []string) (string, []string, bool) {
	n := len(binaryWords) - 1
	if name != binaryWords[0] || len(args) <= n || !slices.Equal(args[:n], binaryWords[1:]) {
		return name, args, false
	}
	return args[n], args[n+1:], true
}

// binaryMark begins the encoded output.
const binaryMark = "\n:\n"

// maxBeforeMark limits the output before the mark.
const maxBeforeMark = 1 << 20

// binaryDecoder decodes one output of such a command, which arrives in pieces.
type binaryDecoder struct {
	before []byte // what came before the mark
	begun  bool   // the mark has come
	rest   []byte // less than four characters
	out    []byte
}

// decode returns the bytes that a piece adds, which are valid until the next call. Bytes
// that remain when the output ends were cut off with the command.
func (d *binaryDecoder) decode(piece []byte) ([]byte, error) {
	d.out = d.out[:0]
	if !d.begun {
		d.before = append(d.before, piece...)
		_, after, found := bytes.Cut(d.before, []byte(binaryMark))
		if !found && len(d.before) > maxBeforeMark {
			return nil, d.notEncoded(d.before)
		}
		if !found {
			return nil, nil
		}
		d.begun, d.before, piece = true, nil, after
	}
	for len(piece) > 0 {
		line, after, ended := bytes.Cut(piece, []byte("\n"))
		whole := piece[:len(piece)-len(after)]
		if len(d.rest) > 0 {
			line = append(d.rest, line...)
		}
		n := len(line) &^ 3
		var err error
		if d.out, err = base64.StdEncoding.AppendDecode(d.out, line[:n]); err != nil || ended && n < len(line) {
			return nil, d.notEncoded(whole)
		}
		d.rest = append(d.rest[:0], line[n:]...)
		piece = after
	}
	return d.out, nil
}

// end returns an error if the output has ended without being encoded.
func (d *binaryDecoder) end() error {
	if text := bytes.TrimSpace(d.before); len(text) > 0 {
		return d.notEncoded(text)
	}
	return nil
}

func (d *binaryDecoder) notEncoded(text []byte) error {
	return fmt.Errorf("the output is not encoded: %.200q", bytes.TrimSpace(text))
}
