package sandboxtest

import (
	"cmp"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// The size of a drive must be a multiple of driveBlock.
const driveBlock = 4096

// driveParams describe a new drive.
type driveParams struct {
	ProjectID    string `json:"projectId"`
	Region       string `json:"region"`
	MaxSizeBytes *int64 `json:"maxSizeBytes"`
}

func (p *driveParams) check() error {
	if p.ProjectID == "" {
		return reply.Invalid("missing required property `projectId`.")
	}
	if p.Region != "" {
		if err := store.CheckRegion("region", p.Region); err != nil {
			return err
		}
	}
	if p.MaxSizeBytes != nil && (*p.MaxSizeBytes < 1 || *p.MaxSizeBytes > wire.MaxDriveSize) {
		return reply.Invalid("`maxSizeBytes` should be between 1 and %d.", int64(wire.MaxDriveSize))
	}
	if p.MaxSizeBytes != nil && *p.MaxSizeBytes%driveBlock != 0 {
		return reply.Invalid("`maxSizeBytes` should be multiple of %d.", driveBlock)
	}
	return nil
}

func checkDriveName(name string) error {
	if !wire.PlainName(name, wire.MaxDriveName) {
		return reply.Invalid("`name` should match pattern \"%s\" and NOT be longer than %d characters.", namePattern, wire.MaxDriveName)
	}
	return nil
}

type forkDriveParams struct {
	Name string `json:"name"`
}

// listDrives handles GET /v2/sandboxes/drives.
func (c *call) listDrives() error {
	q := c.r.URL.Query()
	by := cmp.Or(q.Get("sortBy"), "createdAt")
	key := map[string]func(wire.Drive) string{
		"createdAt": func(d wire.Drive) string { return timeKey(d.CreatedAt) },
		"updatedAt": func(d wire.Drive) string { return timeKey(d.UpdatedAt) },
		"name":      func(d wire.Drive) string { return d.Name },
	}[by]
	if key == nil {
		return reply.Invalid("`sortBy` should be equal to one of the allowed values \"createdAt, updatedAt, name\".")
	}
	prefix := q.Get("namePrefix")
	if prefix != "" && by != "name" {
		return reply.Invalid("`namePrefix` is only valid when `sortBy` is `name`")
	}
	page, err := parsePage(q, "drives by "+by, wire.MaxPage)
	if err != nil {
		return err
	}
	items := slices.DeleteFunc(c.s.store.ListDrives(q.Get("projectId")), func(d wire.Drive) bool { return !strings.HasPrefix(d.Name, prefix) })
	items, pagination := paginate(page, "drives by "+by, items, func(d wire.Drive) sortKey { return sortKey{key(d), d.ID} })
	return c.respond(http.StatusOK, wire.DrivesPage{Drives: items, Pagination: pagination}, nil)
}

// mountParam is a mount in a request. Unlike wire.Mount, it is decoded strictly.
type mountParam wire.Mount

// checkMountParams checks mounts as far as possible without the drives, and returns them
// in the stored form.
func checkMountParams(mounts map[string]mountParam) (map[string]wire.Mount, error) {
	if len(mounts) > wire.MaxMounts {
		return nil, reply.Invalid("`mounts` should NOT have more than %d properties.", wire.MaxMounts)
	}
	out := make(map[string]wire.Mount, len(mounts))
	paths := slices.Sorted(maps.Keys(mounts))
	written := make(map[string]bool)
	for i, p := range paths {
		m := mounts[p]
		if len(p) < 2 || !path.IsAbs(p) || path.Clean(p) != strings.TrimSuffix(p, "/") || strings.ContainsRune(p, 0) {
			return nil, reply.Invalid("`mounts` should have absolute paths, not %.80q.", p)
		}
		for _, own := range []string{"/proc", "/sys", "/dev"} {
			if p == own || strings.HasPrefix(p, own+"/") {
				return nil, reply.BadRequest("The path '%.80s' can't be mounted on.", p)
			}
		}
		for _, other := range paths[:i] {
			if strings.HasPrefix(path.Clean(p)+"/", path.Clean(other)+"/") {
				return nil, reply.BadRequest("The mounts '%.80s' and '%.80s' overlap.", other, p)
			}
		}
		if m.Drive == "" {
			return nil, reply.Invalid("`mounts[%.80q]` missing required property `drive`.", p)
		}
		switch m.Mode {
		case store.MountSnapshot:
		case "read-only": // its former name
			m.Mode = store.MountSnapshot
		case store.MountReadWrite:
			if written[m.Drive] {
				return nil, reply.BadRequest("The drive '%.80s' can be mounted to read and write only once.", m.Drive)
			}
			written[m.Drive] = true
		default:
			return nil, reply.Invalid("`mounts[%.80q].mode` should be equal to one of the allowed values \"read-write, snapshot\".", p)
		}
		out[path.Clean(p)] = wire.Mount(m)
	}
	return out, nil
}

// getFeatures handles GET /v2/sandboxes/features, which lists what the project may use.
func (c *call) getFeatures() error {
	return c.respond(http.StatusOK, map[string]any{"features": map[string]bool{"drives": true}}, nil)
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
	if p.ProjectID, err = c.resolveProject(p.ProjectID); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	d, fresh, err := c.s.store.GetOrCreateDrive(store.Key{Project: p.ProjectID, Name: name}, p.Region, p.MaxSizeBytes)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if fresh {
		status = http.StatusCreated
	}
	return c.respond(status, wire.DriveResponse{Drive: d}, nil)
}

// getDrive handles GET /v2/sandboxes/drives/{nameOrId}.
func (c *call) getDrive() error {
	d, err := c.s.store.Drive(c.r.URL.Query().Get("projectId"), c.values[0])
	return c.respond(http.StatusOK, wire.DriveResponse{Drive: d}, err)
}

// deleteDrive handles DELETE /v2/sandboxes/drives/{name}.
func (c *call) deleteDrive() error {
	d, err := c.s.store.DeleteDrive(c.r.URL.Query().Get("projectId"), c.values[0])
	return c.respond(http.StatusOK, wire.DriveResponse{Drive: d}, err)
}

// forkDrive handles POST /v2/sandboxes/drives/{name}/fork: a copy under
// another name.
func (c *call) forkDrive() error {
	var p forkDriveParams
	if err := c.decode(&p); err != nil {
		return err
	}
	project, err := c.resolveProject(c.r.URL.Query().Get("projectId"))
	if err != nil {
		return err
	}
	if project == "" {
		return reply.Invalid("missing required property `projectId`.")
	}
	if err := checkDriveName(p.Name); err != nil {
		return err
	}
	ctx, cancel := c.detachedContext()
	defer cancel()
	d, err := c.s.store.ForkDrive(ctx, c.values[0], store.Key{Project: project, Name: p.Name})
	return c.respond(http.StatusCreated, wire.DriveResponse{Drive: d}, err)
}
