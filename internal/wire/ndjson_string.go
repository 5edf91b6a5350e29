package wire

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// stringState is how the decoding of a string ended.
type stringState int

const (
	stringClosed stringState = iota // at the closing quote
	stringOpen                      // at the end of the input
	stringBad                       // at something invalid in a JSON string
)

// unescape appends to data what s, the inside of a JSON string, represents, exactly like
// encoding/json: invalid UTF-8 and unpaired surrogates become U+FFFD. n is how much of s
// was read, including the closing quote. An open string ends before an escape or a
// character that may continue in later input.
//
// Where there are escapes or characters that are not ASCII, they are rarely far apart. So
// text is copied while it is examined, in steps of the same size. To search for the end of
// each stretch, and then copy it, would take longer.
func unescape(data, s []byte) (_ []byte, n int, st stringState) {
	const step = 16
	w := len(data)
	// There is always room for the rest of s and a step more, since only what is
	// not valid UTF-8 becomes longer.
	out := slices.Grow(data, len(s)+step)
	out = out[:cap(out)]
	for n < len(s) {
		if len(s)-n >= step {
			from, to := s[n:n+step:n+step], out[w:w+step:w+step]
			v, next := binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
			binary.LittleEndian.PutUint64(to, v)
			binary.LittleEndian.PutUint64(to[8:], next)
			k := 0
			m := marks(v) & topBits
			if m == 0 {
				if m = marks(next) & topBits; m == 0 {
					n += step
					w += step
					continue
				}
				k = 8
			}
			k += bits.TrailingZeros64(m) / 8
			n += k
			w += k
		}
		c := s[n]
		switch {
		case c == '"':
			return out[:w], n + 1, stringClosed
		case c == '\\':
			if n+1 < len(s) && unescaped[s[n+1]] != 0 {
				out[w] = unescaped[s[n+1]]
				w++
				n += 2
				break
			}
			r, size, st := unicodeEscape(s[n:])
			if st != stringClosed {
				return out[:w], n, st
			}
			w += utf8.EncodeRune(out[w:], r)
			n += size
		case c < ' ':
			return out[:w], n, stringBad
		case c < utf8.RuneSelf:
			out[w] = c
			w++
			n++
		case len(s)-n >= 4 && sequence(binary.LittleEndian.Uint32(s[n:])) > 0:
			for len(s)-n >= 4 {
				v := binary.LittleEndian.Uint32(s[n:])
				size := sequence(v)
				if size == 0 {
					break
				}
				binary.LittleEndian.PutUint32(out[w:], v)
				w += size
				n += size
			}
		default:
			if !utf8.FullRune(s[n:]) {
				return out[:w], n, stringOpen
			}
			r, size := utf8.DecodeRune(s[n:])
			if r == utf8.RuneError {
				out = slices.Grow(out[:w], 3*(len(s)-n)+step) // U+FFFD has three bytes
				out = out[:cap(out)]
			}
			w += utf8.EncodeRune(out[w:], r)
			n += size
		}
	}
	return out[:w], n, stringOpen
}

// sequence returns the length of the character of two to four bytes that v
// begins with, from its lowest byte on. It returns 0 for any other: ASCII and
// what is not valid UTF-8, such as longer forms than needed and surrogates.
func sequence(v uint32) int {
	switch {
	case v&0xc0e0 == 0x80c0 && v&0x1e != 0:
		return 2
	case v&0xc0c0f0 == 0x8080e0 && v&0x200f != 0 && v&0x200f != 0x200d:
		return 3
	case v&0xc0c0c0f8 == 0x808080f0 && v&0x3007 != 0 && (v&7 < 4 || v&0x3007 == 4):
		return 4
	}
	return 0
}

// unescaped maps the second character of a short escape to its value.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f'}

// unicodeEscape decodes a \u escape at the start of s, along with a second one
// if they are a surrogate pair. The state is stringClosed if it is complete.
func unicodeEscape(s []byte) (r rune, n int, st stringState) {
	r, st = hex4(s)
	if st != stringClosed {
		return 0, 0, st
	}
	// Only the first half of a pair depends on what follows.
	if r < 0xd800 || r >= 0xdc00 {
		return r, 6, stringClosed // AppendRune makes U+FFFD of the second half
	}
	switch low, st := hex4(s[6:]); st {
	case stringOpen:
		return 0, 0, stringOpen
	case stringClosed:
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12, stringClosed
		}
	}
	return utf8.RuneError, 6, stringClosed
}

// hex4 reads \uXXXX at the start of s. The state is stringOpen if s ends within
// it.
func hex4(s []byte) (rune, stringState) {
	var r rune
	for i := range 6 {
		if i == len(s) {
			return 0, stringOpen
		}
		c := s[i]
		switch {
		case i == 0:
			if c != '\\' {
				return 0, stringBad
			}
			continue
		case i == 1:
			if c != 'u' {
				return 0, stringBad
			}
			continue
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, stringBad
		}
		r = r<<4 | rune(c)
	}
	return r, stringClosed
}

// textPrefix returns the length of the prefix of s that represents itself in a
// JSON string: valid UTF-8 without quotes, backslashes and control characters.
func textPrefix(s []byte) int {
	n := plainPrefix(s)
	for n < len(s) && s[n] >= utf8.RuneSelf {
		r, size := utf8.DecodeRune(s[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
		if n < len(s) && s[n] < utf8.RuneSelf {
			n += plainPrefix(s[n:])
		}
	}
	return n
}

const (
	eachByte = 0x0101010101010101
	topBits  = 0x80 * eachByte
)

// plainPrefix returns the length of the prefix of s that is ASCII and
// represents itself in a JSON string. It examines many bytes at a time.
func plainPrefix(s []byte) int {
	n := 0
	for len(s)-n >= 32 {
		w := s[n : n+32 : n+32]
		if (marks(binary.LittleEndian.Uint64(w))|marks(binary.LittleEndian.Uint64(w[8:]))|
			marks(binary.LittleEndian.Uint64(w[16:]))|marks(binary.LittleEndian.Uint64(w[24:])))&topBits != 0 {
			break
		}
		n += 32
	}
	for len(s)-n >= 8 {
		if m := marks(binary.LittleEndian.Uint64(s[n:])) & topBits; m != 0 {
			return n + bits.TrailingZeros64(m)/8
		}
		n += 8
	}
	for n < len(s) && s[n] >= ' ' && s[n] < utf8.RuneSelf && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

// marks sets the top bit of those bytes in v that do not represent themselves:
// non-ASCII, control characters, quotes and backslashes. The other bits mean
// nothing. With their second bit flipped, control characters and the quote are
// below '!'. A subtraction borrows from the next byte only if such a byte is
// below it, so that the lowest top bit set is always correct, and none is set if
// there is none.
func marks(v uint64) uint64 {
	return v | ((v ^ 2*eachByte) - '!'*eachByte) | ((v ^ '\\'*eachByte) - eachByte)
}
