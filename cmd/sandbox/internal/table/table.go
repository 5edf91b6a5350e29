// Package table writes the tables of the command line: three spaces between the
// columns, each cell padded to the width of its column, the last one too.
package table

import (
	"io"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

// Cell is a text and how it looks.
type Cell struct {
	Text  string
	Style console.Style
}

// Table is a header and rows of as many cells.
type Table struct {
	Header []string
	Rows   [][]Cell
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

// printable takes escape sequences and line breaks out of a text that comes from
// the network: a name must not move the cursor.
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

// Options say how a table is written.
type Options struct {
	// NoHeader leaves the header out.
	NoHeader bool
	// Width cuts lines that are longer; 0 does not.
	Width int
}

// Write writes the table.
func (t *Table) Write(out *console.Stream, opts Options) error {
	widths := make([]int, len(t.Header))
	for i, h := range t.Header {
		if !opts.NoHeader {
			widths[i] = ansi.StringWidth(h)
		}
	}
	for _, row := range t.Rows {
		for i, c := range row {
			widths[i] = max(widths[i], ansi.StringWidth(c.Text))
		}
	}
	var b strings.Builder
	line := func(cells []Cell, all console.Style) {
		var l strings.Builder
		for i, c := range cells {
			if i > 0 {
				l.WriteString(space)
			}
			l.WriteString(out.Paint(c.Style, c.Text))
			l.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(c.Text)))
		}
		text := out.Paint(all, l.String())
		if opts.Width > 0 {
			text = ansi.Truncate(text, opts.Width, "…")
		}
		b.WriteString(text)
		b.WriteByte('\n')
	}
	if !opts.NoHeader {
		header := make([]Cell, len(t.Header))
		for i, h := range t.Header {
			header[i].Text = h
		}
		line(header, console.Bold)
	}
	for _, row := range t.Rows {
		line(row, console.Plain)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
