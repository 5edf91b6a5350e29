// Package console knows what the standard streams are: terminals or not, with
// colours or not, and how wide.
package console

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Stream is a standard output stream.
type Stream struct {
	io.Writer
	// Terminal says whether somebody looks at it.
	Terminal bool
	// Color says whether escape sequences for colours may be written to it.
	Color bool

	file *os.File
	dumb bool // a terminal that only goes on
}

// Rewrites reports whether a line that is there can be written over.
func (s *Stream) Rewrites() bool { return s.Terminal && !s.dumb }

// ColorMode is when colours are used.
type ColorMode string

// The modes of colours.
const (
	ColorAuto   ColorMode = "auto"
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// NewStream describes a stream. In ColorAuto, the environment is asked: NO_COLOR,
// TERM=dumb and FORCE_COLOR=0 forbid colours, FORCE_COLOR and CLICOLOR_FORCE force
// them, and otherwise a terminal gets them.
func NewStream(f *os.File, mode ColorMode, lookup func(string) (string, bool)) *Stream {
	s := &Stream{Writer: f, file: f, Terminal: term.IsTerminal(int(f.Fd()))}
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

// Width returns the number of columns, 80 if the stream is not a terminal or does
// not tell.
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

// Paint gives text a style, if the stream has colours.
func (s *Stream) Paint(style Style, text string) string {
	if !s.Color || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}
