package sandboxtest

import (
	"cmp"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

const (
	defaultDriveSize = 1 << 40
	driveBlock       = 4096 // of which the size of a drive is a multiple

	mountReadWrite = "read-write"
	mountSnapshot  = "snapshot"
)

// drive is a directory that outlives sandboxes. A session that has it mounted
// to read and write works on it apart, and the end of that session makes what it
// has written the drive's: until then forks and snapshot mounts see what was
// there before. Its fields are guarded by the store's lock.
type drive struct {
	id        string
	key       sandboxKey
	region    string
	maxSize   int64
	createdAt time.Time
	updatedAt time.Time
	// parent is the drive that it was forked from, root the first of that line.
	parent, root string
	// attached is the session that has it mounted to read and write.
	attached *session
	// busy counts what is about to read it: forks, and sessions that start.
	busy int
	// making says that it is a fork whose files are not there yet.
	making bool
	// deleted says that no request finds it anymore.
	deleted bool
}

func (d *drive) wireLocked() wire.Drive {
	w := wire.Drive{
		ID: d.id, Name: d.key.name, ProjectID: d.key.project, Region: d.region, MaxSizeBytes: d.maxSize,
		CreatedAt: wire.At(d.createdAt), UpdatedAt: wire.At(d.updatedAt), ParentDriveID: d.parent, RootDriveID: d.root,
	}
	if d.attached != nil {
		w.CurrentSessionID, w.CurrentSandboxName = d.attached.id, d.attached.sb.key.name
	}
	return w
}

// driveParams are those of a new drive.
type driveParams struct {
	ProjectID    string `json:"projectId"`
	Region       string `json:"region"`
	MaxSizeBytes *int64 `json:"maxSizeBytes"`
}

func (p *driveParams) check() error {
	if p.ProjectID == "" {
		return invalid("missing required property `projectId`.")
	}
	if p.Region != "" {
		if err := checkRegion("region", p.Region); err != nil {
			return err
		}
	}
	if p.MaxSizeBytes != nil && (*p.MaxSizeBytes < 1 || *p.MaxSizeBytes > wire.MaxDriveSize) {
		return invalid("`maxSizeBytes` should be between 1 and %d.", int64(wire.MaxDriveSize))
	}
	if p.MaxSizeBytes != nil && *p.MaxSizeBytes%driveBlock != 0 {
		return invalid("`maxSizeBytes` should be multiple of %d.", driveBlock)
	}
	return nil
}

func checkDriveName(name string) error {
	if !wire.PlainName(name, wire.MaxDriveName) {
		return invalid("`name` should match pattern \"%s\" and NOT be longer than %d characters.", namePattern, wire.MaxDriveName)
	}
	return nil
}

func driveNotFound(name string) *apiError { return notFound("Drive '%.100s' not found.", name) }

func driveInMaking(d *drive) *apiError {
	return fail(http.StatusConflict, "conflict", "The drive '%s' is still being made.", d.key.name)
}

// findDriveLocked gives the drive with that name or ID. Without a project it is
// looked for in all of them.
func (st *store) findDriveLocked(project, nameOrID string) *drive {
	if d := st.drives[sandboxKey{project, nameOrID}]; d != nil {
		return d
	}
	for key, d := range st.drives {
		if (project == "" || key.project == project) && (d.id == nameOrID || project == "" && key.name == nameOrID) {
			return d
		}
	}
	return nil
}

// getOrCreateDrive handles POST /v2/sandboxes/drives/{name}.
func (c *call) getOrCreateDrive() error {
	name := c.values[0]
	var p driveParams
	if err := c.decode(&p); err != nil {
		return err
	}
	if err := checkDriveName(name); err != nil {
		return err
	}
	var err error
	if p.ProjectID, err = c.inProject(p.ProjectID); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	st := c.s.store
	st.mu.Lock()
	d := st.drives[sandboxKey{p.ProjectID, name}]
	if d != nil {
		w := d.wireLocked()
		st.mu.Unlock()
		if p.Region != "" && p.Region != w.Region || p.MaxSizeBytes != nil && *p.MaxSizeBytes != w.MaxSizeBytes {
			return fail(http.StatusConflict, "conflict", "A drive with the name '%s' already exists with another region or size.", name)
		}
		writeJSON(c.w, http.StatusOK, wire.DriveResponse{Drive: w})
		return nil
	}
	d = c.newDrive(sandboxKey{p.ProjectID, name}, &p, defaultRegion, defaultDriveSize)
	if err := c.s.host.MakeDrive(d.id); err != nil {
		st.mu.Unlock()
		return err
	}
	st.drives[d.key] = d
	w := d.wireLocked()
	st.changedLocked(d)
	st.mu.Unlock()
	writeJSON(c.w, http.StatusCreated, wire.DriveResponse{Drive: w})
	return nil
}

func (c *call) newDrive(key sandboxKey, p *driveParams, region string, size int64) *drive {
	now := c.s.clock.Now()
	d := &drive{id: newDriveID(), key: key, region: region, maxSize: size, createdAt: now, updatedAt: now}
	if p.Region != "" {
		d.region = p.Region
	}
	if p.MaxSizeBytes != nil {
		d.maxSize = *p.MaxSizeBytes
	}
	return d
}

// getDrive handles GET /v2/sandboxes/drives/{nameOrId}.
func (c *call) getDrive() error {
	st := c.s.store
	st.mu.Lock()
	d := st.findDriveLocked(c.project(), c.values[0])
	if d == nil {
		st.mu.Unlock()
		return driveNotFound(c.values[0])
	}
	w := d.wireLocked()
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, wire.DriveResponse{Drive: w})
	return nil
}

// deleteDrive handles DELETE /v2/sandboxes/drives/{name}.
func (c *call) deleteDrive() error {
	st := c.s.store
	st.mu.Lock()
	d := st.findDriveLocked(c.project(), c.values[0])
	switch {
	case d == nil:
		st.mu.Unlock()
		return driveNotFound(c.values[0])
	case d.making:
		st.mu.Unlock()
		return driveInMaking(d)
	case d.busy > 0 && d.attached == nil:
		st.mu.Unlock()
		return fail(http.StatusConflict, "conflict", "The drive '%s' is being read, by a fork or a sandbox that starts.", d.key.name)
	case d.attached != nil:
		st.mu.Unlock()
		return fail(http.StatusConflict, "conflict", "The drive '%s' is attached to a sandbox.", d.key.name)
	}
	w := d.wireLocked()
	delete(st.drives, d.key)
	d.deleted = true
	st.saver.doomed = append(st.saver.doomed, func() error { return c.s.host.RemoveDrive(d.id) })
	st.changedLocked(d)
	st.mu.Unlock()
	_ = st.flush() // which the response waits for as well
	writeJSON(c.w, http.StatusOK, wire.DriveResponse{Drive: w})
	return nil
}

type forkDriveParams struct {
	Name string `json:"name"`
}

// forkDrive handles POST /v2/sandboxes/drives/{name}/fork: a copy under
// another name.
func (c *call) forkDrive() error {
	var p forkDriveParams
	if err := c.decode(&p); err != nil {
		return err
	}
	project, err := c.inProject(c.project())
	if err != nil {
		return err
	}
	if project == "" {
		return invalid("missing required property `projectId`.")
	}
	if err := checkDriveName(p.Name); err != nil {
		return err
	}
	st := c.s.store
	key := sandboxKey{project, p.Name}
	st.mu.Lock()
	source := st.findDriveLocked(project, c.values[0])
	switch {
	case source == nil:
		st.mu.Unlock()
		return driveNotFound(c.values[0])
	case source.making:
		st.mu.Unlock()
		return driveInMaking(source)
	case st.drives[key] != nil:
		st.mu.Unlock()
		return fail(http.StatusConflict, "conflict", "A drive with the name '%s' already exists.", p.Name)
	}
	d := c.newDrive(key, &driveParams{}, source.region, source.maxSize)
	d.making, d.parent, d.root = true, source.id, cmp.Or(source.root, source.id)
	source.busy++
	st.drives[key] = d
	st.mu.Unlock()
	ctx, cancel := c.detached()
	err = c.s.host.CopyDrive(ctx, source.id, d.id)
	cancel()
	st.mu.Lock()
	source.busy--
	d.making = false
	if err != nil {
		delete(st.drives, key)
		d.deleted = true
	}
	w := d.wireLocked()
	st.changedLocked(d)
	st.mu.Unlock()
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusCreated, wire.DriveResponse{Drive: w})
	return nil
}

// listDrives handles GET /v2/sandboxes/drives.
func (c *call) listDrives() error {
	q := c.r.URL.Query()
	by := q.Get("sortBy")
	if by == "" {
		by = "createdAt"
	}
	key := map[string]func(wire.Drive) string{
		"createdAt": func(d wire.Drive) string { return timeKey(d.CreatedAt) },
		"updatedAt": func(d wire.Drive) string { return timeKey(d.UpdatedAt) },
		"name":      func(d wire.Drive) string { return d.Name },
	}[by]
	if key == nil {
		return invalid("`sortBy` should be equal to one of the allowed values \"createdAt, updatedAt, name\".")
	}
	prefix := q.Get("namePrefix")
	if prefix != "" && by != "name" {
		return invalid("`namePrefix` is only valid when `sortBy` is `name`")
	}
	page, err := parsePage(q, "drives by "+by, wire.MaxPage)
	if err != nil {
		return err
	}
	project := q.Get("projectId")
	items := []wire.Drive{}
	st := c.s.store
	st.mu.Lock()
	for k, d := range st.drives {
		if (project == "" || k.project == project) && strings.HasPrefix(k.name, prefix) {
			items = append(items, d.wireLocked())
		}
	}
	st.mu.Unlock()
	items, pagination := cut(page, "drives by "+by, items, func(d wire.Drive) sortKey { return sortKey{key(d), d.ID} })
	writeJSON(c.w, http.StatusOK, wire.DrivesPage{Drives: items, Pagination: pagination})
	return nil
}

// mountParam is a mount in a request: without the leniency of clients towards
// older responses.
type mountParam wire.Mount

// checkMountParams checks mounts as far as they can be without knowing the
// drives, and gives them as they are kept.
func checkMountParams(mounts map[string]mountParam) (map[string]wire.Mount, error) {
	if len(mounts) > wire.MaxMounts {
		return nil, invalid("`mounts` should NOT have more than %d properties.", wire.MaxMounts)
	}
	out := make(map[string]wire.Mount, len(mounts))
	paths := slices.Sorted(maps.Keys(mounts))
	written := make(map[string]bool)
	for i, p := range paths {
		m := mounts[p]
		if len(p) < 2 || !path.IsAbs(p) || path.Clean(p) != strings.TrimSuffix(p, "/") || strings.ContainsRune(p, 0) {
			return nil, invalid("`mounts` should have absolute paths, not %.80q.", p)
		}
		for _, own := range []string{"/proc", "/sys", "/dev"} {
			if p == own || strings.HasPrefix(p, own+"/") {
				return nil, badRequest("The path '%.80s' can't be mounted on.", p)
			}
		}
		for _, other := range paths[:i] {
			if strings.HasPrefix(path.Clean(p)+"/", path.Clean(other)+"/") {
				return nil, badRequest("The mounts '%.80s' and '%.80s' overlap.", other, p)
			}
		}
		if m.Drive == "" {
			return nil, invalid("`mounts[%.80q]` missing required property `drive`.", p)
		}
		switch m.Mode {
		case mountSnapshot:
		case "read-only": // what it was called before
			m.Mode = mountSnapshot
		case mountReadWrite:
			if written[m.Drive] {
				return nil, badRequest("The drive '%.80s' can be mounted to read and write only once.", m.Drive)
			}
			written[m.Drive] = true
		default:
			return nil, invalid("`mounts[%.80q].mode` should be equal to one of the allowed values \"read-write, snapshot\".", p)
		}
		out[path.Clean(p)] = wire.Mount(m)
	}
	return out, nil
}

// checkMounts checks that the drives of the settings are there, and near.
func (st *store) checkMounts(project string, set *settings) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(set.Mounts)) {
		name := set.Mounts[p].Drive
		d := st.findDriveLocked(project, name)
		switch {
		case d == nil:
			return driveNotFound(name)
		case d.region != set.Region:
			return badRequest("The drive '%s' is in the region '%s', the sandbox in '%s'.", name, d.region, set.Region)
		}
	}
	return nil
}

// attach takes the drives that the session is to have, and gives their mounts.
func (sess *session) attach(mounts map[string]wire.Mount) ([]box.Mount, error) {
	project := sess.sb.key.project
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	out := make([]box.Mount, 0, len(mounts))
	for _, p := range slices.Sorted(maps.Keys(mounts)) {
		m := mounts[p]
		d := st.findDriveLocked(project, m.Drive)
		var err error
		switch {
		case d == nil:
			err = driveNotFound(m.Drive)
		case d.making:
			err = driveInMaking(d)
		case m.Mode == mountReadWrite && d.attached != nil:
			err = fail(http.StatusConflict, "conflict", "The drive '%s' is attached to the sandbox '%s'.", d.key.name, d.attached.sb.key.name)
		}
		if err != nil {
			sess.detachLocked()
			return nil, err
		}
		if m.Mode == mountReadWrite {
			d.attached = sess
			sess.drives = append(sess.drives, d)
		}
		d.busy++ // until the machine has hold of its files
		sess.taking = append(sess.taking, d)
		out = append(out, box.Mount{Path: p, Drive: d.id, Keep: m.Mode == mountReadWrite})
	}
	return out, nil
}

// haveTaken notes that the session's machine has hold of what it needs.
func (sess *session) haveTaken() {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.haveTakenLocked()
}

func (sess *session) haveTakenLocked() {
	for _, d := range sess.taking {
		d.busy--
	}
	sess.taking = nil
}

// detach gives the session's drives back.
func (sess *session) detach() {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.detachLocked()
}

func (sess *session) detachLocked() {
	sess.haveTakenLocked()
	for _, d := range sess.drives {
		d.attached = nil
	}
	sess.drives = nil
}

// features handles GET /v2/sandboxes/features: what the project may use.
func (c *call) features() error {
	writeJSON(c.w, http.StatusOK, map[string]any{"features": map[string]bool{"drives": true}})
	return nil
}

// driveState is a drive in the state that is kept.
type driveState struct {
	ID        string    `json:"id"`
	Project   string    `json:"project"`
	Name      string    `json:"name"`
	Region    string    `json:"region"`
	MaxSize   int64     `json:"maxSizeBytes"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Made says that there is a directory of it: earlier servers made none before
	// the drive was used.
	Made   bool   `json:"made,omitempty"`
	Parent string `json:"parent,omitempty"`
	Root   string `json:"root,omitempty"`
}

// addDriveLocked describes a drive that is whole.
func (in *state) addDriveLocked(d *drive) {
	if !d.making && !d.deleted {
		in.Drives = append(in.Drives, driveState{
			ID: d.id, Project: d.key.project, Name: d.key.name, Region: d.region, MaxSize: d.maxSize,
			CreatedAt: d.createdAt, UpdatedAt: d.updatedAt, Made: true, Parent: d.parent, Root: d.root,
		})
	}
}

// restoreDrivesLocked takes up drives.
func (st *store) restoreDrivesLocked(in []driveState) error {
	for _, x := range in {
		key := sandboxKey{x.Project, x.Name}
		if !x.Made {
			if err := st.s.host.MakeDrive(x.ID); err != nil {
				return err
			}
		}
		st.drives[key] = &drive{id: x.ID, key: key, region: x.Region, maxSize: x.MaxSize, createdAt: x.CreatedAt, updatedAt: x.UpdatedAt, parent: x.Parent, root: x.Root}
	}
	return nil
}
