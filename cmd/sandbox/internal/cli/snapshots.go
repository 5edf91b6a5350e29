package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

type snapshotsCommand struct{ deps }

func (c *snapshotsCommand) command() *line.Command {
	return &line.Command{
		Name: "snapshots", Short: "Manage snapshots",
		Sub: describe(&snapshotsListCommand{deps: c.deps}, &snapshotsGetCommand{deps: c.deps}, &snapshotsTreeCommand{deps: c.deps}, &snapshotsDeleteCommand{deps: c.deps}),
	}
}

var snapshotStyles = map[sandbox.Status]console.Style{
	"created": console.Cyan, sandbox.StatusFailed: console.Red, "deleted": console.Gray,
}

func (p *deps) snapshotTable(views []snapshotView) *table.Table {
	t := table.New("ID", "STATUS", "CREATED", "EXPIRATION", "SIZE", "REGIONS", "SOURCE SESSION")
	t.Least = []string{"SOURCE SESSION", "REGIONS", "EXPIRATION", "SIZE", "STATUS"}
	now := p.screen.Now()
	for _, v := range views {
		expiration := relativeTime(v.ExpiresAt, now)
		if v.Status == "deleted" {
			expiration = "deleted"
		}
		t.Row(v.ID, table.Cell{Text: string(v.Status), Style: snapshotStyles[v.Status]}, relativeTime(v.CreatedAt, now), expiration,
			units.Bytes(v.SizeBytes), strings.Join(v.Regions, ", "), v.SourceSessionID)
	}
	return t
}

func (p *deps) printSnapshots(views []snapshotView, next string) error {
	ans := screen.List(views, func(v snapshotView) string { return v.ID }, p.snapshotTable)
	ans.Empty = "No snapshots."
	return p.printPage(ans, next)
}

type snapshotsListCommand struct {
	deps

	pages paging
	name  string
}

func (c *snapshotsListCommand) command() *line.Command {
	return &line.Command{
		Name: "list", Aliases: []string{"ls"}, Near: []string{"get", "status"}, Short: "List the snapshots of a project",
		Options: func(flags *pflag.FlagSet) {
			line.Option(flags, &c.name, "name", "", "name", "", "Only the snapshots of this sandbox", line.ParseAny)
			c.pages.define(flags, "snapshots")
		},
		Example: "snapshots ls --name my-app", Doc: []snapshotView{}, Run: c.run,
	}
}

func (c *snapshotsListCommand) run(cmd *cobra.Command, _ []string) error {
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	stop := c.screen.Spin("Fetching snapshots...")
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
	return c.printSnapshots(mapped(found, viewSnapshot), next)
}

// snapshotArg is an argument that names a snapshot.
var snapshotArg = line.Argument{Name: "snapshot_id", Text: "The ID of a snapshot, which begins with snap_", Parse: line.Checked(line.ParseSnapshotID)}

type snapshotsGetCommand struct{ deps }

func (c *snapshotsGetCommand) command() *line.Command {
	return &line.Command{
		Name: "get", Near: []string{"show", "inspect"}, Short: "Show a snapshot", Args: []line.Argument{snapshotArg},
		Example: "snapshots get snap_0123", Doc: snapshotView{}, Run: c.run,
	}
}

func (c *snapshotsGetCommand) run(cmd *cobra.Command, args []string) error {
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	stop := c.screen.Spin("Fetching snapshot...")
	snap, err := client.GetSnapshot(cmd.Context(), args[0])
	stop()
	if err != nil {
		return err
	}
	v := viewSnapshot(snap.Info())
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: v, Names: []string{v.ID}})
	}
	return c.printSnapshots([]snapshotView{v}, "")
}

type snapshotsDeleteCommand struct{ deps }

func (c *snapshotsDeleteCommand) command() *line.Command {
	return &line.Command{
		Name: "delete", Aliases: []string{"rm", "remove"}, Near: []string{"destroy"}, Short: "Delete snapshots",
		Args:    []line.Argument{snapshotArg, {Name: "snapshot_id", Text: "More snapshots", Several: true, Parse: line.Checked(line.ParseSnapshotID)}},
		Example: "snapshots rm snap_0123", Doc: []string{}, Run: c.run,
	}
}

func (c *snapshotsDeleteCommand) run(cmd *cobra.Command, args []string) error {
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	return c.runTasks(distinct(args), "Deleting snapshot ", func(id string) error {
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
