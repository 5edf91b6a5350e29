package main

import (
	"fmt"
	"html"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
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

func (s *screen) put(text string, width int) {
	if s.x+width > s.cols {
		s.x, s.y = 0, s.y+1
	}
	row := s.line(s.y)
	for len(row) < s.x+width {
		row = append(row, cell{text: " "})
	}
	row[s.x] = cell{text, s.style}
	for i := 1; i < width; i++ {
		row[s.x+i] = cell{}
	}
	s.rows[s.y] = row
	s.x += width
}

// write shows text with its escape sequences.
func (s *screen) write(text string) {
	var state byte
	for len(text) > 0 {
		seq, width, n, next := ansi.DecodeSequence(text, state, nil)
		text, state = text[n:], next
		switch {
		case width > 0:
			s.put(seq, width)
		case seq == "\n":
			s.x, s.y = 0, s.y+1
			s.line(s.y)
		case seq == "\r":
			s.x = 0
		case strings.HasPrefix(seq, "\x1b["):
			s.control(seq[2:len(seq)-1], seq[len(seq)-1])
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

var colors = map[string]string{
	"31": "#ff6b6b", "32": "#69db7c", "33": "#ffd43b", "34": "#74a7ff", "35": "#da77f2", "36": "#4dd0e1", "90": "#8b949e",
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
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`+"\n")
	for i, c := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`+"\n", 20+i*20, c)
	}
	fmt.Fprintf(&b, `<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" fill="#e6edf3" xml:space="preserve">`+"\n")
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
	case "2":
		return ` fill="#8b949e"`
	}
	return fmt.Sprintf(` fill="%s"`, colors[style])
}

func plainRow(row []cell) string {
	var b strings.Builder
	for _, c := range row {
		b.WriteString(c.text)
	}
	return b.String()
}
