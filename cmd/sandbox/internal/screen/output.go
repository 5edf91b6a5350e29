package screen

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
)

// Output is the result of a command: as a document, as names, or as a table.
type Output struct {
	// Doc is a value, or a slice for a list.
	Doc   any
	Names []string
	Table func() *table.Table
	// Empty is printed on standard error, at a terminal, instead of an empty table.
	Empty string
}

// List returns the output of a list.
func List[T any](items []T, name func(T) string, tbl func([]T) *table.Table) Output {
	if items == nil {
		items = []T{}
	}
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = name(it)
	}
	return Output{Doc: items, Names: names, Table: func() *table.Table { return tbl(items) }}
}

// Structured reports whether the output is for a program.
func (o *Options) Structured() bool { return o.JSON || o.Quiet }

// Prose wraps sentences at a terminal. Hints are not wrapped, because users copy commands
// from them.
func Prose(out *console.Stream, text string) string {
	if !out.Terminal {
		return text
	}
	return Wrapped(text, 0, out.Width())
}

// Print writes output in the requested form.
func (s *Screen) Print(out Output) error {
	switch {
	case s.Opts.JSON:
		return WriteJSON(s.Out, out.Doc, true)
	case s.Opts.Quiet:
		return s.printNames(out.Names)
	case out.Table == nil:
		return WriteJSON(s.Out, out.Doc, true)
	}
	t := out.Table()
	if len(t.Rows) == 0 && out.Empty != "" && s.Out.Terminal {
		fmt.Fprintln(s.Err, s.Filled(out.Empty))
		return nil
	}
	width := 0
	if s.Out.Terminal {
		width = s.Out.Width()
	}
	return t.Write(s.Out, width)
}

// Result writes the result of a change for programs, with --json or -q. People see it on
// standard error.
func (s *Screen) Result(doc any, names ...string) error {
	if !s.Opts.Structured() {
		return nil
	}
	return s.Print(Output{Doc: doc, Names: names})
}

// WriteJSON writes one document.
func WriteJSON(w io.Writer, doc any, indent bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(doc)
}

// PrintDone writes the names of the changed objects to standard output, unless the terminal
// already shows them.
func (s *Screen) PrintDone(names []string) error {
	if s.Opts.Structured() {
		return s.Print(List(names, func(n string) string { return n }, nil))
	}
	if s.Out.Terminal && s.Err.Terminal {
		return nil
	}
	return s.printNames(names)
}

func (s *Screen) printNames(names []string) error {
	for _, n := range names {
		if _, err := fmt.Fprintln(s.Out, n); err != nil {
			return err
		}
	}
	return nil
}
