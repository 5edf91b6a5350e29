package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/wire"
)

type snapshotCommand struct {
	place

	stop, silent bool
	expiration   *time.Duration
}

func (c *snapshotCommand) command() *command {
	return &command{
		name: "snapshot", near: []string{"save", "commit"}, first: true, short: "Take a snapshot of a sandbox's files",
		long: "Take a snapshot of a sandbox's files, which ends its session. The snapshot's ID is written to standard output.",
		args: []argument{nameArg}, options: c.define, example: "snapshot my-app --stop", doc: snapshotView{}, run: c.run,
	}
}

func (c *snapshotCommand) define(flags *pflag.FlagSet) {
	toggle(flags, &c.stop, "stop", "", "Accept that the session ends")
	toggle(flags, &c.silent, "silent", "", "Don't write the snapshot's ID to standard output")
	option(flags, &c.expiration, "expiration", "", "num UNIT", "", "How long the snapshot is kept; 0 keeps it", pointerTo(parseExpiration))
}

func (c *snapshotCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if !c.stop && !c.screen.opts.yes && !c.screen.asks() {
		return withHint(usagef("a snapshot ends the current session of the sandbox"), "agree with --stop")
	}
	sb, err := c.account.named(ctx, args[0], false)
	if err != nil {
		return err
	}
	if status := sb.Status(); status != sandbox.StatusRunning {
		return withHint(fmt.Errorf("sandbox %s is not running (its status is %s)", sb.Name(), status),
			"a stopped sandbox has its snapshot already: %s", try("snapshots list --name %s", sb.Name()))
	}
	if !c.stop {
		if err := c.screen.confirm(ctx, "A snapshot ends the current session of "+sb.Name()+". Go on?"); err != nil {
			return err
		}
	}
	done := c.screen.spinUnless(c.silent, "Creating snapshot...")
	snap, err := sb.Snapshot(ctx, &sandbox.SnapshotOptions{Expiration: keptFor(c.expiration)})
	done()
	if err != nil {
		return err
	}
	if c.screen.opts.structured() {
		return c.screen.print(output{doc: viewSnapshot(snap.Info()), names: []string{snap.ID()}})
	}
	if c.silent {
		return nil
	}
	fmt.Fprintf(c.screen.err, "%s Snapshot %s created.\n", c.screen.err.Paint(console.Green, "✔"), snap.ID())
	_, err = fmt.Fprintln(c.screen.out, snap.ID())
	return err
}

type snapshotsCommand struct{ place }

func (c *snapshotsCommand) command() *command {
	return &command{
		name: "snapshots", short: "Manage snapshots",
		sub: describe(&snapshotsListCommand{place: c.place}, &snapshotsGetCommand{place: c.place}, &snapshotsTreeCommand{place: c.place}, &snapshotsDeleteCommand{place: c.place}),
	}
}

var snapshotStyles = map[sandbox.Status]console.Style{
	"created": console.Cyan, sandbox.StatusFailed: console.Red, "deleted": console.Gray,
}

func (p *place) snapshotTable(views []snapshotView) *table.Table {
	t := table.New("ID", "STATUS", "CREATED", "EXPIRATION", "SIZE", "REGIONS", "SOURCE SESSION")
	t.Least = []string{"SOURCE SESSION", "REGIONS", "EXPIRATION", "SIZE", "STATUS"}
	now := p.screen.now()
	for _, v := range views {
		expiration := distance(v.ExpiresAt, now)
		if v.Status == "deleted" {
			expiration = "deleted"
		}
		t.Row(v.ID, table.Cell{Text: string(v.Status), Style: snapshotStyles[v.Status]}, distance(v.CreatedAt, now), expiration,
			units.Bytes(v.SizeBytes), strings.Join(v.Regions, ", "), v.SourceSessionID)
	}
	return t
}

func (p *place) printSnapshots(views []snapshotView) error {
	ans := list(views, func(v snapshotView) string { return v.ID }, p.snapshotTable)
	ans.empty = "No snapshots."
	return p.screen.print(ans)
}

type snapshotsListCommand struct {
	place

	pages paging
	name  string
}

func (c *snapshotsListCommand) command() *command {
	return &command{
		name: "list", aliases: []string{"ls"}, near: []string{"get", "status"}, short: "List the snapshots of a project",
		options: func(flags *pflag.FlagSet) {
			option(flags, &c.name, "name", "", "name", "", "Only the snapshots of this sandbox", parseAny)
			c.pages.define(flags, "snapshots")
		},
		example: "snapshots ls --name my-app", doc: []snapshotView{}, run: c.run,
	}
}

func (c *snapshotsListCommand) run(cmd *cobra.Command, _ []string) error {
	client, err := c.account.connect(cmd.Context())
	if err != nil {
		return err
	}
	stop := c.screen.spin("Fetching snapshots...")
	found, next, err := collect(cmd.Context(), &c.pages, func(s sandbox.SnapshotInfo) string { return s.ID },
		func(sandbox.SnapshotInfo) bool { return true },
		func(ctx context.Context, limit int, cursor string) (*sandbox.Page[sandbox.SnapshotInfo], error) {
			return client.ListSnapshotsPage(ctx, &sandbox.ListSnapshotsOptions{
				Sandbox: c.name, Limit: limit, Cursor: cursor, SortOrder: sandbox.SortOrder(c.pages.sortOrder),
			})
		})
	stop()
	if err != nil {
		return err
	}
	if err := c.printSnapshots(mapped(found, viewSnapshot)); err != nil {
		return err
	}
	c.more(next)
	return nil
}

// snapshotArg is an argument that names a snapshot.
var snapshotArg = argument{name: "snapshot_id", text: "The ID of a snapshot, which begins with snap_", parse: checked(parseSnapshotID)}

type snapshotsGetCommand struct{ place }

func (c *snapshotsGetCommand) command() *command {
	return &command{
		name: "get", near: []string{"show", "inspect"}, short: "Show a snapshot", args: []argument{snapshotArg},
		example: "snapshots get snap_0123", doc: snapshotView{}, run: c.run,
	}
}

func (c *snapshotsGetCommand) run(cmd *cobra.Command, args []string) error {
	client, err := c.account.connect(cmd.Context())
	if err != nil {
		return err
	}
	stop := c.screen.spin("Fetching snapshot...")
	snap, err := client.GetSnapshot(cmd.Context(), args[0])
	stop()
	if err != nil {
		return err
	}
	v := viewSnapshot(snap.Info())
	if c.screen.opts.structured() {
		return c.screen.print(output{doc: v, names: []string{v.ID}})
	}
	return c.printSnapshots([]snapshotView{v})
}

type snapshotsDeleteCommand struct{ place }

func (c *snapshotsDeleteCommand) command() *command {
	return &command{
		name: "delete", aliases: []string{"rm", "remove"}, near: []string{"destroy"}, short: "Delete snapshots",
		args:    []argument{snapshotArg, {name: "snapshot_id", text: "More of them", several: true, parse: checked(parseSnapshotID)}},
		example: "snapshots rm snap_0123", doc: []string{}, run: c.run,
	}
}

func (c *snapshotsDeleteCommand) run(cmd *cobra.Command, args []string) error {
	client, err := c.account.connect(cmd.Context())
	if err != nil {
		return err
	}
	return c.tasks(distinct(args), "Deleting snapshot ", func(id string) error {
		snap, err := client.GetSnapshot(cmd.Context(), id)
		if err != nil {
			return err
		}
		if snap.Info().Status != "created" {
			return fmt.Errorf("snapshot %s is in status %q and can't be deleted", id, snap.Info().Status)
		}
		return snap.Delete(cmd.Context())
	})
}

type snapshotsTreeCommand struct {
	place

	order, cursor string
	limit         int
}

func (c *snapshotsTreeCommand) command() *command {
	return &command{
		name: "tree", short: "Show the ancestors and descendants of a sandbox's snapshot", args: []argument{nameArg}, options: c.define,
		example: "snapshots tree my-app", doc: treeView{}, run: c.run,
	}
}

func (c *snapshotsTreeCommand) define(flags *pflag.FlagSet) {
	choice(flags, &c.order, "sort-order", "", "value", "desc (default) walks the ancestors, asc the descendants. Needs --cursor", "asc", "desc")
	option(flags, &c.limit, "limit", "", "number", "10", "Maximum number of snapshots in each direction (1-10)", parseBetween(1, wire.MaxTreePage, "limit"))
	option(flags, &c.cursor, "cursor", "", "str", "", "Continue from the hint of an earlier call", parseAny)
}

func (c *snapshotsTreeCommand) run(cmd *cobra.Command, args []string) error {
	if c.order != "" && c.cursor == "" {
		return usagef("--sort-order needs --cursor")
	}
	name, err := c.account.checkedName(args[0])
	if err != nil {
		return err
	}
	client, err := c.account.connect(cmd.Context())
	if err != nil {
		return err
	}
	stop := c.screen.spin("Fetching snapshot tree...")
	defer stop()
	t := &snapshotTree{place: c.place, client: client, name: name, limit: c.limit}
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
	place
	client *sandbox.Client
	name   string
	limit  int

	current                *sandbox.SnapshotTreeNode
	ancestors, descendants []sandbox.SnapshotTreeNode
	nextUp, nextDown       string
	page                   bool
}

func (t *snapshotTree) walk(ctx context.Context, from, order string) (*sandbox.Page[sandbox.SnapshotTreeNode], error) {
	return t.client.SnapshotTreePage(ctx, from, &sandbox.SnapshotTreeOptions{Limit: t.limit, SortOrder: sandbox.SortOrder(order)})
}

func (t *snapshotTree) readPage(ctx context.Context, cursor, order string) error {
	t.page = true
	if order == "" {
		order = "desc"
	}
	page, err := t.walk(ctx, cursor, order)
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
	sb, err := t.account.get(ctx, t.name, false)
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
	up, err := t.walk(ctx, id, "desc")
	if err != nil {
		return err
	}
	down, err := t.walk(ctx, id, "asc")
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
	if t.screen.opts.structured() {
		nodes := func(from []sandbox.SnapshotTreeNode) []snapshotView {
			return mapped(from, func(n sandbox.SnapshotTreeNode) snapshotView { return viewSnapshot(n.Snapshot) })
		}
		v := treeView{Ancestors: nodes(t.ancestors), Descendants: nodes(t.descendants)}
		var names []string
		if t.current != nil {
			s := viewSnapshot(t.current.Snapshot)
			v.Current, names = &s, []string{s.ID}
		}
		return t.screen.print(output{doc: v, names: names})
	}
	if t.current == nil && !t.page {
		_, err := fmt.Fprintln(t.screen.out, "No snapshots found for this sandbox.")
		return err
	}
	var lines []string
	for _, n := range slices.Backward(t.descendants) {
		lines = append(lines, t.node(n, false)...)
	}
	if t.current != nil {
		lines = append(lines, t.node(*t.current, true)...)
	}
	for _, n := range t.ancestors {
		lines = append(lines, t.node(n, false)...)
	}
	atRoot := len(t.ancestors) == 0 || t.ancestors[len(t.ancestors)-1].Snapshot.ParentID == ""
	if !t.page && t.nextUp == "" && atRoot {
		lines = append(lines, "│", "○ "+t.screen.out.Paint(console.Gray, "(root)"))
	}
	if _, err := fmt.Fprintln(t.screen.out, strings.Join(lines, "\n")); err != nil {
		return err
	}
	t.hint("ancestors", t.nextUp, "desc")
	t.hint("descendants", t.nextDown, "asc")
	return nil
}

func (t *snapshotTree) hint(what, next, order string) {
	if next != "" {
		fmt.Fprintf(t.screen.err, "\nMore %s: %s\n", what, t.screen.filled(try("snapshots tree %s --cursor %s --sort-order %s", shellWord(t.name), shellWord(next), order)))
	}
}

// maxSiblings is how many siblings of a snapshot are shown.
const maxSiblings = 5

func (t *snapshotTree) node(n sandbox.SnapshotTreeNode, current bool) []string {
	out, now := t.screen.out, t.screen.now()
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
