package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

// pruning is what prune removes.
type pruning struct {
	Sandboxes []string `json:"sandboxes"`
	Snapshots []string `json:"snapshots"`
}

func (a *app) pruneCommand() *cobra.Command {
	var (
		sel       selection
		dryRun    bool
		snapshots bool
	)
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove sandboxes that are stopped, and snapshots that no sandbox uses", GroupID: groupManage, Args: positionals(),
		Long: "Remove sandboxes that are stopped, narrowed by the options, and with --snapshots also snapshots that no sandbox starts from. " +
			"It asks before it does so; --dry-run only shows what would go.",
		Example: "  $ sandbox prune --dry-run --older-than 7d\n  $ sandbox prune --older-than 7d --tag env=ci --snapshots --yes",
	}
	options(cmd.Flags(), &sel.tags, "tag", "t", "key=value", "Only sandboxes with this tag (repeatable)", parsePair)
	option(cmd.Flags(), &sel.namePrefix, "name-prefix", "", "str", "", "Only sandboxes whose name begins so", parseText)
	option(cmd.Flags(), &sel.olderThan, "older-than", "", "duration", "", "Only what was last in use longer ago", parseDuration)
	toggle(cmd.Flags(), &snapshots, "snapshots", "", "Also remove snapshots that no sandbox starts from")
	toggle(cmd.Flags(), &dryRun, "dry-run", "", "Show what would be removed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		sel.statuses = []string{string(sandbox.StatusStopped), string(sandbox.StatusFailed), string(sandbox.StatusAborted)}
		found, err := a.find(ctx, &sel)
		if err != nil {
			return err
		}
		p := pruning{Sandboxes: mapped(found, func(i sandbox.Info) string { return i.Name }), Snapshots: []string{}}
		if snapshots {
			if p.Snapshots, err = a.orphans(ctx, p.Sandboxes, sel.olderThan); err != nil {
				return err
			}
		}
		what := fmt.Sprintf("%s and %s", plural(len(p.Sandboxes), "sandbox", "sandboxes"), plural(len(p.Snapshots), "snapshot", "snapshots"))
		if dryRun {
			return a.showPruning(p, what)
		}
		if len(p.Sandboxes)+len(p.Snapshots) == 0 {
			fmt.Fprintln(a.err, "There is nothing to remove.")
			return nil
		}
		if err := a.confirm(ctx, "Remove "+what+" for good?"); err != nil {
			return err
		}
		if err := a.tasks(p.Sandboxes, "Removing sandbox ", func(name string) error { return a.remove(ctx, name, false) }); err != nil {
			return err
		}
		return a.tasks(p.Snapshots, "Deleting snapshot ", func(id string) error {
			snap, err := a.client.GetSnapshot(ctx, id)
			if err != nil {
				return err
			}
			return snap.Delete(ctx)
		})
	}
	return cmd
}

func (a *app) showPruning(p pruning, what string) error {
	if a.opts.structured() {
		return a.print(output{doc: p, names: append(append([]string{}, p.Sandboxes...), p.Snapshots...)})
	}
	fmt.Fprintf(a.err, "%s would be removed.\n", what)
	for _, n := range append(append([]string{}, p.Sandboxes...), p.Snapshots...) {
		fmt.Fprintln(a.out, n)
	}
	return nil
}

// orphans are the snapshots that no sandbox starts from, those left out of
// account that are going to be removed.
func (a *app) orphans(ctx context.Context, going []string, olderThan time.Duration) ([]string, error) {
	gone := map[string]bool{}
	for _, n := range going {
		gone[n] = true
	}
	// The snapshots first: the one of a sandbox that stops meanwhile is in no list.
	ids := []string{}
	for s, err := range a.client.ListSnapshots(ctx, nil) {
		if err != nil {
			return nil, err
		}
		last := s.LastUsedAt
		if last.IsZero() {
			last = s.CreatedAt
		}
		if s.Status == sandbox.SnapshotCreated && a.now().Sub(last) >= olderThan {
			ids = append(ids, s.ID)
		}
	}
	used := map[string]bool{}
	for i, err := range a.client.List(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if !gone[i.Name] {
			used[i.CurrentSnapshotID] = true
		}
	}
	return slices.DeleteFunc(ids, func(id string) bool { return used[id] }), nil
}
