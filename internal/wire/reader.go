package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

const (
	// maxResponse limits the length of a JSON response, which is held in memory.
	maxResponse = 64 << 20
	// MaxObjects limits the number of objects in a response. Two bytes of JSON can become
	// an object of about a KiB in memory.
	MaxObjects = 100_000
)

// ErrTooLarge reports a JSON response of more than maxResponse bytes, and
// ErrTooMany one of more than MaxObjects objects.
var (
	ErrTooLarge = errors.New("the response is larger than 64 MiB")
	ErrTooMany  = errors.New("the response holds more than 100,000 objects")
)

// Reader reads the JSON of a response within the limits. It doesn't count braces in
// strings, such as those in a command's arguments. It removes fractions of zeros from
// numbers: encoding/json doesn't decode 7.0 into an int.
type Reader struct {
	r       io.Reader
	Size    int64 // of what was read, in bytes
	objects int

	inString, escaped bool
	held              []byte // a point and zeros, after which a digit may come
}

// NewReader returns a reader of a response.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// maxHeld is how many zeros may follow a point.
const maxHeld = 32

// Read reads the response without such fractions.
func (j *Reader) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil && len(p) > 0 {
		n = copy(p, j.held)
		if j.held = j.held[n:]; n == len(p) {
			return n, nil
		}
		var more int
		more, err = j.r.Read(p[n:])
		j.Size += int64(more)
		n = j.scan(p[:n+more], err != nil)
		switch {
		case j.Size > maxResponse:
			err = ErrTooLarge
		case j.objects > MaxObjects:
			err = ErrTooMany
		}
	}
	return n, err
}

// scan follows the structure of b, removes fractions of zeros and returns the remaining
// length. It holds back a possible start of such a fraction, unless b is the last piece.
func (j *Reader) scan(b []byte, last bool) int {
	w, from := 0, 0 // what is before from has been moved to before w
	for i := 0; i < len(b); {
		if j.inString {
			i = j.text(b, i)
			continue
		}
		switch b[i] {
		case '"':
			j.inString = true
		case '{':
			j.objects++
		case '.':
			rest := bytes.TrimLeft(b[i+1:], "0")
			zeros := len(b) - i - 1 - len(rest)
			switch {
			case len(rest) == 0 && !last && zeros <= maxHeld:
				j.held = bytes.Clone(b[i:])
				b = b[:i]
			case len(rest) > 0 && zeros > 0 && strings.IndexByte(",]} \t\r\n", rest[0]) >= 0:
				w += copy(b[w:], b[from:i])
				from = i + 1 + zeros
				i += zeros
			}
		}
		i++
	}
	if w == from {
		return len(b)
	}
	return w + copy(b[w:], b[from:])
}

// text returns the end of the string that contains b[i].
func (j *Reader) text(b []byte, i int) int {
	rest := b[i:]
	n := bytes.IndexByte(rest, '"')
	if n < 0 {
		n = len(rest)
	}
	slashes := 0
	for slashes < n && rest[n-1-slashes] == '\\' {
		slashes++
	}
	escaped := slashes%2 == 1
	if slashes == n {
		escaped = escaped != j.escaped
	}
	if n == len(rest) {
		j.escaped = escaped
		return len(b)
	}
	j.escaped, j.inString = false, escaped
	return i + n + 1
}
