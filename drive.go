package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Drive is storage that outlives sandboxes. It is mounted as a directory of a
// sandbox, see [CreateOptions.Mounts], and is kept when the sandbox stops or is
// deleted. One session at a time can mount it read-write; any number can mount
// a snapshot of it.
//
// A Drive is a handle, returned by [Client.GetOrCreateDrive], [Client.GetDrive]
// and [Client.ForkDrive], or read from JSON. It is safe for concurrent use.
type Drive struct {
	bound
	project string
	data    wire.Drive
}

// DriveInfo describes a drive. Fields that the API omitted are zero.
type DriveInfo struct {
	// ID and Name identify the drive; the name is unique within the project.
	ID, Name string
	// ProjectID is the project that the drive belongs to.
	ProjectID string
	// Region is where the data is stored, for example "iad1". Only sandboxes of
	// the same region can mount the drive.
	Region string
	// MaxSizeBytes is the drive's capacity.
	MaxSizeBytes int64
	// CurrentSessionID and CurrentSandboxName identify where the drive is
	// mounted read-write; empty if nowhere.
	CurrentSessionID, CurrentSandboxName string
	// ParentDriveID is the drive that this one was forked from, and RootDriveID
	// the first of that line; empty for a drive that is not a fork.
	ParentDriveID, RootDriveID string
	// V0 is experimental: the API's v0. Its meaning is not published.
	V0                   bool
	CreatedAt, UpdatedAt time.Time
}

// DriveOptions describes a new drive. If the drive already exists, fields that
// are not zero must match it.
type DriveOptions struct {
	// Region is where the data is stored. Empty means the platform's default,
	// "iad1". It can't be changed later.
	Region string
	// MaxSizeBytes is the drive's capacity, a multiple of 4,096. Zero means the
	// plan's default.
	MaxSizeBytes int64
}

// Mount returns a mount of the drive for [CreateOptions.Mounts]. An empty mode means
// [MountReadWrite]. It makes no request: a session that mounts a snapshot takes the
// snapshot when it starts.
func (d *Drive) Mount(mode MountMode) Mount {
	return Mount{Drive: d.Name(), Mode: mode}
}

// GetOrCreateDrive returns the drive with the given name, and creates it if
// there is none. A nil opts means the platform's defaults. If the drive exists
// with another region or size than the options ask for, the error is an
// [*APIError] that matches [ErrConflict]. It makes one request, which is safe to
// retry. Use [Client.GetDrive] where a mistyped name must not create a drive.
func (c *Client) GetOrCreateDrive(ctx context.Context, name string, opts *DriveOptions) (*Drive, error) {
	o := orZero(opts)
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if err := checkDriveName("name", name); err != nil {
		return nil, err
	}
	if o.MaxSizeBytes < 0 {
		return nil, invalid("MaxSizeBytes", "%d is negative", o.MaxSizeBytes)
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	return c.driveOp(ctx, project, &api.Request{Op: api.GetOrCreateDrive, Path: []string{name}, Body: struct {
		ProjectID    string `json:"projectId,omitempty"`
		Region       string `json:"region,omitempty"`
		MaxSizeBytes int64  `json:"maxSizeBytes,omitempty"`
	}{project, o.Region, o.MaxSizeBytes}})
}

// GetDrive returns the drive with the given name or ID. If there is none, the
// error matches [ErrNotFound].
func (c *Client) GetDrive(ctx context.Context, nameOrID string) (*Drive, error) {
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if err := checkDriveName("nameOrID", nameOrID); err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	return c.driveOp(ctx, project, &api.Request{Op: api.GetDrive, Path: []string{nameOrID}, Query: projectQuery(project)})
}

// ForkDrive creates a drive with the content, region and size of another. The
// two are independent from then on. If the name is taken, the error is an
// [*APIError] that matches [ErrConflict]; if the source was never written to, its
// Code is "drive_not_initialized".
//
// If the response is lost, the request is not retried, and the error matches
// [ErrOutcomeUnknown]; use [Client.GetDrive] to see whether the fork exists.
func (c *Client) ForkDrive(ctx context.Context, source, name string) (*Drive, error) {
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkDriveName("source", source), checkDriveName("name", name)); err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	return c.driveOp(ctx, project, &api.Request{Op: api.ForkDrive, Path: []string{source}, New: name, Query: projectQuery(project), Body: struct {
		Name string `json:"name"`
	}{name}})
}

// driveOp performs an operation whose response describes a drive.
func (c *Client) driveOp(ctx context.Context, project string, req *api.Request) (*Drive, error) {
	var resp wire.DriveResponse
	if err := c.do(ctx, req, &resp); err != nil {
		return nil, err
	}
	return &Drive{bound: bound{c: c}, project: project, data: resp.Drive}, nil
}

// ListDrivesOptions are the options of [Client.ListDrives]. The zero value lists
// all drives in the API's default order.
type ListDrivesOptions struct {
	// Limit is the maximum number of items per page, at most 50. Zero means the
	// API's default, 20.
	Limit int
	// Cursor continues a listing: it is the Next of the previous page.
	Cursor string
	// SortBy and SortOrder are the order.
	SortBy    DriveSortBy
	SortOrder SortOrder
	// NamePrefix selects drives whose names begin with it. It can't be combined
	// with a SortBy other than [DrivesByName].
	NamePrefix string
}

// ListDrives returns an iterator over the project's drives, like [Client.List]
// for sandboxes.
func (c *Client) ListDrives(ctx context.Context, opts *ListDrivesOptions) iter.Seq2[DriveInfo, error] {
	return listAll(ctx, func() (*Page[DriveInfo], error) { return c.ListDrivesPage(ctx, opts) })
}

// ListDrivesPage returns one page of [Client.ListDrives].
func (c *Client) ListDrivesPage(ctx context.Context, opts *ListDrivesOptions) (*Page[DriveInfo], error) {
	var q listQuery
	if opts != nil {
		q = listQuery{
			Limit: opts.Limit, Cursor: opts.Cursor, SortBy: string(opts.SortBy), SortOrder: opts.SortOrder, NamePrefix: opts.NamePrefix,
		}
	}
	var err error
	if q.ProjectID, err = c.projectID(ctx); err != nil {
		return nil, err
	}
	return fetchPage(ctx, c, api.ListDrives, q, func(a *wire.DrivesPage) ([]DriveInfo, wire.Pagination) {
		return convertAll(a.Drives, driveInfo), a.Pagination
	})
}

func driveInfo(w *wire.Drive) DriveInfo {
	return DriveInfo{
		ID: w.ID, Name: w.Name, ProjectID: w.ProjectID, Region: w.Region, MaxSizeBytes: w.MaxSizeBytes,
		CurrentSessionID: w.CurrentSessionID, CurrentSandboxName: w.CurrentSandboxName,
		ParentDriveID: w.ParentDriveID, RootDriveID: w.RootDriveID, V0: w.V0, CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time,
	}
}

// Name returns the drive's name.
func (d *Drive) Name() string { return d.wire().Name }

// Info returns the drive's description from the API's last response. It makes
// no request; [Client.GetDrive] returns a handle with the current state.
func (d *Drive) Info() DriveInfo {
	w := d.wire()
	w.Region = cmp.Or(w.Region, defaultRegion)
	return driveInfo(&w)
}

// Format prints the drive's name, for every verb.
func (d *Drive) Format(f fmt.State, verb rune) { redact.String(f, verb, "drive "+d.Name()) }

func (d *Drive) wire() wire.Drive {
	if d == nil {
		return wire.Drive{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.data
}

var errZeroDrive = fmt.Errorf("sandbox: %w: the Drive was not made by GetOrCreateDrive, GetDrive, ForkDrive or from JSON", ErrInvalid)

func (d *Drive) client() (*Client, error) {
	if d.wire().Name == "" {
		return nil, errZeroDrive
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clientLocked()
}

// Delete deletes the drive and its content. A drive that is mounted by a session
// can't be deleted: the error is an [*APIError], and the session must be stopped
// first. If the drive does not exist, the error matches [ErrNotFound].
//
// If the response is lost, Delete looks up the drive that has the name, and retries only
// if it is the same one. Otherwise the retry could delete a drive that another client has
// just created.
func (d *Drive) Delete(ctx context.Context) error {
	c, err := enter(ctx, d)
	if err != nil {
		return err
	}
	d.mu.Lock()
	project, name, id := d.project, d.data.Name, d.data.ID
	d.mu.Unlock()
	if err := checkDriveName("name", name); err != nil {
		return err
	}
	req := &api.Request{Op: api.DeleteDrive, Path: []string{name}, Query: projectQuery(project)}
	var lost error // of the previous attempt, whose response was lost
	for attempt := 1; ; attempt++ {
		var resp wire.DriveResponse
		err := c.do(ctx, req, &resp)
		switch {
		case err == nil && resp.Drive.Name != "":
			d.mu.Lock()
			defer d.mu.Unlock()
			d.data = resp.Drive
			return nil
		case lost != nil && c.isGone(err):
			return nil
		case lost != nil && errors.Is(err, ErrNotFound):
			return lost
		case !errors.Is(err, ErrOutcomeUnknown) || attempt == deleteAttempts || ctx.Err() != nil:
			return err
		}
		lost = err
		now, lookErr := c.driveOp(ctx, project, &api.Request{Op: api.GetDrive, Path: []string{name}, Query: req.Query})
		switch {
		case c.isGone(lookErr), lookErr == nil && id != "" && now.Info().ID != id:
			return nil
		case lookErr != nil || id == "":
			return err
		}
	}
}

type serializedDrive struct {
	Drive     wire.Drive `json:"drive"`
	ProjectID string     `json:"projectId,omitempty"`
}

// MarshalJSON encodes the handle in the JavaScript SDK's serialized form.
func (d *Drive) MarshalJSON() ([]byte, error) {
	if d == nil {
		return nil, errZeroDrive
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Marshal(serializedDrive{d.data, d.project})
}

// UnmarshalJSON decodes a handle. It uses [DefaultClient] unless
// [Client.Bind] is called.
func (d *Drive) UnmarshalJSON(data []byte) error {
	var in serializedDrive
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Drive.Name == "" {
		return errors.New("sandbox: JSON is not a serialized drive: drive.name is missing")
	}
	in.ProjectID = cmp.Or(in.ProjectID, in.Drive.ProjectID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.c, d.project, d.data = nil, in.ProjectID, in.Drive
	return nil
}

// MountMode is a way to mount a drive. The API may report others.
type MountMode string

const (
	// MountReadWrite lets the sandbox read and write the drive. Only one session at a time
	// can mount a drive this way.
	MountReadWrite MountMode = "read-write"
	// MountSnapshot lets the sandbox read the drive's content as it was when the
	// session started. Any number of sessions can mount a snapshot, even while
	// another one writes. A drive that was never written to has none.
	MountSnapshot MountMode = "snapshot"
)

// Mount describes how a drive is mounted.
type Mount struct {
	// Drive is the drive's name.
	Drive string
	// Mode is how it is mounted; empty means [MountReadWrite].
	Mode MountMode
}

// mountsToWire encodes the mounts of a sandbox.
func mountsToWire(field string, mounts map[string]Mount) (map[string]wire.Mount, error) {
	if len(mounts) > wire.MaxMounts {
		return nil, invalid(field, "%d drives are mounted; a sandbox can have at most %d", len(mounts), wire.MaxMounts)
	}
	out := make(map[string]wire.Mount, len(mounts))
	cleaned := map[string]string{}
	writer := map[string]string{}
	for _, at := range slices.Sorted(maps.Keys(mounts)) {
		m := mounts[at]
		if err := checkText(field, at); err != nil {
			return nil, err
		}
		clean := path.Clean(at)
		if !strings.HasPrefix(at, "/") || clean == "/" {
			return nil, invalid(field, "%q is not the absolute path of a directory below /", at)
		}
		for other, written := range cleaned {
			if clean == other || strings.HasPrefix(clean, other+"/") || strings.HasPrefix(other, clean+"/") {
				return nil, invalid(field, "%q and %q overlap", written, at)
			}
		}
		cleaned[clean] = at
		if err := checkDriveName(fmt.Sprintf("%s[%q].Drive", field, at), m.Drive); err != nil {
			return nil, err
		}
		switch m.Mode {
		case "":
			m.Mode = MountReadWrite
		case MountReadWrite, MountSnapshot:
		default:
			return nil, invalid(fmt.Sprintf("%s[%q].Mode", field, at), "%q is not %q or %q", m.Mode, MountReadWrite, MountSnapshot)
		}
		if m.Mode == MountReadWrite {
			if other, twice := writer[m.Drive]; twice {
				return nil, invalid(field, "drive %q is mounted read-write at %q and at %q; it can be only once", m.Drive, other, at)
			}
			writer[m.Drive] = at
		}
		out[at] = wire.Mount{Drive: m.Drive, Mode: string(m.Mode)}
	}
	return out, nil
}

// mountsFromWire converts the mounts of a response. An unknown mode is kept.
func mountsFromWire(mounts map[string]wire.Mount) map[string]Mount {
	if mounts == nil {
		return nil
	}
	out := make(map[string]Mount, len(mounts))
	for at, m := range mounts {
		out[at] = Mount{Drive: m.Drive, Mode: MountMode(m.Mode)}
	}
	return out
}

// checkDriveName refuses names that no drive can have, among them those that
// would reach another route of the API.
func checkDriveName(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "is empty; the name of a drive is needed")
	case len(name) > wire.MaxDriveName:
		return invalid(field, "has %d characters; the name of a drive has at most %d", len(name), wire.MaxDriveName)
	case !wire.PlainName(name, wire.MaxDriveName):
		return invalid(field, "%q can't be the name of a drive: letters, digits, - and _ are allowed", name)
	}
	return nil
}
