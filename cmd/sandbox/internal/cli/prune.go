package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

// errInUse is why something that was to be removed is left alone.
var errInUse = &exitError{code: exitConflict, err: errors.New("it has been used since it was found, and is left alone")}

// pruneCommand removes sandboxes that are stopped, and their snapshots.
type pruneCommand struct {
	app *app

	sel       selection
	snapshots bool // also automatic snapshots of the sandboxes
	manual    bool // also those that somebody has taken
	dryRun    bool

	owners map[string]string // the sandboxes of the snapshots that were found
}

// pruned is what goes.
type pruned struct {
	Sandboxes []string `json:"sandboxes"`
	Snapshots []string `json:"snapshots"`
}

func (p *pruned) all() []string { return slices.Concat(p.Sandboxes, p.Snapshots) }

func (p *pruneCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove sandboxes that are stopped, and their snapshots", GroupID: groupManage, Args: positionals(),
		Long: "Remove sandboxes that are stopped, narrowed by the options, and with --snapshots also the snapshots that were taken when they stopped. " +
			"A snapshot that another sandbox or snapshot was made from stays. It asks before it does so, and leaves alone what is in use again by then; " +
			"--dry-run only shows what would go.",
		Example: "  $ sandbox prune --dry-run --older-than 7d\n  $ sandbox prune --older-than 7d --tag env=ci --snapshots --yes",
		RunE:    p.run,
	}
	flags := cmd.Flags()
	options(flags, &p.sel.tags, "tag", "t", "key=value", "Only sandboxes with this tag (repeatable)", parsePair)
	option(flags, &p.sel.namePrefix, "name-prefix", "", "str", "", "Only sandboxes whose name begins with this", parseText)
	option(flags, &p.sel.olderThan, "older-than", "", "duration", "", "Only what was last in use longer ago", parseAge)
	toggle(flags, &p.snapshots, "snapshots", "", "Also delete the snapshots taken when these sandboxes stopped")
	toggle(flags, &p.manual, "manual-snapshots", "", "Like --snapshots, and also those taken by sandbox snapshot")
	toggle(flags, &p.dryRun, "dry-run", "", "Show what would be removed")
	return cmd
}

func (p *pruneCommand) run(cmd *cobra.Command, _ []string) error {
	ctx := cmd.Context()
	p.sel.statuses = []string{string(sandbox.StatusStopped), string(sandbox.StatusFailed), string(sandbox.StatusAborted)}
	found, err := p.app.find(ctx, &p.sel)
	if err != nil {
		return err
	}
	var snapshots []sandbox.SnapshotInfo
	if p.snapshots || p.manual {
		if snapshots, err = p.ownSnapshots(ctx, found); err != nil {
			return err
		}
		if snapshots, err = p.unused(ctx, snapshots, found); err != nil {
			return err
		}
	}
	goes := pruned{
		Sandboxes: mapped(found, func(i sandbox.Info) string { return i.Name }),
		Snapshots: mapped(snapshots, func(s sandbox.SnapshotInfo) string { return s.ID }),
	}
	what := fmt.Sprintf("%s and %s", plural(len(goes.Sandboxes), "sandbox", "sandboxes"), plural(len(goes.Snapshots), "snapshot", "snapshots"))
	if p.dryRun {
		return p.show(goes, what)
	}
	if len(goes.all()) == 0 {
		fmt.Fprintln(p.app.err, "There is nothing to remove.")
		return nil
	}
	if err := p.app.confirm(ctx, "Remove "+what+" for good: "+strings.Join(goes.all(), ", ")+"?"); err != nil {
		return err
	}
	removed, err := p.app.removeFound(ctx, found, &p.sel, false)
	gone := pruned{mapped(removed, func(i sandbox.Info) string { return i.Name }), []string{}}
	if len(snapshots) > 0 {
		var serr error
		gone.Snapshots, serr = p.deleteSnapshots(ctx, snapshots, removed)
		err = errors.Join(err, serr)
	}
	if p.app.opts.structured() {
		return errors.Join(err, p.app.print(output{doc: gone, names: gone.all()}))
	}
	return errors.Join(err, p.app.printDone(gone.all()))
}

func (p *pruneCommand) show(goes pruned, what string) error {
	if p.app.opts.structured() {
		return p.app.print(output{doc: goes, names: goes.all()})
	}
	fmt.Fprintf(p.app.err, "%s would be removed.\n", what)
	for _, n := range goes.all() {
		fmt.Fprintln(p.app.shown(), n)
	}
	return nil
}

// ownSnapshots are those that the sandboxes have made of themselves, of the kind
// that is asked for.
func (p *pruneCommand) ownSnapshots(ctx context.Context, of []sandbox.Info) ([]sandbox.SnapshotInfo, error) {
	var own []sandbox.SnapshotInfo
	p.owners = map[string]string{}
	for _, i := range of {
		for s, err := range p.app.client.ListSnapshots(ctx, &sandbox.ListSnapshotsOptions{Sandbox: i.Name}) {
			if err != nil {
				return nil, err
			}
			// An earlier sandbox of that name may have left some.
			asked := s.CreationMethod == "automatic" || p.manual && s.CreationMethod == "manual"
			if asked && s.Status == "created" && !s.CreatedAt.Before(i.CreatedAt) {
				own = append(own, s)
				p.owners[s.ID] = i.Name
			}
		}
	}
	return own, nil
}

// unused are those snapshots that nothing which stays was made from, when the
// sandboxes have gone.
func (p *pruneCommand) unused(ctx context.Context, own []sandbox.SnapshotInfo, going []sandbox.Info) ([]sandbox.SnapshotInfo, error) {
	// The snapshots first: that of a sandbox that stops meanwhile is its current
	// one by the time that sandboxes are listed.
	var all []sandbox.SnapshotInfo
	for s, err := range p.app.client.ListSnapshots(ctx, nil) {
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	used := map[string]bool{}
	for i, err := range p.app.client.List(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(going, func(g sandbox.Info) bool { return sameSandbox(g, i) }) {
			used[i.CurrentSnapshotID] = true
		}
	}
	return unusedSnapshots(own, all, used, p.sel.olderThan, p.app.now()), nil
}

// unusedSnapshots are those of own that are not used, that no snapshot which
// stays comes from, and that were not used after the last snapshot of their own
// line was taken: what was made from them then may have left no other trace.
func unusedSnapshots(own, all []sandbox.SnapshotInfo, used map[string]bool, olderThan time.Duration, now time.Time) []sandbox.SnapshotInfo {
	going := map[string]bool{}
	for _, s := range own {
		going[s.ID] = true
	}
	lastOwn := map[string]time.Time{}
	for _, s := range all {
		if going[s.ID] && s.CreatedAt.After(lastOwn[s.ParentID]) {
			lastOwn[s.ParentID] = s.CreatedAt
		}
	}
	for _, s := range all {
		last := s.LastUsedAt
		if last.IsZero() {
			last = s.CreatedAt
		}
		elsewhere := last.After(s.CreatedAt) && last.After(lastOwn[s.ID])
		if used[s.ID] || elsewhere || now.Sub(last) < olderThan {
			delete(going, s.ID)
		}
	}
	for kept := true; kept; {
		kept = false
		for _, s := range all {
			if going[s.ParentID] && !going[s.ID] && s.Status != "deleted" {
				delete(going, s.ParentID)
				kept = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(own), func(s sandbox.SnapshotInfo) bool { return !going[s.ID] })
}

// deleteSnapshots deletes those of the sandboxes that are gone and that nothing
// has been made from since they were found.
func (p *pruneCommand) deleteSnapshots(ctx context.Context, found []sandbox.SnapshotInfo, removed []sandbox.Info) ([]string, error) {
	found = slices.DeleteFunc(slices.Clone(found), func(s sandbox.SnapshotInfo) bool {
		return !slices.ContainsFunc(removed, func(i sandbox.Info) bool { return i.Name == p.owners[s.ID] })
	})
	still, err := p.unused(ctx, found, removed)
	if err != nil {
		return []string{}, err
	}
	ids := mapped(found, func(s sandbox.SnapshotInfo) string { return s.ID })
	return p.app.each(ids, "Deleting snapshot ", func(id string) error {
		if !slices.ContainsFunc(still, func(s sandbox.SnapshotInfo) bool { return s.ID == id }) {
			return errInUse
		}
		snap, err := p.app.client.GetSnapshot(ctx, id)
		if err != nil {
			return err
		}
		return snap.Delete(ctx)
	})
}

// sameSandbox reports whether a sandbox is the one that was found, and has not
// been started since.
func sameSandbox(found, now sandbox.Info) bool {
	return found.Name == now.Name && found.CreatedAt.Equal(now.CreatedAt) && found.CurrentSessionID == now.CurrentSessionID
}

// removeFound removes sandboxes that a selection has found, and returns those
// that are gone. What is no longer selected, or has been started since, is
// left alone, which is an error.
func (a *app) removeFound(ctx context.Context, found []sandbox.Info, sel *selection, orphans bool) ([]sandbox.Info, error) {
	match := sel.matcher(a.pairs(sel.tags, "--tag"), a.now())
	gone := make([]bool, len(found))
	names := mapped(found, func(i sandbox.Info) string { return i.Name })
	_, err := a.each(names, "Removing sandbox ", func(name string) error {
		i := slices.Index(names, name)
		sb, err := a.get(ctx, name, false)
		if err != nil {
			return err
		}
		if now := sb.Info(); !sameSandbox(found[i], now) || !match(now) {
			return errInUse
		}
		if err := sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: orphans}); err != nil {
			return err
		}
		gone[i] = true
		return nil
	})
	var removed []sandbox.Info
	for i, f := range found {
		if gone[i] {
			removed = append(removed, f)
		}
	}
	return removed, err
}
