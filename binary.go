package sandbox

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
)

// The API returns a command's log as text, and replaces bytes that are not UTF-8. With
// Binary, a shell in the sandbox encodes the output of the command, and a binaryDecoder
// decodes it here.

// binaryScript runs a program and encodes both of its outputs. Each encoder reads what is
// available and prints it as one line of base64, so that short output does not wait for
// more. The script exits with the program's exit code.
//
// Its shells ignore signals, so a signal to all processes reaches only the program. The
// shells then wait for the program, and the encoders for the rest of its output. Messages
// of the shells, for example about a killed program, are discarded. Bash and the loader
// may print messages before the script runs, for example about a missing locale:
// binaryMark separates them from the output. The shell that starts the program sets no
// variables, because they would replace the program's variables of the same names.
const binaryScript = `(PATH=/usr/bin:/bin:$PATH; command -v dd && command -v base64) >/dev/null || { echo 'Binary needs the programs dd and base64' >&2; exit 127; }
trap '' HUP INT QUIT PIPE ALRM TERM USR1 USR2
e() { PATH=/usr/bin:/bin:$PATH
while x=$(dd bs=49152 count=1 status=none | base64 -w 0); [ -n "$x" ]; do printf '%s\n' "$x"; done; }
exec 3>&1 5>&2 2>/dev/null
printf '\n:\n' >&3; printf '\n:\n' >&5
{ (trap - HUP INT QUIT PIPE ALRM TERM USR1 USR2; exec -- "$@" 3>&- 4>&- 5>&-) 2>&4 | e >&3 4>&- 5>&-; exit "${PIPESTATUS[0]}"; } 4>&1 | e >&5 3>&-
exit "${PIPESTATUS[0]}"`

// binaryWords are the words before the wrapped command. With -p, bash ignores BASH_ENV and
// the functions in the environment, but passes them on to the program.
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

// binaryDecoder decodes one output stream of a command that binaryScript runs. It arrives
// in pieces.
type binaryDecoder struct {
	before []byte // output before the mark
	begun  bool   // the mark has arrived
	rest   []byte // an incomplete group of four characters
	out    []byte
}

// decode returns the bytes that a piece adds, which are valid until the next call. It
// drops an incomplete group at the end of the output: the command was cut off there.
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
