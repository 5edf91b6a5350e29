package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Drive is storage that outlives sandboxes: a directory of a sandbox while it is
// mounted there, see [CreateOptions.Mounts], and kept when the sandbox stops or
// is deleted. One session at a time can mount it read-write; any number can
// mount a snapshot of it.
//
// A Drive is a handle, made by [Client.GetOrCreateDrive], [Client.GetDrive] and
// [Client.ForkDrive] or from JSON. It is safe for concurrent use.
type Drive struct {
	mu      sync.Mutex
	c       *Client // nil until needed, for handles from JSON
	project string
	data    wire.Drive
}

// DriveInfo is what the API says of a drive. Fields that it left out are zero.
type DriveInfo struct {
	// ID and Name identify the drive; the name is unique in the project.
	ID, Name string
	// ProjectID is the project that the drive belongs to.
	ProjectID string
	// Region is where the data lies, for example "iad1". Only sandboxes of the
	// same region can mount the drive.
	Region string
	// MaxSizeBytes is how much it can hold.
	MaxSizeBytes int64
	// CurrentSessionID and CurrentSandboxName say where the drive is mounted
	// read-write; empty when nowhere.
	CurrentSessionID, CurrentSandboxName string
	// ParentDriveID is the drive that this one was forked from, and RootDriveID
	// the first of that line; empty for a drive that is no fork.
	ParentDriveID, RootDriveID string
	CreatedAt, UpdatedAt       time.Time
}

// DriveOptions describes a drive that is made because there is none of its name
// yet. For an existing drive they have to be its own, or zero.
type DriveOptions struct {
	// Region is where the data lies. Empty means the platform's default, which
	// is [DefaultRegion]. It can't be changed later.
	Region string
	// MaxSizeBytes is how much the drive can hold. Zero means the plan's
	// default.
	MaxSizeBytes int64
}

// MountMode says what a sandbox can do with a drive.
type MountMode string

// The ways to mount a drive.
const (
	// MountReadWrite lets the sandbox read and write the drive. Only one session
	// at a time can have a drive in this mode.
	MountReadWrite MountMode = "read-write"
	// MountSnapshot gives the sandbox the drive's content as it was when the
	// session started, to read. Any number of sessions can have one, beside one
	// that writes. A drive that was never written to has none.
	MountSnapshot MountMode = "snapshot"
)

// Mount is a drive at a path of a sandbox.
type Mount struct {
	// Drive is the drive's name.
	Drive string
	// Mode is empty for [MountReadWrite].
	Mode MountMode
}

// maxMounts is how many drives a sandbox can have.
const maxMounts = 4

// ReadWrite returns the mount of the drive that can write to it. It makes no
// request.
func (d *Drive) ReadWrite() Mount { return Mount{Drive: d.Name(), Mode: MountReadWrite} }

// Snapshot returns the mount of the drive that only reads it; see
// [MountSnapshot]. It makes no request: the snapshot is taken by each session
// when it starts.
func (d *Drive) Snapshot() Mount { return Mount{Drive: d.Name(), Mode: MountSnapshot} }

// GetOrCreateDrive returns the drive of that name, and makes it when there is
// none. A nil opts takes the platform's defaults. When the drive exists with
// another region or size than the options ask for, the error is an [*APIError]
// with [CodeConflict]. A mistyped name makes a drive; [Client.GetDrive] does
// not. It makes one request, which can be retried.
func (c *Client) GetOrCreateDrive(ctx context.Context, name string, opts *DriveOptions) (*Drive, error) {
	var o DriveOptions
	if opts != nil {
		o = *opts
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

// GetDrive looks a drive up by its name or its ID. A missing one matches
// [ErrNotFound].
func (c *Client) GetDrive(ctx context.Context, nameOrID string) (*Drive, error) {
	if err := checkDriveName("nameOrID", nameOrID); err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	return c.driveOp(ctx, project, &api.Request{Op: api.GetDrive, Path: []string{nameOrID}, Query: projectQuery(project)})
}

// ForkDrive makes a drive with the content, region and size of another one. What
// is written to either afterwards is not seen by the other. A name that is taken
// is an [*APIError] with [CodeConflict], and a source that was never written to
// one with [CodeDriveNotInitialized].
//
// The request is sent once: when its answer is lost, the error matches
// [ErrOutcomeUnknown], and [Client.GetDrive] tells whether the fork was made.
func (c *Client) ForkDrive(ctx context.Context, source, name string) (*Drive, error) {
	if err := errors.Join(checkDriveName("source", source), checkDriveName("name", name)); err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	return c.forkDrive(ctx, project, source, name)
}

func (c *Client) forkDrive(ctx context.Context, project, source, name string) (*Drive, error) {
	return c.driveOp(ctx, project, &api.Request{Op: api.ForkDrive, Path: []string{source}, Query: projectQuery(project), Body: struct {
		Name string `json:"name"`
	}{name}})
}

// DeleteDrive deletes a drive by its name, with all that it holds. One that is
// mounted by a session can't be deleted: the error is an [*APIError], and the
// session has to be stopped first. A missing one matches [ErrNotFound].
func (c *Client) DeleteDrive(ctx context.Context, name string) error {
	if err := checkDriveName("name", name); err != nil {
		return err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return err
	}
	_, err = c.deleteDrive(ctx, project, name, "")
	return err
}

// deleteDrive deletes the drive of a name, which has the given ID if that is
// known. When the answer is lost, what bears the name by then decides: sent
// again without a look, the request could delete a drive that somebody has made
// since.
//
// The last state of the drive is returned, as far as it was answered.
func (c *Client) deleteDrive(ctx context.Context, project, name, id string) (last wire.Drive, err error) {
	req := &api.Request{Op: api.DeleteDrive, Path: []string{name}, Query: projectQuery(project)}
	for attempt := 1; ; attempt++ {
		var answer wire.DriveAnswer
		err := c.do(ctx, req, &answer)
		if attempt > 1 && errors.Is(err, ErrNotFound) {
			return last, nil
		}
		if !errors.Is(err, ErrOutcomeUnknown) || attempt == 3 || ctx.Err() != nil {
			return answer.Drive, err
		}
		now, lookErr := c.driveOp(ctx, project, &api.Request{Op: api.GetDrive, Path: []string{name}, Query: req.Query})
		switch {
		case errors.Is(lookErr, ErrNotFound), lookErr == nil && id != "" && now.ID() != id:
			return last, nil
		case lookErr != nil || id == "":
			return last, err
		}
	}
}

// driveOp performs an operation that answers a drive.
func (c *Client) driveOp(ctx context.Context, project string, req *api.Request) (*Drive, error) {
	var answer wire.DriveAnswer
	if err := c.do(ctx, req, &answer); err != nil {
		return nil, err
	}
	if answer.Drive.Name == "" {
		answer.Drive.Name = req.Path[0]
	}
	return &Drive{c: c, project: project, data: answer.Drive}, nil
}

// ListDrivesOptions filters a listing of drives. The zero value lists all in the
// API's order.
type ListDrivesOptions struct {
	// Limit is how many a page has, at most 50; zero means the API's default.
	Limit int
	// SortBy is [SortByCreatedAt], [SortByUpdatedAt] or [SortByName], and
	// SortOrder its direction; empty means the API's default.
	SortBy    SortBy
	SortOrder SortOrder
	// NamePrefix keeps those whose names begin with it. It needs an order by
	// name, which an empty SortBy then is.
	NamePrefix string
	// Cursor is the Next of an earlier page: the listing goes on behind it.
	Cursor string
}

// ListDrives iterates over the project's drives, like [Client.List] over
// sandboxes.
func (c *Client) ListDrives(ctx context.Context, opts *ListDrivesOptions) iter.Seq2[DriveInfo, error] {
	return listAll(ctx, func() (*Page[DriveInfo], error) { return c.ListDrivesPage(ctx, opts) })
}

// ListDrivesPage returns one page of [Client.ListDrives].
func (c *Client) ListDrivesPage(ctx context.Context, opts *ListDrivesOptions) (*Page[DriveInfo], error) {
	var o ListDrivesOptions
	if opts != nil {
		o = *opts
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	q := listQuery{ProjectID: project, Limit: o.Limit, SortBy: o.SortBy, SortOrder: o.SortOrder, NamePrefix: o.NamePrefix, Cursor: o.Cursor}
	return fetchPage(ctx, c, api.ListDrives, q, func(a *wire.DrivesPage) ([]DriveInfo, wire.Pagination) {
		return convertAll(a.Drives, driveInfo), a.Pagination
	})
}

func driveInfo(w *wire.Drive) DriveInfo {
	return DriveInfo{
		ID: w.ID, Name: w.Name, ProjectID: w.ProjectID, Region: w.Region, MaxSizeBytes: w.MaxSizeBytes,
		CurrentSessionID: w.CurrentSessionID, CurrentSandboxName: w.CurrentSandboxName,
		ParentDriveID: w.ParentDriveID, RootDriveID: w.RootDriveID, CreatedAt: w.CreatedAt.Time, UpdatedAt: w.UpdatedAt.Time,
	}
}

// ID returns the drive's ID.
func (d *Drive) ID() string { return d.wire().ID }

// Name returns the drive's name.
func (d *Drive) Name() string { return d.wire().Name }

// Info returns what the API said of the drive in its last answer. It makes no
// request; use [Drive.Refresh] first for the present state.
func (d *Drive) Info() DriveInfo {
	w := d.wire()
	return driveInfo(&w)
}

// String describes the handle in a few words.
func (d *Drive) String() string { return "drive " + d.Name() }

// Format writes String, whatever the verb.
func (d *Drive) Format(f fmt.State, verb rune) { redact.String(f, verb, d.String()) }

// LogValue describes the handle for log/slog.
func (d *Drive) LogValue() slog.Value {
	w := d.wire()
	return slog.GroupValue(slog.String("name", w.Name), slog.String("id", w.ID))
}

func (d *Drive) wire() wire.Drive {
	if d == nil {
		return wire.Drive{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.data
}

// SetClient makes a handle that came from JSON use c instead of [DefaultClient].
func (d *Drive) SetClient(c *Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.c = c
}

// use returns what calls on the handle are made with.
func (d *Drive) use() (c *Client, project, name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data.Name == "" {
		return nil, "", "", fmt.Errorf("sandbox: %w: the Drive was not made by GetOrCreateDrive, GetDrive, ForkDrive or from JSON", ErrInvalid)
	}
	if d.c == nil {
		if d.c, err = DefaultClient(); err != nil {
			return nil, "", "", err
		}
	}
	return d.c, d.project, d.data.Name, checkDriveName("name", d.data.Name)
}

// Refresh asks the API for the drive's present state.
func (d *Drive) Refresh(ctx context.Context) error {
	c, project, name, err := d.use()
	if err != nil {
		return err
	}
	fresh, err := c.driveOp(ctx, project, &api.Request{Op: api.GetDrive, Path: []string{name}, Query: projectQuery(project)})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data = fresh.data
	return nil
}

// Fork makes a drive with the content, region and size of this one; see
// [Client.ForkDrive].
func (d *Drive) Fork(ctx context.Context, name string) (*Drive, error) {
	c, project, source, err := d.use()
	if err != nil {
		return nil, err
	}
	if err := checkDriveName("name", name); err != nil {
		return nil, err
	}
	return c.forkDrive(ctx, project, source, name)
}

// Delete deletes the drive with all that it holds; see [Client.DeleteDrive].
func (d *Drive) Delete(ctx context.Context) error {
	c, project, name, err := d.use()
	if err != nil {
		return err
	}
	last, err := c.deleteDrive(ctx, project, name, d.ID())
	if err == nil && last.Name != "" {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.data = last
	}
	return err
}

type serializedDrive struct {
	Drive     wire.Drive `json:"drive"`
	ProjectID string     `json:"projectId,omitempty"`
}

// MarshalJSON writes the handle in the JavaScript SDK's serialized form.
func (d *Drive) MarshalJSON() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Marshal(serializedDrive{d.data, d.project})
}

// UnmarshalJSON revives a handle. It uses [DefaultClient] unless
// [Drive.SetClient] says otherwise.
func (d *Drive) UnmarshalJSON(data []byte) error {
	var in serializedDrive
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Drive.Name == "" {
		return errors.New("sandbox: JSON is not a serialized drive: drive.name is missing")
	}
	if in.ProjectID == "" {
		in.ProjectID = in.Drive.ProjectID
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.c, d.project, d.data = nil, in.ProjectID, in.Drive
	return nil
}

// maxDriveName is the longest name of a drive.
const maxDriveName = 64

// checkDriveName refuses names that no drive can have; among them are those
// that would reach another route of the API.
func checkDriveName(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "is empty; the name of a drive is needed")
	case len(name) > maxDriveName:
		return invalid(field, "has %d characters; the name of a drive has at most %d", len(name), maxDriveName)
	case !plainName(name):
		return invalid(field, "%q can't be the name of a drive: letters, digits, - and _ are allowed", name)
	}
	return nil
}

// mountsToWire checks mounts and returns what a request carries. Nil stays nil:
// it is not sent.
func mountsToWire(mounts map[string]Mount, failover []string) (map[string]wire.Mount, error) {
	if mounts == nil {
		return nil, nil
	}
	const field = "Mounts"
	if len(mounts) > maxMounts {
		return nil, invalid(field, "%d drives are mounted; a sandbox can have at most %d", len(mounts), maxMounts)
	}
	if len(mounts) > 0 && len(failover) > 0 {
		return nil, invalid(field, "can't be combined with FailoverRegions: a drive is in one region only")
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

// mountsFromWire reads the mounts of an answer. A mode that is not known stays as
// it is.
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
