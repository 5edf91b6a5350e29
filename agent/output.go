package agent

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// window keeps the beginning and the end of what is written to it, and counts the rest. It is safe
// for concurrent use.
type window struct {
	mu         sync.Mutex
	size       int
	head, tail []byte
	total      int64
	lines      int64
}

func newWindow(size int) *window { return &window{size: size} }

// Write implements [io.Writer]. It never fails.
func (w *window) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += int64(len(p))
	w.lines += int64(bytes.Count(p, []byte("\n")))
	rest := p
	if room := w.size + utf8.UTFMax - len(w.head); room > 0 {
		n := min(room, len(rest))
		w.head = append(w.head, rest[:n]...)
		rest = rest[n:]
	}
	keep := w.size + utf8.UTFMax
	rest = rest[max(0, len(rest)-keep):]
	w.tail = append(w.tail, rest...)
	if len(w.tail) > 2*keep {
		w.tail = w.tail[:copy(w.tail, w.tail[len(w.tail)-keep:])]
	}
	return len(p), nil
}

// text returns what was written as visible text of at most size bytes, and the number of
// bytes omitted in the middle.
func (w *window) text() (text string, omitted int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if int64(len(w.head)) == w.total {
		if all, used := visibleHead(w.head, w.size); used == len(w.head) {
			return all, 0
		}
	}
	const marker = 100
	half := (w.size - marker) / 2
	head, atHead := visibleHead(w.head, half)
	end := w.tail
	if int64(len(w.head)+len(w.tail)) == w.total { // head and tail contain everything
		end = append(bytes.Clone(w.head[atHead:]), w.tail...)
	}
	tail, atTail := visibleTail(end, half)
	omitted = w.total - int64(atHead) - int64(atTail)
	shown := bytes.Count(w.head[:atHead], []byte("\n")) + bytes.Count(end[len(end)-atTail:], []byte("\n"))
	return fmt.Sprintf("%s\n[… %d bytes with %d line ends left out …]\n%s", head, omitted, w.lines-int64(shown), tail), omitted
}

// visibleHead returns the beginning of data as visible text of at most size bytes, and
// the number of bytes of data that it shows.
func visibleHead(data []byte, size int) (text string, used int) {
	var b strings.Builder
	for used < len(data) {
		n, shown := showRune(data[used:])
		if b.Len()+len(shown) > size {
			break
		}
		b.WriteString(shown)
		used += n
	}
	return b.String(), used
}

// visibleTail returns the end of data as visible text of at most size bytes, and the number
// of bytes of data that it shows.
func visibleTail(data []byte, size int) (text string, used int) {
	start := max(0, len(data)-size) // visible text is at least as long as its data
	for n := 0; n < utf8.UTFMax-1 && 0 < start && start < len(data) && !utf8.RuneStart(data[start]); n++ {
		start++
	}
	length := 0
	var pieces []string
	for at := start; at < len(data); {
		n, shown := showRune(data[at:])
		pieces = append(pieces, shown)
		length += len(shown)
		at += n
	}
	first := start
	for len(pieces) > 0 && length > size {
		n, shown := showRune(data[first:])
		first += n
		length -= len(shown)
		pieces = pieces[1:]
	}
	return strings.Join(pieces, ""), len(data) - first
}

// showRune returns the length of the first character of data, and its visible form.
func showRune(data []byte) (n int, shown string) {
	r, n := utf8.DecodeRune(data)
	switch {
	case r == utf8.RuneError && n == 1, r < 0x80 && r != '\n' && r != '\t' && unicode.IsControl(r):
		return 1, fmt.Sprintf(`\x%02x`, data[0])
	case isInvisible(r), isJoiner(r) && continuesWord(data[n:]):
		return n, fmt.Sprintf(`\u{%x}`, r)
	}
	return n, string(data[:n])
}

// isInvisible reports whether a character is invisible or changes how others are displayed.
// A model must not read text that a person can't see.
func isInvisible(r rune) bool {
	if r < 0x80 || isJoiner(r) {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// isJoiner reports whether an invisible character has a legitimate use in emoji and in
// people's names.
func isJoiner(r rune) bool { return r == 0x200d || r == 0xfe0e || r == 0xfe0f }

// continuesWord reports whether rest begins with a character of ASCII words or tags. A joiner
// before such a character has no legitimate use.
func continuesWord(rest []byte) bool {
	if len(rest) == 0 {
		return false
	}
	c := rest[0]
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-_/<>", c) >= 0
}

// oneLine returns a text, such as a path or a message of a program, as one visible line.
// It cuts the text after maxOneLine bytes and then adds "…".
func oneLine(text string) string {
	shown, used := visibleHead([]byte(text), maxOneLine)
	whole := strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(shown)
	shown, _ = visibleHead([]byte(whole), maxOneLine)
	if used < len(text) || len(shown) < len(whole) {
		shown += "…"
	}
	return escapeTags(shown)
}

// maxOneLine is the maximum length of a line in bytes.
const maxOneLine = 400

// cutText cuts a result to size bytes. If it cuts inside data, it closes the tag.
func cutText(text string, size int) string {
	const end = "\n</sandbox-data>"
	cut, _ := visibleHead([]byte(text), size-len("…"+end))
	if strings.Count(cut, "<sandbox-data>") > strings.Count(cut, "</sandbox-data>") {
		return cut + "…" + end
	}
	return cut + "…"
}

var dataTag = regexp.MustCompile(`(?i)(<\s*/?\s*sandbox)-(data)`)

// escapeTags changes text that looks like the tags around data, without changing its length.
func escapeTags(text string) string { return dataTag.ReplaceAllString(text, "${1}_${2}") }

// wrapData puts visible text from a sandbox between the tags that mark data.
func wrapData(text string) string {
	end := "\n"
	if strings.HasSuffix(text, "\n") {
		end = ""
	}
	return "<sandbox-data>\n" + escapeTags(text) + end + "</sandbox-data>"
}
