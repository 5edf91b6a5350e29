package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/cmd/sandbox/mirror"
	"github.com/go-vercel/sandbox/internal/redact"
)

// tell says what was done, if it was anything.
func (c *syncCommand) tell(changes mirror.Changes) {
	switch {
	case c.app.opts.quiet:
	case len(changes.Write)+len(changes.Delete) > 0:
		fmt.Fprintf(c.app.err, "%s copied, %d deleted\n", plural(len(changes.Write), "file", "files"), len(changes.Delete))
	case !c.watch:
		fmt.Fprintln(c.app.err, "Nothing has changed.")
	}
	c.tellLeftOut(changes)
}

// tellLeftOut says once what does not arrive.
func (c *syncCommand) tellLeftOut(changes mirror.Changes) {
	if fresh := slices.DeleteFunc(slices.Clone(changes.LeftOut), func(name string) bool { return slices.Contains(c.leftOut, name) }); len(fresh) > 0 {
		c.app.leftOut(fresh, "one file: "+try("cp NAME:FILE FILE"))
		c.leftOut = changes.LeftOut
	}
	if fresh := slices.DeleteFunc(slices.Clone(changes.OutsideLinks), func(name string) bool { return slices.Contains(c.outside, name) }); len(fresh) > 0 {
		c.app.leftOutside(fresh)
		c.outside = changes.OutsideLinks
	}
}

// leftOut says what did not arrive since it would act by itself.
func (a *app) leftOut(names []string, hint string) {
	a.warn("left out, since Git or an editor would run it by itself: "+some(names), hint)
}

// leftOutside says which links did not arrive since they lead elsewhere.
func (a *app) leftOutside(names []string) {
	a.warn("left out, since these links lead out of the directory: "+some(names), "--outside-links keeps them")
}

// some are the first of some names.
func some(names []string) string {
	const shown = 10
	text := strings.Join(mapped(names[:min(len(names), shown)], redact.Printable), ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

type changesView struct {
	Write  []string `json:"write"`
	Delete []string `json:"delete"`
	Mkdir  []string `json:"mkdir"`
	// LeftOut would act by itself here.
	LeftOut []string `json:"left_out"`
	// OutsideLinks lead out of the directory.
	OutsideLinks []string `json:"outside_links"`
}

func (c *syncCommand) show(changes mirror.Changes) error {
	if c.app.opts.structured() {
		all := func(names []string) []string { return append([]string{}, names...) }
		return c.app.print(output{
			doc: changesView{all(changes.Write), all(changes.Delete), all(changes.Mkdir), all(changes.LeftOut), all(changes.OutsideLinks)}, names: slices.Concat(changes.Write, changes.Delete),
		})
	}
	for _, l := range []struct {
		what  string
		names []string
	}{{"copy  ", changes.Write}, {"mkdir ", changes.Mkdir}, {"delete", changes.Delete}, {"leave ", slices.Concat(changes.LeftOut, changes.OutsideLinks)}} {
		for _, p := range l.names {
			fmt.Fprintln(c.app.out, l.what, p)
		}
	}
	return nil
}
