package cli

import (
	"fmt"
	"slices"

	"github.com/go-vercel/sandbox/cmd/sandbox/mirror"
)

// tell says what was done, if it was anything.
func (c *syncCommand) tell(changes mirror.Changes) {
	if len(changes.Write)+len(changes.Delete) > 0 && !c.app.opts.quiet {
		fmt.Fprintf(c.app.err, "%s copied, %d deleted\n", plural(len(changes.Write), "file", "files"), len(changes.Delete))
	}
}

type changesView struct {
	Write  []string `json:"write"`
	Delete []string `json:"delete"`
	Mkdir  []string `json:"mkdir"`
}

func (c *syncCommand) show(changes mirror.Changes) error {
	if c.app.opts.structured() {
		some := func(names []string) []string { return append([]string{}, names...) }
		return c.app.print(output{
			doc: changesView{some(changes.Write), some(changes.Delete), some(changes.Mkdir)}, names: slices.Concat(changes.Write, changes.Delete),
		})
	}
	for _, l := range []struct {
		what  string
		names []string
	}{{"copy  ", changes.Write}, {"mkdir ", changes.Mkdir}, {"delete", changes.Delete}} {
		for _, p := range l.names {
			fmt.Fprintln(c.app.shown(), l.what, p)
		}
	}
	return nil
}
