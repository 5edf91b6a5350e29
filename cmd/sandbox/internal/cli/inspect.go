package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

type inspectView struct {
	Sandbox sandboxView `json:"sandbox"`
	Session sessionView `json:"session"`
}

type inspectCommand struct{ app *app }

func (c *inspectCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "inspect <name>", Aliases: []string{"get"}, Short: "Show everything about a sandbox and its session, as JSON", GroupID: groupManage,
		Args: c.app.oneName(),
		RunE: c.run,
	}
}

func (c *inspectCommand) run(cmd *cobra.Command, args []string) error {
	sb, err := c.app.getOnly(cmd.Context(), args, false)
	if err != nil {
		return err
	}
	v := inspectView{Sandbox: viewHandle(sb)}
	if s := sb.CurrentSession(); s != nil {
		v.Session = viewSession(s.Info())
	}
	return c.app.print(output{doc: v, names: []string{sb.Name()}})
}

type startCommand struct{ app *app }

func (c *startCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "start <name> [...name]", Short: "Start sandboxes that are stopped", GroupID: groupManage, Args: cobra.ArbitraryArgs,
		RunE: c.run,
	}
}

func (c *startCommand) run(cmd *cobra.Command, args []string) error {
	names, _, err := c.app.chosen(cmd.Context(), cmd, args, &selection{})
	if err != nil {
		return err
	}
	if _, err := c.app.connect(cmd.Context()); err != nil {
		return err
	}
	return c.app.tasks(names, "Starting sandbox ", func(name string) error {
		_, err := c.app.get(cmd.Context(), name, true)
		return err
	})
}

type extendCommand struct{ app *app }

func (c *extendCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "extend <name> <num UNIT>", Short: "Extend the timeout of a running session", GroupID: groupManage,
		Args: positionals("name", "num UNIT"),
		RunE: c.run,
	}
}

func (c *extendCommand) run(cmd *cobra.Command, args []string) error {
	d, err := parseTimeout(args[1])
	if err != nil {
		return usagef("%v", err)
	}
	if err := rehearseUpdate(cmd.Context(), &sandbox.UpdateOptions{Timeout: d}); err != nil {
		_, why, _ := strings.Cut(err.Error(), "Timeout: ")
		return usagef("%s: %s", args[1], first(why, err.Error()))
	}
	c.app.doubtTimeout(args[1])
	s, err := c.app.session(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if err := s.ExtendTimeout(cmd.Context(), d); err != nil {
		return err
	}
	i := s.Info()
	end := i.StartedAt.Add(i.Timeout)
	if c.app.opts.structured() {
		return c.app.print(output{doc: viewSession(i), names: []string{i.ID}})
	}
	fmt.Fprintf(c.app.err, "The session ends %s, at %s.\n", distance(&end, c.app.now()), end.Local().Format(time.TimeOnly))
	return nil
}

type rollbackCommand struct {
	app *app

	back int
}

func (c *rollbackCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollback <name> [snapshot_id|-N]", Short: "Go back to an earlier snapshot of a sandbox", GroupID: groupManage,
		Long: "Go back to an earlier snapshot of a sandbox: the one before the current one, the Nth before it with -N, or any by its ID. " +
			"A running session is stopped first, and what it has changed is kept in a snapshot of its own.",
		Example: "  $ sandbox rollback my-app\n  $ sandbox rollback my-app -2\n  $ sandbox rollback my-app snap_abc123",
		Args:    positionals("name", "[snapshot_id|-N]"),
	}
	option(cmd.Flags(), &c.back, "back", "", "N", "1", "How many snapshots to go back; -N is short for it", parsePositive)
	cmd.RunE = c.run
	return cmd
}

func (c *rollbackCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	name, err := c.app.checkedName(args[0])
	if err != nil {
		return err
	}
	id := ""
	if len(args) == 2 {
		if n, ok := strings.CutPrefix(args[1], "-"); ok {
			c.back, err = parsePositive(n)
		} else {
			id, err = parseSnapshotID(args[1])
		}
		if err != nil {
			return usagef("%v", err)
		}
	}
	sb, err := c.app.get(ctx, name, false)
	if err != nil {
		return err
	}
	// Nothing is stopped for a snapshot that can't be gone back to.
	if id == "" {
		id, err = c.earlier(cmd, sb, c.back)
	} else {
		err = c.usable(ctx, id)
	}
	if err != nil {
		return err
	}
	if sb.Status() == sandbox.StatusRunning {
		if err := c.app.confirm(ctx, fmt.Sprintf("%s is running. Stop it and go back?", name)); err != nil {
			return err
		}
		if _, err := sb.Stop(ctx, nil); err != nil {
			return err
		}
	}
	if err := sb.Update(ctx, &sandbox.UpdateOptions{CurrentSnapshotID: id}); err != nil {
		return err
	}
	if c.app.opts.structured() {
		return c.app.print(output{doc: viewHandle(sb), names: []string{id}})
	}
	fmt.Fprintf(c.app.err, "%s starts from %s next time.\n", name, id)
	_, err = fmt.Fprintln(c.app.out, id)
	return err
}

// usable refuses a snapshot that is not there, or not whole.
func (c *rollbackCommand) usable(ctx context.Context, id string) error {
	client, err := c.app.connect(ctx)
	if err != nil {
		return err
	}
	snap, err := client.GetSnapshot(ctx, id)
	if err != nil {
		return err
	}
	if status := snap.Info().Status; status != "created" {
		return fmt.Errorf("snapshot %s is in status %q and can't be gone back to", id, status)
	}
	return nil
}

// earlier is the snapshot that lies so many before the one that the sandbox was
// started from, or would be.
func (c *rollbackCommand) earlier(cmd *cobra.Command, sb *sandbox.Sandbox, back int) (string, error) {
	var ids []string
	for s, err := range sb.ListSnapshots(cmd.Context(), &sandbox.PageOptions{SortOrder: sandbox.Descending}) {
		if err != nil {
			return "", err
		}
		if s.Status == "created" {
			ids = append(ids, s.ID)
		}
	}
	i := slices.Index(ids, sb.Info().CurrentSnapshotID) + back
	if i >= len(ids) {
		return "", &exitError{code: exitNotFound, err: withHint(fmt.Errorf("sandbox %s has no snapshot that early", sb.Name()),
			"see %s", try("snapshots list --name %s", sb.Name()))}
	}
	return ids[i], nil
}
