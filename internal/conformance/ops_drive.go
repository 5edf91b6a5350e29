package conformance

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/wire"
)

var driveGetters = map[string]func(sandbox.DriveInfo) any{
	"driveId":            func(i sandbox.DriveInfo) any { return i.ID },
	"name":               func(i sandbox.DriveInfo) any { return i.Name },
	"projectId":          func(i sandbox.DriveInfo) any { return orNil(i.ProjectID) },
	"region":             func(i sandbox.DriveInfo) any { return orNil(i.Region) },
	"maxSize":            func(i sandbox.DriveInfo) any { return float64(i.MaxSizeBytes) },
	"currentSessionId":   func(i sandbox.DriveInfo) any { return orNil(i.CurrentSessionID) },
	"currentSandboxName": func(i sandbox.DriveInfo) any { return orNil(i.CurrentSandboxName) },
	"createdAt":          func(i sandbox.DriveInfo) any { return isoTime(i.CreatedAt) },
	"updatedAt":          func(i sandbox.DriveInfo) any { return isoTime(i.UpdatedAt) },
}

func opDriveGetOrCreate(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	var o sandbox.DriveOptions
	if err := errors.Join(s.get("region", &o.Region), s.get("maxSize", &o.MaxSizeBytes)); err != nil {
		return nil, err
	}
	return client.GetOrCreateDrive(c.ctx, s.text("name"), &o)
}

// opDriveList lists drives. The official SDK's listing has handles; this SDK's
// has their data.
func opDriveList(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	var o sandbox.ListOptions
	var bind []string
	l, err := s.listing()
	if err := errors.Join(
		err, s.get("limit", &o.Limit), s.get("sortBy", &o.SortBy), s.get("sortOrder", &o.SortOrder),
		s.get("namePrefix", &o.NamePrefix), s.get("cursor", &o.Cursor), s.get("bind", &bind),
	); err != nil {
		return nil, err
	}
	first := func() (*sandbox.Page[sandbox.DriveInfo], error) { return client.ListDrivesPage(c.ctx, &o) }
	if len(bind) > 0 {
		p, err := first()
		if err != nil {
			return nil, err
		}
		for i, name := range bind {
			drive, err := revived(client, s.text("projectId"), p.Items[i])
			if err != nil {
				return nil, err
			}
			c.d.store(name, drive)
		}
		first = func() (*sandbox.Page[sandbox.DriveInfo], error) { return p, nil }
	}
	item := func(i sandbox.DriveInfo) map[string]any {
		out := map[string]any{"drive": i.Name, "driveId": i.ID}
		for _, name := range l.Pick {
			if get, ok := driveGetters[name]; ok {
				out[name] = get(i)
			}
		}
		return out
	}
	return gather(c, l, "drives", first, client.ListDrives(c.ctx, &o), item, nil)
}

// revived returns a handle for a listed drive without a request.
func revived(client *sandbox.Client, project string, i sandbox.DriveInfo) (*sandbox.Drive, error) {
	known := wire.Drive{
		ID: i.ID, Name: i.Name, ProjectID: i.ProjectID, Region: i.Region, MaxSizeBytes: i.MaxSizeBytes,
		CurrentSessionID: i.CurrentSessionID, CurrentSandboxName: i.CurrentSandboxName,
		ParentDriveID: i.ParentDriveID, RootDriveID: i.RootDriveID,
		CreatedAt: wire.At(i.CreatedAt), UpdatedAt: wire.At(i.UpdatedAt),
	}
	data, err := json.Marshal(map[string]any{"drive": known, "projectId": project})
	if err != nil {
		return nil, err
	}
	drive := &sandbox.Drive{}
	if err := json.Unmarshal(data, drive); err != nil {
		return nil, err
	}
	client.Bind(drive)
	return drive, nil
}

// mounts decodes the mounts of a sandbox. Like in the official SDK, a saved
// drive is mounted read-write.
func (c *call) mounts(s statics) (map[string]sandbox.Mount, error) {
	raw, ok := s["mounts"]
	if !ok || isNull(raw) {
		return nil, nil
	}
	var in map[string]json.RawMessage
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, errors.Join(errInvalidMount, err)
	}
	out := map[string]sandbox.Mount{}
	for at, raw := range in {
		var m struct {
			Saved string            `json:"saved"`
			Drive string            `json:"drive"`
			Mode  sandbox.MountMode `json:"mode"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, errors.Join(errInvalidMount, err)
		}
		if m.Saved == "" {
			out[at] = sandbox.Mount{Drive: m.Drive, Mode: m.Mode}
			continue
		}
		saved, _ := c.d.load(m.Saved)
		switch v := saved.(type) {
		case *sandbox.Drive:
			out[at] = v.Mount(sandbox.MountReadWrite)
		case sandbox.Mount:
			out[at] = v
		default:
			return nil, fmt.Errorf("conformance: %q is %T and can't be mounted", m.Saved, saved)
		}
	}
	return out, nil
}

// errInvalidMount reports a mount that the SDK's type cannot represent.
var errInvalidMount = errors.New("conformance: invalid mount")

func mountsValue(mounts map[string]sandbox.Mount) any {
	if mounts == nil {
		return nil
	}
	out := map[string]any{}
	for at, m := range mounts {
		out[at] = mountValue(m)
	}
	return out
}

func mountValue(m sandbox.Mount) map[string]any {
	return map[string]any{"drive": m.Drive, "mode": string(m.Mode)}
}
