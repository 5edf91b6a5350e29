package cli

import (
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

func (a *app) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect <name>", Aliases: []string{"get"}, Short: "Show everything about a sandbox and its session, as JSON", GroupID: groupManage,
		Args: a.nameOrActive(),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.getOnly(cmd.Context(), args, false)
			if err != nil {
				return err
			}
			v := inspectView{Sandbox: viewHandle(sb)}
			if s := sb.CurrentSession(); s != nil {
				v.Session = viewSession(s.Info())
			}
			return a.print(output{doc: v, names: []string{sb.Name()}})
		},
	}
}

func (a *app) startCommand() *cobra.Command {
	return &cobra.Command{
		Use: "start <name> [...name]", Short: "Start sandboxes that are stopped", GroupID: groupManage, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, _, err := a.chosen(cmd.Context(), cmd, args, &selection{})
			if err != nil {
				return err
			}
			return a.tasks(names, "Starting sandbox ", func(name string) error {
				_, err := a.get(cmd.Context(), name, true)
				return err
			})
		},
	}
}

func (a *app) extendCommand() *cobra.Command {
	return &cobra.Command{
		Use: "extend <name> <num UNIT>", Short: "Extend the timeout of a running session", GroupID: groupManage,
		Args: positionals("name", "num UNIT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := parseDuration(args[1])
			if err != nil {
				return usagef("%v", err)
			}
			a.doubtTimeout(args[1])
			s, err := a.session(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := s.ExtendTimeout(cmd.Context(), d); err != nil {
				return err
			}
			i := s.Info()
			end := i.StartedAt.Add(i.Timeout)
			if a.opts.structured() {
				return a.print(output{doc: viewSession(i), names: []string{i.ID}})
			}
			fmt.Fprintf(a.err, "The session ends %s, at %s.\n", distance(&end, a.now()), end.Local().Format(time.TimeOnly))
			return nil
		},
	}
}

func (a *app) rollbackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollback <name> [snapshot_id|-N]", Short: "Go back to an earlier snapshot of a sandbox", GroupID: groupManage,
		Long: "Go back to an earlier snapshot of a sandbox: the one before the current one, the Nth before it with -N, or any by its ID. " +
			"A running session is stopped first, and what it has changed is kept in a snapshot of its own.",
		Example: "  $ sandbox rollback my-app\n  $ sandbox rollback my-app -2\n  $ sandbox rollback my-app snap_abc123",
		Args:    cobra.RangeArgs(1, 2),
	}
	var back int
	option(cmd.Flags(), &back, "back", "", "N", "1", "How many snapshots to go back; -N is short for it", parsePositive)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		name, err := a.resolveName(args[0])
		if err != nil {
			return err
		}
		id := ""
		if len(args) == 2 {
			if n, ok := strings.CutPrefix(args[1], "-"); ok {
				back, err = parsePositive(n)
			} else {
				id, err = parseSnapshotID(args[1])
			}
			if err != nil {
				return usagef("%v", err)
			}
		}
		sb, err := a.get(ctx, name, false)
		if err != nil {
			return err
		}
		if sb.Status() == sandbox.StatusRunning {
			if err := a.confirm(ctx, fmt.Sprintf("%s is running. Stop it and go back?", name)); err != nil {
				return err
			}
			// The snapshot that the stop makes is one more to go back over.
			result, err := sb.Stop(ctx, nil)
			if err != nil {
				return err
			}
			if result.Snapshot != nil {
				back++
			}
			if err := sb.Refresh(ctx); err != nil {
				return err
			}
		}
		if id == "" {
			if id, err = a.earlier(cmd, sb, back); err != nil {
				return err
			}
		}
		if err := sb.Update(ctx, &sandbox.UpdateOptions{CurrentSnapshotID: id}); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%s starts from %s next time.\n", name, id)
		_, err = fmt.Fprintln(a.shown(), id)
		return err
	}
	return cmd
}

// earlier is the snapshot that lies so many before the present one.
func (a *app) earlier(cmd *cobra.Command, sb *sandbox.Sandbox, back int) (string, error) {
	var ids []string
	for s, err := range sb.ListSnapshots(cmd.Context(), &sandbox.ListOptions{SortOrder: sandbox.Descending}) {
		if err != nil {
			return "", err
		}
		if s.Status == sandbox.SnapshotCreated {
			ids = append(ids, s.ID)
		}
	}
	i := slices.Index(ids, sb.Info().CurrentSnapshotID) + back
	if i >= len(ids) {
		return "", &exitError{code: exitNotFound, err: withHint(fmt.Errorf("sandbox %s has no snapshot that early", sb.Name()),
			"see sandbox snapshots list --name %s", sb.Name())}
	}
	return ids[i], nil
}
