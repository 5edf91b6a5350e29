package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/wire"
)

type snapshotsTreeCommand struct {
	deps

	order, cursor string
	limit         int
}

func (c *snapshotsTreeCommand) command() *line.Command {
	return &line.Command{
		Name: "tree", Short: "Show the ancestors and descendants of a sandbox's snapshot", Args: []line.Argument{line.NameArg}, Options: c.define,
		Example: "snapshots tree my-app", Doc: treeView{}, Run: c.run,
	}
}

func (c *snapshotsTreeCommand) define(flags *pflag.FlagSet) {
	line.Choice(flags, &c.order, "sort-order", "", "value", "desc (default) walks the ancestors, asc the descendants. Needs --cursor", "asc", "desc")
	line.Option(flags, &c.limit, "limit", "", "number", "10", "Maximum number of snapshots in each direction (1-10)", line.ParseBetween(1, wire.MaxTreePage, "limit"))
	line.Option(flags, &c.cursor, "cursor", "", "str", "", "Continue from the hint of an earlier call", line.ParseAny)
}

func (c *snapshotsTreeCommand) run(cmd *cobra.Command, args []string) error {
	if c.order != "" && c.cursor == "" {
		return line.Usagef("--sort-order needs --cursor")
	}
	if err := c.account.CheckName(args[0]); err != nil {
		return err
	}
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	stop := c.screen.Spin("Fetching snapshot tree...")
	defer stop()
	t := &snapshotTree{deps: c.deps, client: client, name: args[0], limit: c.limit}
	if c.cursor != "" {
		err = t.readPage(cmd.Context(), c.cursor, c.order)
	} else {
		err = t.readAll(cmd.Context())
	}
	stop()
	if err != nil {
		return err
	}
	return t.print()
}

// snapshotTree is a snapshot with its ancestors and descendants.
type snapshotTree struct {
	deps
	client *sandbox.Client
	name   string
	limit  int

	current                *sandbox.SnapshotTreeNode
	ancestors, descendants []sandbox.SnapshotTreeNode
	nextUp, nextDown       string
	onePage                bool
}

func (t *snapshotTree) fetchPage(ctx context.Context, from, order string) (*sandbox.Page[sandbox.SnapshotTreeNode], error) {
	return t.client.SnapshotTreePage(ctx, from, &sandbox.SnapshotTreeOptions{Limit: t.limit, SortOrder: sandbox.SortOrder(order)})
}

func (t *snapshotTree) readPage(ctx context.Context, cursor, order string) error {
	t.onePage = true
	order = cmp.Or(order, "desc")
	page, err := t.fetchPage(ctx, cursor, order)
	if err != nil {
		return err
	}
	if order == "asc" {
		t.descendants, t.nextDown = page.Items, page.Next
	} else {
		t.ancestors, t.nextUp = page.Items, page.Next
	}
	return nil
}

func (t *snapshotTree) readAll(ctx context.Context) error {
	sb, err := t.account.Get(ctx, t.name, false)
	if err != nil {
		return err
	}
	id := sb.Info().CurrentSnapshotID
	if id == "" {
		return nil
	}
	snap, err := t.client.GetSnapshot(ctx, id)
	if err != nil {
		return err
	}
	up, err := t.fetchPage(ctx, id, "desc")
	if err != nil {
		return err
	}
	down, err := t.fetchPage(ctx, id, "asc")
	if err != nil {
		return err
	}
	t.nextUp, t.nextDown = up.Next, down.Next
	t.current = &sandbox.SnapshotTreeNode{Snapshot: snap.Info(), Count: 1}
	others := func(nodes []sandbox.SnapshotTreeNode) []sandbox.SnapshotTreeNode {
		return slices.DeleteFunc(slices.Clone(nodes), func(n sandbox.SnapshotTreeNode) bool {
			if n.Snapshot.ID == id {
				t.current = &n
			}
			return n.Snapshot.ID == id
		})
	}
	if up.Anchor != nil {
		t.current = up.Anchor
	}
	t.ancestors, t.descendants = others(up.Items), others(down.Items)
	return nil
}

type treeView struct {
	Current     *snapshotView  `json:"current"`
	Ancestors   []snapshotView `json:"ancestors"`
	Descendants []snapshotView `json:"descendants"`
}

func (t *snapshotTree) print() error {
	if t.screen.Opts.Structured() {
		nodes := func(from []sandbox.SnapshotTreeNode) []snapshotView {
			return mapped(from, func(n sandbox.SnapshotTreeNode) snapshotView { return viewSnapshot(n.Snapshot) })
		}
		v := treeView{Ancestors: nodes(t.ancestors), Descendants: nodes(t.descendants)}
		var names []string
		if t.current != nil {
			s := viewSnapshot(t.current.Snapshot)
			v.Current, names = &s, []string{s.ID}
		}
		return t.screen.Print(screen.Output{Doc: v, Names: names})
	}
	if t.current == nil && !t.onePage {
		_, err := fmt.Fprintln(t.screen.Out, "No snapshots found for this sandbox.")
		return err
	}
	var lines []string
	for _, n := range slices.Backward(t.descendants) {
		lines = append(lines, t.nodeLines(n, false)...)
	}
	if t.current != nil {
		lines = append(lines, t.nodeLines(*t.current, true)...)
	}
	for _, n := range t.ancestors {
		lines = append(lines, t.nodeLines(n, false)...)
	}
	atRoot := len(t.ancestors) == 0 || t.ancestors[len(t.ancestors)-1].Snapshot.ParentID == ""
	if !t.onePage && t.nextUp == "" && atRoot {
		lines = append(lines, "│", "○ "+t.screen.Out.Paint(console.Gray, "(root)"))
	}
	if _, err := fmt.Fprintln(t.screen.Out, strings.Join(lines, "\n")); err != nil {
		return err
	}
	t.hint("ancestors", t.nextUp, "desc")
	t.hint("descendants", t.nextDown, "asc")
	return nil
}

func (t *snapshotTree) hint(what, next, order string) {
	if next != "" {
		fmt.Fprintf(t.screen.Err, "\nMore %s: %s\n", what, t.screen.Filled(screen.Try("snapshots tree %s --cursor %s --sort-order %s", line.ShellWord(t.name), line.ShellWord(next), order)))
	}
}

// maxSiblings limits how many siblings of a snapshot are shown.
const maxSiblings = 5

func (t *snapshotTree) nodeLines(n sandbox.SnapshotTreeNode, current bool) []string {
	out, now := t.screen.Out, t.screen.Now()
	expires := out.Paint(console.Gray, "never")
	if at := n.Snapshot.ExpiresAt; !at.IsZero() {
		left := at.Sub(now)
		switch {
		case left <= 0:
			expires = out.Paint(console.Red, "expired")
		case left <= time.Hour:
			expires = out.Paint(console.Red, units.Distance(at, now))
		default:
			expires = out.Paint(console.Green, units.Distance(at, now))
		}
	}
	line := fmt.Sprintf("%s %s   expires: %s", out.Paint(console.Magenta, "●"), out.Paint(console.Yellow, n.Snapshot.ID), expires)
	if current {
		line += "  " + out.Paint(console.Green, "◂ current")
	}
	lines := []string{"│", line}
	shown := n.Siblings[:min(len(n.Siblings), maxSiblings)]
	rest := n.Count - 1 - len(shown)
	for i, s := range shown {
		mark := "├──"
		if i == len(shown)-1 && rest <= 0 {
			mark = "╰──"
		}
		lines = append(lines, "│   "+mark+" "+out.Paint(console.Gray, s.ID))
	}
	if rest > 0 {
		lines = append(lines, "│   ╰── "+out.Paint(console.Gray, fmt.Sprintf("+%d more snapshots", rest)))
	}
	return lines
}
