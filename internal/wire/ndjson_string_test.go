package wire

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Text is examined in steps. The result must not depend on the position within a step, or
// on where the text was cut.
func TestUnescapeEverywhere(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{
		`\n`, `\"`, `\\\"\/\b\f\r\t`, `\u001b[0m`, `\u00E9`, `\u20ac`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\ud83dA`, `\ud83d\n`, `\ud83d\u0041`,
		"é", "日本語", "😀", "é日😀é", "\ufffd", "\x7f",
		"\xff", strings.Repeat("\xff", 100), strings.Repeat("é\xff", 50), "\xe2\x82", "\xe2\x82\xff", "\xf0\x9f\x98", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
	} {
		for before := range 20 {
			for _, after := range []int{0, 3, 36} {
				text := []byte(strings.Repeat("a", before) + piece + strings.Repeat("z", after) + `"`)
				var want string
				require.NoError(t, json.Unmarshal(append([]byte{'"'}, text...), &want))
				for cut := before; cut <= before+len(piece); cut++ {
					got, n, st := unescape([]byte("> "), text[:cut:cut])
					if st == stringBad || n > cut {
						t.Fatalf("state %d after %d of %q", st, n, text[:cut])
					}
					got, k, st := unescape(got, text[n:])
					if st != stringClosed || n+k != len(text) || string(got) != "> "+want {
						t.Fatalf("%q for %q cut at %d, state %d after %d; want %q", got, text, cut, st, n+k, want)
					}
				}
			}
		}
	}
	for _, bad := range []string{"\n", "\x00", "\x1f", `\x`, `\u12g4`, `\u123`} {
		for before := range 36 {
			text := strings.Repeat("é", before) + bad + strings.Repeat("z", 36) + `"`
			got, n, st := unescape(nil, []byte(text))
			assert.Equal(t, stringBad, st, "%q", text)
			assert.Equal(t, 2*before, n, "%q", text)
			assert.Equal(t, strings.Repeat("é", before), string(got))
		}
	}
}

func TestSequence(t *testing.T) {
	t.Parallel()
	edges := []byte{0, 0x7f, 0x80, 0xbf, 0xc0}
	var b [4]byte
	for first := range 256 {
		for second := range 256 {
			for _, third := range edges {
				for _, fourth := range edges {
					b = [4]byte{byte(first), byte(second), third, fourth}
					_, want := utf8.DecodeRune(b[:])
					if want == 1 {
						want = 0
					}
					if got := sequence(binary.LittleEndian.Uint32(b[:])); got != want {
						t.Fatalf("%d for %x, want %d", got, b, want)
					}
				}
			}
		}
	}
}

// The class of a byte must not depend on the bytes next to it.
func TestPlainPrefix(t *testing.T) {
	t.Parallel()
	plain := func(c byte) bool { return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' }
	for first := range 256 {
		for second := range 256 {
			for _, at := range []int{0, 6, 7, 30, 31, 38, 40} {
				s := []byte(strings.Repeat("a", 42))
				s[at], s[at+1] = byte(first), byte(second)
				want := len(s)
				if !plain(byte(second)) {
					want = at + 1
				}
				if !plain(byte(first)) {
					want = at
				}
				if got := plainPrefix(s); got != want {
					t.Fatalf("%d of %q, want %d", got, s, want)
				}
			}
		}
	}
}
