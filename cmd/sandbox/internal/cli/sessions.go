package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

type sessionsCommand struct{ deps }

func (c *sessionsCommand) command() *line.Command {
	return &line.Command{Name: "sessions", Short: "Manage sessions", Sub: describe(&sessionsListCommand{deps: c.deps})}
}

type sessionsListCommand struct {
	deps

	pages paging
	all   bool
}

func (c *sessionsListCommand) command() *line.Command {
	return &line.Command{
		Name: "list", Aliases: []string{"ls"}, Near: []string{"get", "status"}, Short: "List the sessions of a sandbox", Args: []line.Argument{line.NameArg},
		Options: func(flags *pflag.FlagSet) {
			line.Toggle(flags, &c.all, "all", "a", "Show all sessions (default shows just running)")
			c.pages.define(flags, "sessions")
		},
		Example: "sessions ls my-app --all", Doc: []sessionView{}, Run: c.run,
	}
}

func (c *sessionsListCommand) run(cmd *cobra.Command, args []string) error {
	sb, err := c.account.Named(cmd.Context(), args[0], false)
	if err != nil {
		return err
	}
	stop := c.screen.Spin("Fetching sessions...")
	found, next, err := collect(cmd.Context(), &c.pages, func(s sandbox.SessionInfo) string { return s.ID },
		func(s sandbox.SessionInfo) bool { return c.all || s.Status == sandbox.StatusRunning },
		func(ctx context.Context, limit int, cursor string) (*sandbox.Page[sandbox.SessionInfo], error) {
			return sb.ListSessionsPage(ctx, &sandbox.PageOptions{Limit: limit, Cursor: cursor, SortOrder: sandbox.SortOrder(c.pages.sortOrder)})
		})
	stop()
	if err != nil {
		return err
	}
	ans := screen.List(mapped(found, viewSession), func(v sessionView) string { return v.ID },
		func(views []sessionView) *table.Table { return c.sessionTable(views, c.all) })
	ans.Empty = "No sessions."
	return c.printPage(ans, next)
}

func (c *sessionsListCommand) sessionTable(views []sessionView, usage bool) *table.Table {
	header := []string{"ID", "STATUS", "CREATED", "REGION", "MEMORY", "VCPUS", "RUNTIME", "TIMEOUT", "DURATION", "SNAPSHOT"}
	if usage {
		header = append(header, "CPU", "NETWORK (OUT/IN)")
	}
	t := table.New(header...)
	t.Least = []string{"SNAPSHOT", "NETWORK (OUT/IN)", "CPU", "VCPUS", "REGION", "MEMORY", "RUNTIME", "TIMEOUT", "DURATION", "CREATED"}
	now := c.screen.Now()
	for _, v := range views {
		timeout := "-"
		if v.CreatedAt != nil {
			end := v.CreatedAt.Add(time.Duration(v.Timeout) * time.Millisecond)
			timeout = relativeTime(&end, now)
		}
		row := []any{
			v.ID, statusCell(v.Status), relativeTime(v.CreatedAt, now), orDash(v.Region), numberOrDash(v.Memory, units.Megabytes), numberOrDash(v.VCPUs, strconv.Itoa), orDash(v.Runtime),
			timeout, cpuText(v.Duration), orDash(v.SourceSnapshotID),
		}
		if usage {
			row = append(row, cpuText(v.ActiveCPU), networkText(v.NetworkTransfer.Egress, v.NetworkTransfer.Ingress))
		}
		t.Row(row...)
	}
	return t
}
