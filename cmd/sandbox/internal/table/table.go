// Package table writes the tables of the command line: three spaces between the
// columns, each cell padded to the width of its column, the last one too.
package table

import (
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

// Cell is a text with a style.
type Cell struct {
	Text  string
	Style console.Style
}

// Table is a header and rows of as many cells.
type Table struct {
	Header []string
	Rows   [][]Cell
	// Least lists the columns that may be omitted if the table is too wide, in this
	// order. Those that have the same text in all rows are omitted first.
	Least []string
	// Breaks wraps the text of the last column instead of cutting it.
	Breaks bool
}

// New makes a table with the given header.
func New(header ...string) *Table { return &Table{Header: header} }

// Row adds a row. A cell is a string or a Cell.
func (t *Table) Row(cells ...any) {
	row := make([]Cell, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case Cell:
			row[i] = c
		case string:
			row[i] = Cell{Text: c}
		}
		row[i].Text = printable(row[i].Text)
	}
	t.Rows = append(t.Rows, row)
}

// printable removes escape sequences and line breaks: a name that comes from the network
// must not move the cursor.
func printable(s string) string {
	s = ansi.Strip(s)
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

const space = "   "

// dots at the end of the header show that columns were omitted.
const dots = space + "…"

var dotsWidth = ansi.StringWidth(dots)

// fit returns the table without the columns that do not fit into room, and reports whether
// it omitted any.
func (t *Table) fit(room int) (fitting *Table, less bool) {
	width := 0
	var uniform, rest []int
	widths := t.widths()
	for _, w := range widths {
		width += w + len(space)
	}
	width -= len(space)
	for _, name := range t.Least {
		i := slices.Index(t.Header, name)
		switch {
		case i < 0:
		case len(t.Rows) > 1 && !slices.ContainsFunc(t.Rows, func(row []Cell) bool { return row[i].Text != t.Rows[0][i].Text }):
			uniform = append(uniform, i)
		default:
			rest = append(rest, i)
		}
	}
	if width > room {
		room -= dotsWidth
	}
	omitted := map[int]bool{}
	candidates := append(uniform, rest...)
	for _, i := range candidates {
		if width > room {
			omitted[i] = true
			width -= widths[i] + len(space)
		}
	}
	for _, i := range slices.Backward(candidates) { // a narrow column may fit after all
		if more := widths[i] + len(space); omitted[i] && width+more <= room {
			delete(omitted, i)
			width += more
		}
	}
	fitting = &Table{}
	keep := func(i int) bool { return !omitted[i] }
	fitting.Header = kept(t.Header, keep)
	for _, row := range t.Rows {
		fitting.Rows = append(fitting.Rows, kept(row, keep))
	}
	return fitting, len(omitted) > 0
}

func kept[T any](items []T, keep func(i int) bool) (out []T) {
	for i, it := range items {
		if keep(i) {
			out = append(out, it)
		}
	}
	return out
}

// widths returns the widths of the columns.
func (t *Table) widths() []int {
	widths := make([]int, len(t.Header))
	for i, h := range t.Header {
		widths[i] = ansi.StringWidth(h)
	}
	for _, row := range t.Rows {
		for i, c := range row {
			widths[i] = max(widths[i], ansi.StringWidth(c.Text))
		}
	}
	return widths
}

// minWrap is the minimum width of wrapped text.
const minWrap = 10

// wrapped returns the table with the text of its last column wrapped.
func (t *Table) wrapped(width int) *Table {
	last := len(t.Header) - 1
	for _, w := range t.widths()[:last] {
		width -= w + len(space)
	}
	wrapped := &Table{Header: t.Header}
	for _, row := range t.Rows {
		for i, text := range strings.Split(ansi.Wrap(row[last].Text, max(width, minWrap), ""), "\n") {
			line := make([]Cell, len(row))
			if i == 0 {
				copy(line, row)
			}
			line[last] = Cell{text, row[last].Style}
			wrapped.Rows = append(wrapped.Rows, line)
		}
	}
	return wrapped
}

// Write writes the table. If width is positive, it omits columns and then cuts lines, so
// that the table fits.
func (t *Table) Write(out *console.Stream, width int) error {
	less := false
	switch {
	case width > 0 && t.Breaks:
		t = t.wrapped(width)
	case width > 0:
		t, less = t.fit(width)
	}
	widths := t.widths()
	var b strings.Builder
	line := func(cells []Cell, all console.Style) {
		var l strings.Builder
		for i, c := range cells {
			if i > 0 {
				l.WriteString(space)
			}
			l.WriteString(out.Paint(c.Style, c.Text))
			l.WriteString(strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(c.Text))))
		}
		text := l.String()
		if width > 0 && ansi.StringWidth(text) > width {
			text = ansi.Truncate(strings.TrimRight(text, " "), width, "…") // if only padding is cut, no dots are needed
		}
		b.WriteString(out.Paint(all, text))
		b.WriteByte('\n')
	}
	header := make([]Cell, len(t.Header))
	for i, h := range t.Header {
		header[i].Text = h
	}
	if less { // a wider terminal shows more
		header[len(header)-1].Text += strings.Repeat(" ", widths[len(header)-1]-ansi.StringWidth(header[len(header)-1].Text)) + dots
	}
	line(header, console.Bold)
	for _, row := range t.Rows {
		line(row, console.Plain)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
