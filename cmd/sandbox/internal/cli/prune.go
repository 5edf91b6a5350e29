package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

// errInUse is why something that was to be removed is left alone.
var errInUse = &exitError{code: exitConflict, err: errors.New("it has been used since it was found, and is left alone")}

// snapshotsPruneCommand deletes the snapshots that sandboxes have left.
type snapshotsPruneCommand struct {
	app *app

	olderThan time.Duration
	manual    bool // also those that somebody has taken
	dryRun    bool
}

func (c *snapshotsPruneCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete the snapshots of sandboxes that are gone", Args: positionals(),
		Long: "Delete the snapshots that were taken when sandboxes stopped which are gone now. One that a sandbox starts from, or that another snapshot or " +
			"sandbox was made from, stays. It asks before it does so, and leaves alone what is in use by then; --dry-run only shows what would go. " +
			"For each sandbox of the project it makes a request.",
		Example: "  $ sandbox snapshots prune --dry-run\n  $ sandbox snapshots prune --older-than 7d --yes",
		RunE:    c.run,
	}
	flags := cmd.Flags()
	option(flags, &c.olderThan, "older-than", "", "duration", "", "Only what was last in use longer ago", parseAge)
	toggle(flags, &c.manual, "manual", "", "Also those taken by sandbox snapshot")
	toggle(flags, &c.dryRun, "dry-run", "", "Show what would be deleted")
	return cmd
}

func (c *snapshotsPruneCommand) run(cmd *cobra.Command, _ []string) error {
	ctx := cmd.Context()
	if _, err := c.app.connect(ctx); err != nil {
		return err
	}
	done := c.app.spin("Fetching snapshots...")
	found, err := c.unused(ctx)
	done()
	if err != nil {
		return err
	}
	ids := mapped(found, func(s sandbox.SnapshotInfo) string { return s.ID })
	what := plural(len(ids), "snapshot", "snapshots")
	if c.dryRun {
		return c.app.wouldBe("deleted", what, ids)
	}
	if len(ids) > 0 {
		if err := c.app.confirm(ctx, "Delete "+what+" for good: "+strings.Join(ids, ", ")+"?"); err != nil {
			return err
		}
	}
	still := sync.OnceValues(func() ([]sandbox.SnapshotInfo, error) { return c.unused(ctx) })
	return c.app.tasks(ids, "Deleting snapshot ", func(id string) error {
		unused, err := still()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(unused, func(s sandbox.SnapshotInfo) bool { return s.ID == id }) {
			return errInUse
		}
		snap, err := c.app.client.GetSnapshot(ctx, id)
		if err != nil {
			return err
		}
		return snap.Delete(ctx)
	})
}

// unused are the snapshots that go.
func (c *snapshotsPruneCommand) unused(ctx context.Context) ([]sandbox.SnapshotInfo, error) {
	// The snapshots first: that of a sandbox that stops meanwhile is its current
	// one by the time that sandboxes are listed.
	var all []sandbox.SnapshotInfo
	left := map[string]sandbox.SnapshotInfo{}
	for s, err := range c.app.client.ListSnapshots(ctx, nil) {
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		if s.Status == "created" && (s.CreationMethod == "automatic" || c.manual && s.CreationMethod == "manual") {
			left[s.ID] = s
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	used := map[string]bool{}
	var names []string
	for i, err := range c.app.client.List(ctx, nil) {
		if err != nil {
			return nil, err
		}
		used[i.CurrentSnapshotID] = true
		names = append(names, i.Name)
	}
	theirs, errs := forEach(names, func(_ int, name string) (ids []string, err error) {
		for s, err := range c.app.client.ListSnapshots(ctx, &sandbox.ListSnapshotsOptions{Sandbox: name}) {
			if err != nil {
				return nil, fmt.Errorf("the snapshots of %s: %w", name, err)
			}
			ids = append(ids, s.ID)
		}
		return ids, nil
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(theirs...) {
		delete(left, id)
	}
	own := slices.DeleteFunc(slices.Clone(all), func(s sandbox.SnapshotInfo) bool { return left[s.ID].ID == "" })
	return unusedSnapshots(own, all, used, c.olderThan, c.app.now()), nil
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
