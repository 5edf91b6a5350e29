package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

type listCommand struct {
	deps

	pages  paging
	sel    selection
	sortBy string
}

func (c *listCommand) command() *line.Command {
	return &line.Command{
		Name: "list", Aliases: []string{"ls"}, Near: []string{"get", "status"}, First: true, Short: "List the sandboxes of a project",
		Long:    "List the running sandboxes of a project, or all of them with --all.",
		Options: c.define, Example: "ls --status stopped --tag env=ci", Doc: []sandboxView{}, Run: c.run,
	}
}

func (c *listCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.sel.all, "all", "a", "Show all sandboxes (default shows just running)")
	line.Option(flags, &c.sel.namePrefix, "name-prefix", "", "str", "", "Filter sandboxes by name prefix", line.ParseAny)
	line.Choice(flags, &c.sortBy, "sort-by", "", "value", "Sort sandboxes by field. Options: createdAt (default), name, statusUpdatedAt, currentSnapshotId", "createdAt", "name", "statusUpdatedAt", "currentSnapshotId")
	line.Options(flags, &c.sel.tags, "tag", "", "key=value", "Filter sandboxes by tag (repeatable)", line.ParsePair)
	line.Options(flags, &c.sel.statuses, "status", "", "status,...", "Show sandboxes in these states, such as stopped", line.ParseStatuses)
	line.Offer(flags, "status", line.Statuses...)
	c.pages.define(flags, "sandboxes")
}

func (c *listCommand) run(cmd *cobra.Command, _ []string) error {
	if c.sel.namePrefix != "" && c.sortBy != "" && c.sortBy != "name" {
		return line.Usagef("--sort-by must be name with --name-prefix")
	}
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	tags := c.resolvePairs(c.sel.tags, "--tag")
	shown := c.sel
	if !c.sel.all && len(c.sel.statuses) == 0 {
		shown.statuses = []string{string(sandbox.StatusRunning)}
	}
	opts := shown.listOptions(tags, sandbox.SortBy(c.sortBy))
	opts.SortOrder = sandbox.SortOrder(c.pages.sortOrder)
	stop := c.screen.Spin("Fetching sandboxes...")
	found, next, err := collect(cmd.Context(), &c.pages, func(i sandbox.Info) string { return i.Name }, shown.matcher(tags),
		func(ctx context.Context, limit int, cursor string) (*sandbox.Page[sandbox.Info], error) {
			opts.Limit, opts.Cursor = limit, cursor
			return client.ListPage(ctx, &opts)
		})
	stop()
	if err != nil {
		return err
	}
	ans := screen.List(mapped(found, viewSandbox), func(v sandboxView) string { return v.Name },
		func(views []sandboxView) *table.Table { return c.sandboxTable(views, c.sel.all) })
	switch {
	case len(c.sel.tags) > 0 || c.sel.namePrefix != "":
		ans.Empty = "No sandboxes match."
	case c.sel.all || len(c.sel.statuses) > 0:
		ans.Empty = "No sandboxes."
	default:
		ans.Empty = "No sandboxes are running; " + screen.Try("ls --all") + " shows the others."
	}
	return c.printPage(ans, next)
}

var statusStyles = map[sandbox.Status]console.Style{
	sandbox.StatusRunning: console.Cyan, sandbox.StatusFailed: console.Red, sandbox.StatusPending: console.Magenta,
	sandbox.StatusSnapshotting: console.Blue, sandbox.StatusStopped: console.Gray, sandbox.StatusStopping: console.Gray,
	sandbox.StatusAborted: console.Gray,
}

func statusCell(s sandbox.Status) table.Cell {
	return table.Cell{Text: string(s), Style: statusStyles[s]}
}

func (c *listCommand) sandboxTable(views []sandboxView, usage bool) *table.Table {
	header := []string{"NAME", "STATUS", "CREATED", "REGION", "MEMORY", "VCPUS", "IMAGE/RUNTIME", "TIMEOUT", "SNAPSHOT", "MOUNTS", "TAGS"}
	if usage {
		header = append(header, "CPU", "NETWORK (OUT/IN)")
	}
	t := table.New(header...)
	t.Least = []string{"MOUNTS", "SNAPSHOT", "NETWORK (OUT/IN)", "CPU", "VCPUS", "REGION", "MEMORY", "IMAGE/RUNTIME", "CREATED", "TAGS", "TIMEOUT"}
	now := c.screen.Now()
	for _, v := range views {
		row := []any{
			v.Name, statusCell(v.Status), relativeTime(v.CreatedAt, now), orDash(v.Region), numberOrDash(v.Memory, units.Megabytes), numberOrDash(v.VCPUs, strconv.Itoa),
			imageOrRuntime(v.Image, v.Runtime), timeoutText(v, now), orDash(v.CurrentSnapshotID), mountsText(v.Mounts), tagsText(v.Tags, ":"),
		}
		if usage {
			row = append(row, cpuText(v.TotalActiveCPU), networkText(v.TotalEgress, v.TotalIngress))
		}
		t.Row(row...)
	}
	return t
}

func timeoutText(v sandboxView, now time.Time) string {
	switch {
	case v.ExpiresAt != nil:
		return units.Distance(*v.ExpiresAt, now)
	case v.Timeout > 0 && v.CreatedAt != nil:
		return units.Distance(v.CreatedAt.Add(time.Duration(v.Timeout)*time.Millisecond), now)
	}
	return "-"
}
