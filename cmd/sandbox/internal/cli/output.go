package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/itchyny/gojq"

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

func (o *globals) wantsJSON() bool {
	return o.output == "json" || o.output == "jsonl" || o.jq != ""
}

// structured reports whether the output is for a program.
func (o *globals) structured() bool { return o.wantsJSON() || o.quiet }

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
	case p.opts.jq != "":
		return p.query(out.doc)
	case p.opts.output == "jsonl":
		items, err := elements(out.doc)
		if err != nil {
			return err
		}
		for _, it := range items {
			if err := writeJSON(p.out, it, false); err != nil {
				return err
			}
		}
		return nil
	case p.opts.output == "json":
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
	opts := table.Options{NoHeader: p.opts.noHeader}
	if p.out.Terminal && p.opts.output != "wide" {
		opts.Width = p.out.Width()
	}
	return t.Write(p.out, opts)
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

// plain turns a document into what JSON is made of.
func plain(doc any) (any, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var v any
	return v, json.Unmarshal(data, &v)
}

func elements(doc any) ([]any, error) {
	v, err := plain(doc)
	if err != nil {
		return nil, err
	}
	if items, ok := v.([]any); ok {
		return items, nil
	}
	return []any{v}, nil
}

// query writes what a jq expression makes of a document, texts without quotes.
func (p *printer) query(doc any) error {
	q, err := gojq.Parse(p.opts.jq)
	if err != nil {
		return usagef("--jq: %v", err)
	}
	v, err := plain(doc)
	if err != nil {
		return err
	}
	results := q.Run(v)
	for {
		r, ok := results.Next()
		if !ok {
			return nil
		}
		if err, bad := r.(error); bad {
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.Value() == nil {
				return nil
			}
			return fmt.Errorf("--jq: %w", err)
		}
		if text, ok := r.(string); ok {
			_, err = fmt.Fprintln(p.out, text)
		} else {
			err = writeJSON(p.out, r, false)
		}
		if err != nil {
			return err
		}
	}
}
