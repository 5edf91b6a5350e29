// Package console describes the standard streams: whether they are terminals, whether they
// have colors, and how wide they are. Text that is written to a Stream can't control the
// terminal.
package console

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Stream is standard output or standard error. At a terminal it escapes all control
// characters but newlines, tabs and the colors of Paint, so that no text of the API or of
// a sandbox acts on the terminal. A pipe or a file gets every byte as it is.
type Stream struct {
	// Raw writes without escaping. It is for the output of programs in a sandbox, the
	// contents of files, and this program's spinner and progress bar.
	Raw io.Writer
	// Terminal says whether the stream is a terminal.
	Terminal bool
	// Color says whether escape sequences for colors may be written to it.
	Color bool

	file *os.File
	dumb bool // a terminal that can't rewrite a line

	mu   sync.Mutex
	rest []byte // the bytes of an incomplete character
}

// unescaped matches what Write does not escape.
var unescaped = regexp.MustCompile(`\t|\r?\n|\x1b\[(?:0|1|2|3[1-6]|90)m`)

// Write implements [io.Writer].
func (s *Stream) Write(p []byte) (int, error) {
	if !s.Terminal {
		return s.Raw.Write(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := slices.Concat(s.rest, p)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < len(text); i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
		}
	}
	shown := s.escape(string(text[:end]))
	s.rest = bytes.Clone(text[end:])
	if _, err := io.WriteString(s.Raw, shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escape escapes everything in a text that could control a terminal.
func (s *Stream) escape(text string) string {
	var b strings.Builder
	for text != "" {
		at := unescaped.FindStringIndex(text)
		if at == nil {
			at = []int{len(text), len(text)}
		}
		b.WriteString(redact.Printable(text[:at[0]]))
		if found := text[at[0]:at[1]]; s.Color || !strings.HasPrefix(found, "\x1b") {
			b.WriteString(found)
		} else {
			b.WriteString(redact.Printable(found))
		}
		text = text[at[1]:]
	}
	return b.String()
}

// Rewrites reports whether a line can be overwritten.
func (s *Stream) Rewrites() bool { return s.Terminal && !s.dumb }

// ColorMode is when colors are used.
type ColorMode string

// The modes of colors.
const (
	ColorAuto   ColorMode = "auto"
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// NewStream describes a stream. In ColorAuto the environment decides: NO_COLOR, TERM=dumb
// and FORCE_COLOR=0 forbid colors, FORCE_COLOR and CLICOLOR_FORCE force them, and otherwise
// a terminal gets them.
func NewStream(f *os.File, mode ColorMode, lookup func(string) (string, bool)) *Stream {
	s := &Stream{Raw: f, file: f, Terminal: term.IsTerminal(int(f.Fd()))}
	set := func(key string) bool {
		v, ok := lookup(key)
		return ok && v != "" && v != "0" && v != "false"
	}
	noColor, _ := lookup("NO_COLOR")
	kind, _ := lookup("TERM")
	s.dumb = kind == "dumb"
	switch {
	case mode == ColorAlways:
		s.Color = true
	case mode == ColorNever, noColor != "":
	case set("FORCE_COLOR"), set("CLICOLOR_FORCE"):
		s.Color = true
	default:
		v, _ := lookup("FORCE_COLOR") // 0 and false forbid them
		s.Color = s.Terminal && !s.dumb && v == ""
	}
	return s
}

// Width returns the number of columns, or 80 if it is unknown.
func (s *Stream) Width() int {
	if w, _, err := term.GetSize(int(s.file.Fd())); err == nil && w > 0 {
		return w
	}
	return 80
}

// Style is how text looks.
type Style string

// The styles, as parameters of the SGR sequence.
const (
	Plain   Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Blue    Style = "34"
	Magenta Style = "35"
	Cyan    Style = "36"
	Gray    Style = "90"
)

// Paint gives text a style, if the stream has colors.
func (s *Stream) Paint(style Style, text string) string {
	if !s.Color || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}
