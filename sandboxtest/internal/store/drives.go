package store

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

const (
	defaultDriveSize = 1 << 40

	MountReadWrite = "read-write"
	MountSnapshot  = "snapshot"
)

// drive is a directory that outlives sandboxes. A session that has mounted it to read and
// write works on a separate copy, which becomes the drive's content at the end of the
// session. Until then forks and snapshot mounts see the previous content. The store's
// lock guards its fields.
type drive struct {
	rec driveRecord
	// attached is the session that has mounted it to read and write.
	attached *Session
	// readers counts the forks and the starting sessions that are reading its files.
	readers int
	// copying is set for a fork until its files exist.
	copying bool
}

func (d *drive) describeLocked() wire.Drive {
	w := wire.Drive{
		ID: d.rec.ID, Name: d.rec.Key.Name, ProjectID: d.rec.Key.Project, Region: d.rec.Region, MaxSizeBytes: d.rec.MaxSize,
		CreatedAt: wire.At(d.rec.CreatedAt), UpdatedAt: wire.At(d.rec.UpdatedAt), ParentDriveID: d.rec.Parent, RootDriveID: d.rec.Root,
	}
	if d.attached != nil {
		w.CurrentSessionID, w.CurrentSandboxName = d.attached.rec.ID, d.attached.sb.rec.Key.Name
	}
	return w
}

func driveNotFound(name string) *reply.Error {
	return reply.NotFound("Drive '%.100s' not found.", name)
}

func driveNotReady(d *drive) *reply.Error {
	return reply.Fail(http.StatusConflict, "conflict", "The drive '%s' is still being made.", d.rec.Key.Name)
}

// findDriveLocked returns the drive with the given name or ID. If project is empty, it
// searches all projects.
func (st *Store) findDriveLocked(project, nameOrID string) *drive {
	if d := st.drives[Key{project, nameOrID}]; d != nil {
		return d
	}
	for key, d := range st.drives {
		if (project == "" || key.Project == project) && (d.rec.ID == nameOrID || project == "" && key.Name == nameOrID) {
			return d
		}
	}
	return nil
}

// checkMounts checks that the drives of the settings exist and are in the same region.
func (st *Store) checkMounts(project string, set *Settings) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(set.Mounts)) {
		name := set.Mounts[p].Drive
		d := st.findDriveLocked(project, name)
		switch {
		case d == nil:
			return driveNotFound(name)
		case d.rec.Region != set.Region:
			return reply.BadRequest("The drive '%s' is in the region '%s', the sandbox in '%s'.", name, d.rec.Region, set.Region)
		}
	}
	return nil
}

// attach reserves the drives of the session, and returns their mounts.
func (sess *Session) attach(mounts map[string]wire.Mount) ([]backend.Mount, error) {
	project := sess.sb.rec.Key.Project
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	out := make([]backend.Mount, 0, len(mounts))
	for _, p := range slices.Sorted(maps.Keys(mounts)) {
		m := mounts[p]
		d := st.findDriveLocked(project, m.Drive)
		var err error
		switch {
		case d == nil:
			err = driveNotFound(m.Drive)
		case d.copying:
			err = driveNotReady(d)
		case m.Mode == MountReadWrite && d.attached != nil:
			err = reply.Fail(http.StatusConflict, "conflict", "The drive '%s' is attached to the sandbox '%s'.", d.rec.Key.Name, d.attached.sb.rec.Key.Name)
		}
		if err != nil {
			sess.detachLocked()
			return nil, err
		}
		if m.Mode == MountReadWrite {
			d.attached = sess
			sess.drives = append(sess.drives, d)
		}
		d.readers++ // until the machine has mounted it
		sess.mounting = append(sess.mounting, d)
		out = append(out, backend.Mount{Path: p, Drive: d.rec.ID, Keep: m.Mode == MountReadWrite})
	}
	return out, nil
}

// endMounting records that the session's machine has mounted its drives.
func (sess *Session) endMounting() {
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.endMountingLocked()
}

func (sess *Session) endMountingLocked() {
	for _, d := range sess.mounting {
		d.readers--
	}
	sess.mounting = nil
}

// detach releases the session's drives.
func (sess *Session) detach() {
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.detachLocked()
}

func (sess *Session) detachLocked() {
	sess.endMountingLocked()
	for _, d := range sess.drives {
		d.attached = nil
	}
	sess.drives = nil
}

// GetOrCreateDrive returns the drive with a name, and whether it is new. region and size
// are the requested ones, if any.
func (st *Store) GetOrCreateDrive(key Key, region string, size *int64) (w wire.Drive, fresh bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if d := st.drives[key]; d != nil {
		if region != "" && region != d.rec.Region || size != nil && *size != d.rec.MaxSize {
			return w, false, reply.Fail(http.StatusConflict, "conflict", "A drive with the name '%s' already exists with another region or size.", key.Name)
		}
		return d.describeLocked(), false, nil
	}
	d := st.newDrive(key, cmp.Or(region, defaultRegion), defaultDriveSize)
	if size != nil {
		d.rec.MaxSize = *size
	}
	if err := st.Host.MakeDrive(d.rec.ID); err != nil {
		return w, false, err
	}
	st.drives[d.rec.Key] = d
	st.changedLocked()
	return d.describeLocked(), true, nil
}

func (st *Store) newDrive(key Key, region string, size int64) *drive {
	now := st.Clock.Now()
	return &drive{rec: driveRecord{ID: newDriveID(), Key: key, Region: region, MaxSize: size, CreatedAt: now, UpdatedAt: now}}
}

// Drive returns the drive with a name or ID.
func (st *Store) Drive(project, nameOrID string) (w wire.Drive, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	d := st.findDriveLocked(project, nameOrID)
	if d == nil {
		return w, driveNotFound(nameOrID)
	}
	return d.describeLocked(), nil
}

// ListDrives returns the drives of a project, or of all if it is empty.
func (st *Store) ListDrives(project string) []wire.Drive {
	st.mu.Lock()
	defer st.mu.Unlock()
	items := []wire.Drive{}
	for key, d := range st.drives {
		if project == "" || key.Project == project {
			items = append(items, d.describeLocked())
		}
	}
	return items
}

// DeleteDrive deletes an unused drive.
func (st *Store) DeleteDrive(project, nameOrID string) (w wire.Drive, err error) {
	d, err := st.removeDrive(project, nameOrID)
	if err != nil {
		return w, err
	}
	_ = st.Flush() // it logs a failure; the handler saves again before it responds
	return d, nil
}

// removeDrive removes an unused drive from the store, and its files with the next save.
func (st *Store) removeDrive(project, nameOrID string) (w wire.Drive, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	d := st.findDriveLocked(project, nameOrID)
	switch {
	case d == nil:
		return w, driveNotFound(nameOrID)
	case d.copying:
		return w, driveNotReady(d)
	case d.readers > 0 && d.attached == nil:
		return w, reply.Fail(http.StatusConflict, "conflict", "The drive '%s' is being read, by a fork or a sandbox that starts.", d.rec.Key.Name)
	case d.attached != nil:
		return w, reply.Fail(http.StatusConflict, "conflict", "The drive '%s' is attached to a sandbox.", d.rec.Key.Name)
	}
	w = d.describeLocked()
	delete(st.drives, d.rec.Key)
	st.saver.removals = append(st.saver.removals, func() error { return st.Host.RemoveDrive(d.rec.ID) })
	st.changedLocked()
	return w, nil
}

// ForkDrive copies a drive of the same project.
func (st *Store) ForkDrive(ctx context.Context, nameOrID string, key Key) (w wire.Drive, err error) {
	st.mu.Lock()
	source := st.findDriveLocked(key.Project, nameOrID)
	switch {
	case source == nil:
		st.mu.Unlock()
		return w, driveNotFound(nameOrID)
	case source.copying:
		st.mu.Unlock()
		return w, driveNotReady(source)
	case st.drives[key] != nil:
		st.mu.Unlock()
		return w, reply.Fail(http.StatusConflict, "conflict", "A drive with the name '%s' already exists.", key.Name)
	}
	d := st.newDrive(key, source.rec.Region, source.rec.MaxSize)
	d.copying, d.rec.Parent, d.rec.Root = true, source.rec.ID, cmp.Or(source.rec.Root, source.rec.ID)
	source.readers++
	st.drives[key] = d
	st.mu.Unlock()
	err = st.Host.CopyDrive(ctx, source.rec.ID, d.rec.ID)
	st.mu.Lock()
	defer st.mu.Unlock()
	source.readers--
	d.copying = false
	if err != nil {
		delete(st.drives, key)
	}
	st.changedLocked()
	return d.describeLocked(), err
}
