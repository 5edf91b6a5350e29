package agent

import (
	"context"

	"github.com/go-vercel/sandbox"
)

func createSnapshot(ctx context.Context, c *call, _ *noInput) (Result, error) {
	snap, err := c.sb.Snapshot(ctx, nil)
	if err != nil {
		return Result{}, err
	}
	return Result{
		Text: "Saved. snapshot_id: " + oneLine(snap.ID()) + ". The sandbox stopped; the next call starts it again.",
		Data: map[string]any{"snapshot_id": snap.ID()},
	}, nil
}

type snapshotInput struct {
	ID string `json:"snapshot_id" is:"the snapshot, as create_snapshot has returned it"`
}

func restoreSnapshot(ctx context.Context, c *call, in *snapshotInput) (Result, error) {
	own := false
	for s, err := range c.sb.ListSnapshots(ctx, nil) {
		if err != nil {
			return Result{}, err
		}
		if own = s.ID == in.ID && s.Status == "created"; own {
			break
		}
	}
	if !own {
		return Result{}, modelErrorf("This sandbox has no snapshot %q.", oneLine(in.ID))
	}
	// Stop first. A stop saves the current files, and the next session would start from those.
	if _, err := c.sb.Stop(ctx, nil); err != nil {
		return Result{}, err
	}
	if err := c.sb.Update(ctx, &sandbox.UpdateOptions{CurrentSnapshotID: in.ID}); err != nil {
		return Result{}, err
	}
	return Result{Text: "The sandbox stopped, and has the files of " + oneLine(in.ID) + " from the next call on."}, nil
}
