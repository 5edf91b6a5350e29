package sandboxtest

import (
	"net/http"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

func (c *call) getSnapshot() error {
	sn, err := c.snapshot()
	if err != nil {
		return err
	}
	return c.respondSnapshot(sn)
}

func (c *call) deleteSnapshot() error {
	sn, err := c.snapshot()
	if err != nil {
		return err
	}
	if !c.s.store.RemoveSnapshot(sn) {
		return reply.BadRequest("Snapshot is already deleted.")
	}
	return c.respondSnapshot(sn)
}

type snapshotParams struct {
	Expiration *wire.Duration `json:"expiration"`
}

func (c *call) listSnapshots() error {
	project, err := c.listProject()
	if err != nil {
		return err
	}
	q := c.r.URL.Query()
	page, err := parsePage(q, "snapshots", wire.MaxPage)
	if err != nil {
		return err
	}
	items := c.s.store.ListSnapshots(project, q.Get("name"))
	items, pagination := paginate(page, "snapshots", items, func(s wire.Snapshot) sortKey { return sortKey{timeKey(s.CreatedAt), s.ID} })
	return c.respond(http.StatusOK, wire.SnapshotsPage{Snapshots: items, Pagination: pagination}, nil)
}

// snapshot returns the snapshot with the ID in the path.
func (c *call) snapshot() (*store.Snapshot, error) {
	id := c.values[0]
	if !wire.PlainName(id, wire.MaxName) {
		return nil, reply.Invalid("`snapshotId` should match pattern \"%s\".", namePattern)
	}
	sn := c.s.store.Snapshot(id)
	if sn == nil {
		return nil, reply.ErrSnapshotNotFound
	}
	if failure := wrongTeam(c.r, sn.Project()); failure != nil {
		return nil, failure
	}
	return sn, nil
}

func (c *call) respondSnapshot(sn *store.Snapshot) error {
	return c.respond(http.StatusOK, wire.SnapshotResponse{Snapshot: sn.Describe()}, nil)
}

// createSnapshot handles POST …/snapshot.
func (c *call) createSnapshot() error {
	var p snapshotParams
	sess, err := c.sessionAndBody(&p)
	if err != nil {
		return err
	}
	expiration := p.Expiration.Std()
	if expiration != nil {
		if err := checkExpiration("expiration", *expiration); err != nil {
			return err
		}
	}
	if c.version >= 3 && expiration == nil {
		expiration = new(store.ShortExpiration)
	}
	resp, err := sess.StopWithSnapshot(c.ctx, expiration)
	return c.respond(http.StatusCreated, resp, err)
}
