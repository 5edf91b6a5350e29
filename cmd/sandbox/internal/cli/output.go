package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
)

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
func (o *screenOptions) structured() bool { return o.json || o.quiet }

// prose breaks sentences between words where somebody looks at them. Errors are not:
// what a hint says to run is copied from there.
func prose(out *console.Stream, text string) string {
	if !out.Terminal {
		return text
	}
	return wrapped(text, 0, out.Width())
}

// print writes output in the requested form.
func (s *stdio) print(out output) error {
	switch {
	case s.opts.json:
		return writeJSON(s.out, out.doc, true)
	case s.opts.quiet:
		for _, n := range out.names {
			if _, err := fmt.Fprintln(s.out, n); err != nil {
				return err
			}
		}
		return nil
	case out.table == nil:
		return writeJSON(s.out, out.doc, true)
	}
	t := out.table()
	if len(t.Rows) == 0 && out.empty != "" && s.out.Terminal {
		fmt.Fprintln(s.err, s.filled(out.empty))
		return nil
	}
	width := 0
	if s.out.Terminal {
		width = s.out.Width()
	}
	return t.Write(s.out, width)
}

// result writes what a command has to say about what it did to a program. Nobody
// else needs more than the exit code, and what was said on standard error.
func (s *stdio) result(doc any, names ...string) error {
	if !s.opts.structured() {
		return nil
	}
	return s.print(output{doc: doc, names: names})
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

// printDone writes the names of what is done to standard output, unless somebody
// has just seen them there.
func (s *stdio) printDone(names []string) error {
	if s.opts.structured() {
		return s.print(list(names, func(n string) string { return n }, nil))
	}
	if s.out.Terminal && s.err.Terminal {
		return nil
	}
	for _, n := range names {
		if _, err := fmt.Fprintln(s.out, n); err != nil {
			return err
		}
	}
	return nil
}
