package main

import (
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cell is a character on the screen and how it looks.
type cell struct {
	text  string
	style string
}

// screen is what a terminal shows of what is written to it. It knows as much of
// terminals as the program's output needs.
type screen struct {
	cols  int
	rows  [][]cell
	x, y  int
	style string
}

func (s *screen) line(y int) []cell {
	for len(s.rows) <= y {
		s.rows = append(s.rows, nil)
	}
	return s.rows[y]
}

func (s *screen) put(text string) {
	if s.x == s.cols {
		s.x, s.y = 0, s.y+1
	}
	row := s.line(s.y)
	for len(row) <= s.x {
		row = append(row, cell{text: " "})
	}
	row[s.x] = cell{text, s.style}
	s.rows[s.y] = row
	s.x++
}

var sequence = regexp.MustCompile(`^\x1b\[([0-9;?]*)([A-Za-z])`)

// write shows text with its escape sequences. No character of it takes two columns.
func (s *screen) write(text string) {
	for len(text) > 0 {
		if found := sequence.FindStringSubmatch(text); found != nil {
			s.control(found[1], found[2][0])
			text = text[len(found[0]):]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch {
		case r == '\n':
			s.x, s.y = 0, s.y+1
			s.line(s.y)
		case r == '\r':
			s.x = 0
		case unicode.IsPrint(r):
			s.put(string(r))
		}
	}
}

func (s *screen) control(params string, final byte) {
	switch final {
	case 'm':
		if s.style = params; params == "0" {
			s.style = ""
		}
	case 'K':
		row := s.line(s.y)
		if params == "2" {
			s.rows[s.y] = nil
		} else {
			s.rows[s.y] = row[:min(len(row), s.x)]
		}
	case 'J':
		s.rows, s.x, s.y = nil, 0, 0
	case 'H':
		s.x, s.y = 0, 0
	case 'A':
		n, _ := strconv.Atoi(params)
		s.y = max(0, s.y-max(n, 1))
	}
}

// The look of the picture.
const (
	charWidth  = 8.4
	lineHeight = 20
	margin     = 16
	barHeight  = 32
)

// colors are those of a dark page and of a light one.
var colors = map[string][2]string{
	"31": {"#ff6b6b", "#c92a2a"}, "32": {"#69db7c", "#1a7f37"}, "33": {"#ffd43b", "#8a5a00"}, "34": {"#74a7ff", "#0b57d0"}, "35": {"#da77f2", "#9c36b5"},
	"36": {"#4dd0e1", "#0b7285"}, "90": {"#8b949e", "#59636e"}, "2": {"#8b949e", "#59636e"},
}

// sheet is the style of a picture, by what whoever looks at it prefers.
func sheet() string {
	var dark, light strings.Builder
	for _, style := range slices.Sorted(maps.Keys(colors)) {
		fmt.Fprintf(&dark, ".s%s{fill:%s}", style, colors[style][0])
		fmt.Fprintf(&light, ".s%s{fill:%s}", style, colors[style][1])
	}
	return "<style>.back{fill:#0d1117}text{fill:#e6edf3}" + dark.String() + "@media(prefers-color-scheme:light){.back{fill:#f6f8fa}text{fill:#1f2328}" + light.String() + "}</style>\n"
}

// svg draws the screen as a window with a title.
func (s *screen) svg(title string) string {
	rows := s.rows
	for len(rows) > 0 && strings.TrimSpace(plainRow(rows[len(rows)-1])) == "" {
		rows = rows[:len(rows)-1]
	}
	widest := 0
	for _, r := range rows {
		widest = max(widest, len(r))
	}
	width := float64(widest)*charWidth + 2*margin
	height := len(rows)*lineHeight + 2*margin + barHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(title))
	b.WriteString(sheet() + `<rect class="back" width="100%" height="100%" rx="8"/>` + "\n")
	for i, c := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`+"\n", 20+i*20, c)
	}
	fmt.Fprintf(&b, `<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" xml:space="preserve">`+"\n")
	for y, row := range rows {
		top := barHeight + margin + y*lineHeight + 14
		for x := 0; x < len(row); {
			end := x
			var text strings.Builder
			for end < len(row) && row[end].style == row[x].style {
				text.WriteString(row[end].text)
				end++
			}
			if strings.TrimSpace(text.String()) != "" {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n", margin+float64(x)*charWidth, top,
					float64(end-x)*charWidth, attributes(row[x].style), html.EscapeString(strings.ReplaceAll(text.String(), " ", "\u00a0")))
			}
			x = end
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

func attributes(style string) string {
	switch style {
	case "":
		return ""
	case "1":
		return ` font-weight="bold"`
	}
	return fmt.Sprintf(` class="s%s"`, style)
}

func plainRow(row []cell) string {
	var b strings.Builder
	for _, c := range row {
		b.WriteString(c.text)
	}
	return b.String()
}
