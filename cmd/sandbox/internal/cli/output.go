package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
)

// printer writes results in the requested form.
type printer struct{ *stdio }

// output is the result of a command: as a document, as the names of what it is
// about, or as a table.
type output struct {
	// doc is a value, or a slice for a list.
	doc   any
	names []string
	table func() *table.Table
	// empty is said on standard error, at a terminal, in place of an empty table.
	empty string
}

// list returns the output for several things.
func list[T any](items []T, name func(T) string, tbl func([]T) *table.Table) output {
	if items == nil {
		items = []T{}
	}
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = name(it)
	}
	return output{doc: items, names: names, table: func() *table.Table { return tbl(items) }}
}

// structured reports whether the output is for a program.
func (o *globals) structured() bool { return o.json || o.quiet }

// prose breaks sentences between words where somebody looks at them. Errors are not:
// what a hint says to run is copied from there.
func prose(out *console.Stream, text string) string {
	if !out.Terminal {
		return text
	}
	return wrapped(text, 0, out.Width())
}

// print writes output in the requested form.
func (p *printer) print(out output) error {
	switch {
	case p.opts.json:
		return writeJSON(p.out, out.doc, true)
	case p.opts.quiet:
		for _, n := range out.names {
			if _, err := fmt.Fprintln(p.out, n); err != nil {
				return err
			}
		}
		return nil
	case out.table == nil:
		return writeJSON(p.out, out.doc, true)
	}
	t := out.table()
	if len(t.Rows) == 0 && out.empty != "" && p.out.Terminal {
		fmt.Fprintln(p.err, p.filled(out.empty))
		return nil
	}
	width := 0
	if p.out.Terminal {
		width = p.out.Width()
	}
	return t.Write(p.out, width)
}

// result writes what a command has to say about what it did to a program. Nobody
// else needs more than the exit code, and what was said on standard error.
func (p *printer) result(doc any, names ...string) error {
	if !p.opts.structured() {
		return nil
	}
	return p.print(output{doc: doc, names: names})
}

// writeJSON writes one document.
func writeJSON(w io.Writer, doc any, indent bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(doc)
}
